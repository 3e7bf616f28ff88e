"""Chat and embeddings in one gateway: a real vLLM and a real ONNX Runtime, asked by real clients.

One start is shared, by ``test_vllm`` as well; what ends the engine, or the gateway, stands last.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest
from openai import OpenAI
from running_server import Server
from server_processes import (
    begin,
    free_port,
    gets,
    is_gone,
    metric,
    model_of,
    slowdown,
    wait_until,
)
from vllm_processes import (
    MODULE,
    directly,
    engine_of,
    family_of,
    in_engine,
    worker_of,
)

from modelops_servers.keeper.processes import shared_memory

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
# Long enough to be left, or stopped, in the middle: half a minute of tokens.
STORY: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 600, "temperature": 0}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def client(gateway: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def is_ready(server: Server) -> bool:
    return server.get("/v2/models/smollm2/ready").ok


# What clients see


@pytest.mark.parametrize("name", ["smollm2", "chat"])
def test_the_capital_of_france_streamed_and_not(client: OpenAI, name: str) -> None:
    asked: dict[str, Any] = {"model": name, "messages": QUESTION, "temperature": 0}
    answer = client.chat.completions.create(**asked)
    text = answer.choices[0].message.content or ""
    assert "Paris" in text
    assert answer.usage is not None
    pieces = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == text
    assert [p.usage for p in pieces if p.usage] == [answer.usage]


def test_both_kinds_of_model_are_there(client: OpenAI) -> None:
    assert [m.id for m in client.models.list()] == ["minilm", "smollm2"]
    assert client.models.retrieve("smollm2").max_model_len == 2048  # type: ignore[attr-defined]
    vector = client.embeddings.create(model="minilm", input="Where is my parcel?")
    assert len(vector.data[0].embedding) == 384


@pytest.mark.parametrize("stream", [True, False])
def test_not_a_byte_differs_from_what_the_engine_says(gateway: Server, stream: bool) -> None:
    asked = {
        "model": "smollm2", "messages": QUESTION, "temperature": 0, "max_tokens": 12, "n": 2,
        "logprobs": True, "top_logprobs": 2, "seed": 3, "stream": stream,
    }  # fmt: skip
    ours = gateway.post("/v1/chat/completions", json=asked).content
    theirs = directly(gateway, "POST", "/v1/chat/completions", asked)
    # Each request has an id and a time of its own; two choices' chunks may change places.
    known = [
        sorted(re.sub(rb'chatcmpl-[\w-]+|"created":\d+', b"", said).split(b"\n\n"))
        for said in (ours, theirs)
    ]
    assert known[0] == known[1]


def test_what_the_engine_has_passes_through(gateway: Server, client: OpenAI) -> None:
    counting: dict[str, Any] = {"model": "chat", "prompt": "1 2 3 4 5 6 7", "temperature": 0}
    assert client.completions.create(**counting, stop=" 9").choices[0].text == " 8"
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    shaped = client.chat.completions.create(
        model="chat",
        messages=QUESTION,
        temperature=0,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": True},
        },
    )
    assert json.loads(shaped.choices[0].message.content or "") == {"city": "Paris"}
    called = client.chat.completions.create(
        model="chat",
        messages=QUESTION,
        temperature=0,
        tools=[{"type": "function", "function": {"name": "tell", "parameters": schema}}],
        tool_choice={"type": "function", "function": {"name": "tell"}},
    )
    (call,) = called.choices[0].message.tool_calls or []
    assert (call.type, call.function.name) == ("function", "tell")  # type: ignore[union-attr]
    response = client.responses.create(model="chat", input=QUESTION[0]["content"], temperature=0)
    assert "Paris" in response.output_text
    found = gateway.post("/tokenize", json={"model": "chat", "prompt": "The capital"}).json()
    back = gateway.post("/detokenize", json={"model": "chat", "tokens": found["tokens"]}).json()
    assert back["prompt"].endswith("The capital")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt": "word " * 4000}, "2048"),
        ({"max_tokens": 10**9}, "max_tokens"),
        ({"n": 10**9}, "n is at most"),
        ({"temperature": -7}, "temperature"),
    ],
)
def test_what_cannot_be_is_400_and_disturbs_nobody(
    client: OpenAI, fields: dict[str, Any], words: str
) -> None:
    asked: dict[str, Any] = {"model": "smollm2", "prompt": "a", "max_tokens": 4}
    with ThreadPoolExecutor(4) as pool:
        small = [pool.submit(client.completions.create, **asked) for _ in range(4)]
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(**{**asked, **fields})
        assert words in caught.value.message
        assert all(s.result().usage.completion_tokens == 4 for s in small)


def test_tokens_are_counted_once_whatever_ends_a_request(gateway: Server, client: OpenAI) -> None:
    def counted() -> tuple[float, float]:
        prompt, completion = (
            metric(gateway, "modelops_tokens_total", model="smollm2", kind=kind)
            for kind in ("prompt", "completion")
        )
        return prompt, completion

    asked: dict[str, Any] = {"model": "smollm2", "prompt": "1 2 3 4", "max_tokens": 6}
    began = counted()
    usage = client.completions.create(**asked).usage
    assert usage is not None
    list(client.completions.create(**asked, stream=True))
    list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    expected = (began[0] + 3 * usage.prompt_tokens, began[1] + 3 * usage.completion_tokens)
    wait_until(lambda: counted() == expected)
    stream = client.completions.create(**{**asked, **STORY}, stream=True)
    first = [next(stream).choices[0].text for _ in range(3)]
    assert all(first)
    stream.close()
    wait_until(lambda: counted()[0] == expected[0] + 4)  # "Once upon a time"
    wait_until(lambda: in_engine(gateway) == 0)
    assert 3 <= counted()[1] - expected[1] < 60


def test_who_leaves_ends_the_generation_within_a_second(gateway: Server, client: OpenAI) -> None:
    stream = client.completions.create(model="smollm2", **STORY, stream=True)
    next(stream)
    assert in_engine(gateway) == 1
    stream.close()
    wait_until(lambda: in_engine(gateway) == 0, seconds=slowdown())

    link = socket.create_connection(("127.0.0.1", gateway.port))
    body = json.dumps({"model": "smollm2", **STORY}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(body)
    link.sendall(head + b"Content-Type: application/json\r\n\r\n" + body)
    wait_until(lambda: in_engine(gateway) == 1)
    link.close()
    wait_until(lambda: in_engine(gateway) == 0, seconds=slowdown())


def test_metrics_of_gateway_and_engine_bear_the_models_label(gateway: Server) -> None:
    ours = {"model": "smollm2"}
    assert metric(gateway, "modelops_time_to_first_token_seconds_count", **ours) > 0
    assert metric(gateway, "modelops_inter_token_latency_seconds_count", **ours) > 0
    assert metric(gateway, "modelops_engine_ready", **ours) == 1
    assert metric(gateway, "modelops_kv_cache_bytes_per_value", **ours) == pytest.approx(2, 0.02)
    assert 0 <= metric(gateway, "modelops_kv_cache_usage_ratio", **ours) < 1
    text = gateway.get("/metrics").text
    assert re.search(r'^vllm:generation_tokens_total\{model="smollm2".* [1-9]', text, re.M)


def test_a_front_that_dies_finds_the_engine_again(gateway: Server, client: OpenAI) -> None:
    before = engine_of(gateway).pid
    gateway.front.kill()
    wait_until(lambda: gateway.get("/livez").ok and is_ready(gateway))
    assert engine_of(gateway).pid == before
    asked = client.completions.create(model="chat", prompt="The capital of France is", max_tokens=1)
    assert asked.usage is not None


# From here on the engine is harmed; nobody else notices.


def test_a_stopped_worker_is_not_ready_and_comes_back(gateway: Server) -> None:
    worker = worker_of(gateway)
    with gets(gateway, "/v2/models/minilm/ready") as embeddings:
        worker.suspend()
        try:
            wait_until(lambda: not is_ready(gateway), seconds=8)
            said = model_of(gateway, "smollm2")
            assert said["state"] == "stuck"
            assert said["why"]
            assert gateway.get("/readyz").status_code == 503
            refused = gateway.post("/v1/completions", json={"model": "chat", **STORY})
            assert refused.status_code == 503
            assert "retry-after" in refused.headers
        finally:
            worker.resume()
        wait_until(lambda: is_ready(gateway))
    assert not embeddings.failed


def test_a_killed_worker_is_503_within_a_second_and_started_again(
    gateway: Server, client: OpenAI
) -> None:
    stream = client.completions.create(model="smollm2", **STORY, stream=True)
    next(stream)
    before = engine_of(gateway)
    shared = shared_memory([p.pid for p in family_of(gateway)])
    assert shared
    with gets(gateway, "/v2/models/minilm/ready") as embeddings:
        worker_of(gateway).kill()
        at = time.monotonic()
        with pytest.raises(openai.APIError):
            list(stream)
        assert time.monotonic() - at < 10
        wait_until(lambda: not is_ready(gateway), seconds=2 * slowdown())
        refused = gateway.post("/v1/completions", json={"model": "chat", **STORY})
        assert refused.status_code == 503
        assert gateway.get("/readyz").status_code == 503
        wait_until(lambda: is_gone(before))
        wait_until(lambda: is_ready(gateway), seconds=300)
    assert not embeddings.failed
    assert metric(gateway, "modelops_engine_restarts_total", model="smollm2") == 1
    # A killed one cannot clear up behind it: a quarter of a GiB each time.
    assert not [name for name in shared if (Path("/dev/shm") / name).exists()]
    answer = client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=0)
    assert "Paris" in (answer.choices[0].message.content or "")


def test_sigterm_lets_streams_finish(gateway: Server, client: OpenAI) -> None:
    asked: dict[str, Any] = {**STORY, "max_tokens": 60}
    stream = client.completions.create(model="smollm2", **asked, stream=True)
    next(stream)
    family = psutil.Process(gateway.process.pid).children(recursive=True)
    ended: list[int] = []
    stopping = threading.Thread(target=lambda: ended.append(gateway.stop()))
    stopping.start()
    rest = list(stream)
    assert len(rest) == 59
    assert rest[-1].choices[0].finish_reason == "length"
    stopping.join(60)
    assert ended == [0]
    wait_until(lambda: all(is_gone(p) for p in family), seconds=5)


@pytest.mark.parametrize("dies", ["keeper", "guardian", "supervisor"])
def test_nothing_survives_whoever_dies_while_it_starts(chat_folder: Path, dies: str) -> None:
    """That of one which is ready: ``test_vllm_at_once``."""
    config = str(chat_folder / "examples/embed-and-chat.yaml")
    process = begin("--config", config, port=free_port())
    try:
        supervisor = psutil.Process(process.pid)

        def engine() -> list[psutil.Process]:
            found = supervisor.children(recursive=True)
            return [p for p in found if MODULE in p.cmdline()]

        (started,) = wait_until(engine, seconds=300)
        chain = started.parents()
        assert chain[2] == supervisor
        chain[("keeper", "guardian", "supervisor").index(dies)].kill()
        wait_until(lambda: is_gone(started), seconds=5)
        # A required model that cannot be loaded at first ends the whole.
        _, said = process.communicate(timeout=60)
        assert process.returncode == (-signal.SIGKILL if dies == "supervisor" else 1), said
    finally:
        process.kill()
        process.communicate()
