"""A text model as the supervisor tells of it, and the whole gateway's routes over it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fake_artifacts import make_artifact
from prometheus_client.parser import text_string_to_metric_families
from scripted_upstream import STREAM, Exchange, ScriptedUpstream, scripted, silent

from modelops.config import LimitsConfig, ModelConfig, ServerConfig
from modelops.errors import NotReadyError
from modelops_servers.front.app import build
from modelops_servers.front.metrics import Metrics
from modelops_servers.front.models import Models

CHAT = {"model": "chat", "stream": True, "messages": []}


async def stream(exchange: Exchange) -> None:
    await exchange.head()
    for piece in STREAM:
        await exchange.piece(piece)
    await exchange.end()


class Front:
    """The gateway as one ASGI application, told by the test what the supervisor would tell."""

    def __init__(self, folder: Path, socket: Path) -> None:
        self.artifact = make_artifact(folder / "mlp")
        self.socket = socket
        self.metrics = Metrics()
        self.models = Models(LimitsConfig(), self.metrics, 1, lambda _: None)
        link = cast(Any, SimpleNamespace())
        server = ServerConfig()
        self.app = build(server, self.models, self.metrics, link, fronts=1, admin=False)

    async def told(self, state: str, **more: Any) -> None:
        """A text model, alias ``alias``, whose engine is ``state``; and one of tensors."""
        text = ModelConfig(name="chat", source=self.artifact.path, engine="vllm", **more)
        tensors = ModelConfig(name="mlp", source=self.artifact.path, engine="onnxruntime")
        replica = {
            "id": f"chat/1/0.{state}", "socket": str(self.socket), "state": state,
            "why": f"it is {state}", "since": 5.0, "next": "wait", "restarts": 2,
            "last_progress": None,
            "describe": {"served_model_name": "engine's", "max_model_len": 99} if
            state == "ready" else {},
        }  # fmt: skip
        await self.models.apply([
            _model("chat", ["alias"], "text", text, [replica]),
            _model("mlp", [], "tensor", tensors, []),
        ])  # fmt: skip

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and body, decoded where it is JSON."""
        data = b"" if body is None else json.dumps(body).encode()
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": [(b"content-length", b"%d" % len(data))],
            "http_version": "1.1", "scheme": "http", "root_path": "", "server": None,
            "client": None,
        }  # fmt: skip
        waiting = asyncio.Event()
        asked = [{"type": "http.request", "body": data, "more_body": False}]
        said: list[Any] = []

        async def receive() -> Any:
            if asked:
                return asked.pop()
            await waiting.wait()
            return None

        async def send(message: Any) -> None:
            said.append(dict(message))

        await self.app(scope, receive, send)
        whole = b"".join(bytes(m.get("body", b"")) for m in said[1:])
        is_json = dict(said[0]["headers"]).get(b"content-type", b"").startswith(b"application/json")
        return said[0]["status"], json.loads(whole) if is_json else whole


def _model(
    name: str, aliases: list[str], kind: str, config: ModelConfig, replicas: list[Any]
) -> dict[str, Any]:
    version = {
        "version": "1", "kind": kind, "path": str(config.source),
        "config": config.model_dump(mode="json"), "replicas": replicas,
    }  # fmt: skip
    return {
        "name": name, "aliases": aliases, "required": True, "default": "1", "unavailable": "",
        "since": 0.0, "versions": [version],
    }  # fmt: skip


Scenario = Callable[[Front, ScriptedUpstream], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Scenario], None]:
    """Return what runs a scenario over a front and an engine that streams."""

    def begin(scenario: Scenario) -> None:
        async def main() -> None:
            with scripted(stream, tmp_path / "s") as upstream:
                front = Front(tmp_path, tmp_path / "s")
                try:
                    await scenario(front, upstream)
                finally:
                    await front.app.close()
                    await front.models.close()

        asyncio.run(asyncio.wait_for(main(), 25))

    return begin


def test_a_ready_engine_answers_under_name_and_alias(run: Callable[[Scenario], None]) -> None:
    async def scenario(front: Front, upstream: ScriptedUpstream) -> None:
        await front.told("ready")
        for name in ("chat", "alias"):
            assert await front.ask("POST", "/v1/chat/completions", CHAT | {"model": name}) == (
                200,
                b"".join(STREAM),
            )
        status, listed = await front.ask("GET", "/v1/models")
        assert (status, [m["id"] for m in listed["data"]]) == (200, ["chat", "mlp"])
        assert listed["data"][0]["max_model_len"] == 99
        status, metadata = await front.ask("GET", "/v2/models/chat")
        assert (metadata["platform"], metadata["parameters"]["max_tokens"]) == ("vllm", 99)
        assert front.models.find_text("chat").in_flight == 0

    run(scenario)


def test_what_is_not_ready_says_why_and_what_is_gone_is_let_go(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(front: Front, upstream: ScriptedUpstream) -> None:
        with pytest.raises(Exception, match="not served"):
            front.models.find_text("chat")
        for state, status in (("loading", 503), ("ready", 200), ("stuck", 503), ("failed", 503)):
            await front.told(state)
            got, said = await front.ask("POST", "/v1/chat/completions", CHAT)
            assert got == status
            if status == 503:
                assert f"is {state}: it is {state}" in said["error"]["message"]
            ready, report = await front.ask("GET", "/readyz")
            assert report["models"][0]["state"] == state
            assert ready == 503  # of the other model, nothing is told
        await front.models.apply([])
        with pytest.raises(Exception, match="not served"):
            front.models.find_text("chat")

    run(scenario)


def test_each_kind_of_model_has_its_own_routes(run: Callable[[Scenario], None]) -> None:
    async def scenario(front: Front, upstream: ScriptedUpstream) -> None:
        await front.told("ready")
        status, said = await front.ask("POST", "/v1/chat/completions", CHAT | {"model": "mlp"})
        assert (status, said["error"]["param"]) == (400, "model")
        assert "/v2/models/mlp/infer" in said["error"]["message"]
        status, said = await front.ask("POST", "/v2/models/chat/infer", {"inputs": []})
        assert (status, "makes text" in said["error"]) == (400, True)
        status, said = await front.ask("POST", "/v1/embeddings", {"model": "chat", "input": "x"})
        assert status == 400
        assert "makes text" in said["error"]["message"]

    run(scenario)


def test_a_draining_front_takes_no_more_text(run: Callable[[Scenario], None]) -> None:
    async def scenario(front: Front, upstream: ScriptedUpstream) -> None:
        await front.told("ready")
        front.models.drain()
        with pytest.raises(NotReadyError):
            front.models.find_text("chat").admit()

    run(scenario)


def test_what_the_engine_may_not_have_yet_waits_and_is_refused_in_time(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(front: Front, upstream: ScriptedUpstream) -> None:
        admission = {"max_in_flight": 1, "max_queue": 1, "queue_seconds": 0.3}
        await front.told("ready", admission=admission)
        model = front.models.find_text("chat")
        await model.take(0, time.monotonic() + 9)  # somebody else's long answer
        waiting = asyncio.create_task(front.ask("POST", "/v1/chat/completions", CHAT))
        await asyncio.sleep(0.05)
        assert not upstream.requests
        model.give(0)
        assert (await waiting)[0] == 200
        await model.take(0, time.monotonic() + 9)
        status, said = await front.ask("POST", "/v1/chat/completions", CHAT)
        assert (status, "it waited 0.3" in said["error"]["message"]) == (503, True)
        text = front.metrics.render().decode()
        assert 'modelops_rejected_total{model="chat",reason="queue_seconds"} 1.0' in text
        assert 'modelops_queue_seconds_count{model="chat"} 4.0' in text
        asked = [r for r in upstream.requests if r.path != "/tokenize"]
        assert len(asked) == 1

    run(scenario)


def test_tokens_are_bounded_as_well(run: Callable[[Scenario], None]) -> None:
    async def scenario(front: Front, upstream: ScriptedUpstream) -> None:
        admission = {"max_tokens_in_flight": 100, "queue_seconds": 0.2}
        await front.told("ready", admission=admission)
        model = front.models.find_text("chat")
        await model.take(60, time.monotonic() + 9)
        few, many = CHAT | {"max_tokens": 10}, CHAT | {"max_tokens": 80}
        assert (await front.ask("POST", "/v1/chat/completions", few))[0] == 200
        status, said = await front.ask("POST", "/v1/chat/completions", many)
        assert (status, "of up to 60 tokens" in said["error"]["message"]) == (503, True)
        model.give(60)
        assert (await front.ask("POST", "/v1/chat/completions", many))[0] == 200

    run(scenario)


OWN = """\
# HELP vllm:kv_cache_usage_perc KV-cache usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="engine's"} 0.25
# HELP vllm:time_to_first_token_seconds Histogram of it.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 3.0
vllm:time_to_first_token_seconds_count{engine="0"} 3.0
vllm:time_to_first_token_seconds_sum{engine="0"} 1.5
# HELP python_info of no interest
# TYPE python_info gauge
python_info{version="3"} 1.0
vllm:bare 7
vllm:torn{
vllm:kv_cache_usage_perc{engine="1",model_name="engine's"} 0.5
vllm:bare 8
vllm:x{a="1"} abc
vllm:x{garbage} 1
vllm:x{a="1"b="2"} 1
vllm:x{a="b} 1
vllm:x{model="another"} 1
# TYPE vllm:x bogus
# TYPE vllm:x 
"""


def test_an_engines_own_metrics_bear_the_models_label(tmp_path: Path) -> None:
    async def says(exchange: Exchange) -> None:
        await exchange.answer(OWN.encode(), 200)

    async def main() -> None:
        with scripted(says, tmp_path / "s"):
            front = Front(tmp_path, tmp_path / "s")
            await front.told("ready")
            status, text = await front.ask("GET", "/metrics")
            assert status == 200
            read = {
                (s.name, *(f"{k}={v}" for k, v in sorted(s.labels.items()))): s.value
                for family in text_string_to_metric_families(text.decode())
                for s in family.samples
            }
            ours = ("model=chat", "replica=0", "version=1")
            used = ("vllm:kv_cache_usage_perc", "engine=0", "model=chat", "model_name=engine's",
                    "replica=0", "version=1")  # fmt: skip
            assert read[used] == 0.25
            assert read["modelops_kv_cache_usage_ratio", *ours] == 0.5  # of its fullest rank
            assert read["vllm:bare", *ours] == 7
            assert read["vllm:time_to_first_token_seconds_sum", "engine=0", *ours] == 1.5
            assert text.count(b"# TYPE vllm:time_to_first_token_seconds histogram") == 1
            assert b"vllm:x" not in text
            assert not any("python_info" in name and "3" in labels for name, *labels in read)
            await front.app.close()
            await front.models.close()

    asyncio.run(asyncio.wait_for(main(), 25))


def test_an_engine_that_does_not_answer_holds_no_scrape_up(tmp_path: Path) -> None:
    async def main() -> None:
        with scripted(silent, tmp_path / "s"):
            front = Front(tmp_path, tmp_path / "s")
            await front.told("ready")
            began = time.monotonic()
            status, text = await front.ask("GET", "/metrics")
            assert (status, b"modelops_engine_ready" in text, b"vllm:" in text) == (
                200,
                True,
                False,
            )
            assert time.monotonic() - began < 5
            await front.app.close()
            await front.models.close()

    asyncio.run(asyncio.wait_for(main(), 25))
