"""Where the microseconds of one request go: the tiny MLP, JSON, engine inside the front.

Every stage is run alone on the same request, many times in a row, and its best time counts, so
that a busy machine disturbs little. The HTTP stages feed the server's own protocol class with the
bytes of a request and a transport that keeps nothing: sockets and the kernel are not in them. What
the gateway itself costs is seen with a replica that answers at once; what the queue and the thread
cost is the rest of a whole request. That rest depends on how the machine wakes a sleeping thread.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from gateway import report
from gateway.artifacts import Model, from_recipe
from gateway.bodies import json_body, rows
from gateway.environments import versions
from gateway.servers.session import open_session

from modelops.artifact import open_artifact
from modelops.config import LimitsConfig, ModelConfig
from modelops_servers.check import InputCheck
from modelops_servers.engines.onnxruntime_engine import OnnxRuntimeEngine
from modelops_servers.front.auth import Keys
from modelops_servers.front.gateway import Gateway
from modelops_servers.front.http_server import HttpServer
from modelops_servers.front.metrics import Metrics
from modelops_servers.front.models import Models
from modelops_servers.front.oip_codec import decode_request, encode_response
from modelops_servers.front.openai.endpoint import TextEndpoint
from modelops_servers.front.replica import Answer

_PATH = "/v2/models/mlp/infer"
_REPEATS = 25
Action = Callable[[], Awaitable[Any]]


class Discarding(asyncio.Transport):
    """Takes an answer's bytes and keeps nothing."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Drop it."""

    def is_closing(self) -> bool:
        """Never."""
        return False

    def pause_reading(self) -> None:
        """Nothing is read."""

    def resume_reading(self) -> None:
        """Nothing is read."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """A loopback address for whatever is asked."""
        return ("127.0.0.1", 1) if name in ("sockname", "peername") else default


class Immediate:
    """A replica whose answer is there already."""

    id, connected, in_flight = "immediate", True, 0

    def __init__(self, outputs: dict[str, Any]) -> None:
        self._outputs = outputs
        self.future: asyncio.Future[Answer]

    def submit(self, *_arguments: Any) -> Immediate:
        """Answer; it is its own ticket."""
        self.future = asyncio.get_running_loop().create_future()
        self.future.set_result(Answer(self._outputs))
        return self


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=400, help="the best of so many bursts [400]")
    options = parser.parse_args()
    where = report.machine()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(_measure(from_recipe("mlp"), options.rounds))
    whole = found["whole request"]
    parts = {k: v for k, v in found.items() if k not in ("whole request", "HTTP by uvicorn")}
    table = report.table_of(f"one request, µs ({where})", "what", "µs", "share")
    for name, took in parts.items():
        table.add_row(name, f"{took:.1f}", f"{took / whole:.0%}")
    table.add_row("whole request, without sockets", f"{whole:.1f}", "100%")
    table.add_row("(HTTP by uvicorn's own protocol)", f"{found['HTTP by uvicorn']:.1f}", "")
    report.console.print(table)
    shown = versions(sys.executable, "modelops")
    path = report.save("stages", {"machine": where, "versions": shown, "microseconds": found})
    print(f"written to {path}", file=sys.stderr)


async def _measure(model: Model, rounds: int) -> dict[str, float]:
    """Microseconds of each stage."""
    artifact = open_artifact(model.artifact / "1")
    signature = artifact.manifest.signature
    body = json_body(rows(1, 16)).data
    request = decode_request(body, signature)
    engine = OnnxRuntimeEngine(artifact, provider="cpu", threads=2)
    engine.start()
    outputs = engine.infer(request.tensors, None)
    session = open_session(str(model.onnx), 2)
    names, feed = list(outputs), dict(request.tensors)
    check = InputCheck(signature)
    constant = await _through(HttpServer(_constant), body)
    plain = uvicorn.Config(_constant, http="httptools", ws="none", lifespan="off")
    by_uvicorn = await _through(uvicorn.Server(plain), body)
    metrics = Metrics()
    models = Models(LimitsConfig(), metrics, 1, lambda _said: None)
    await models.apply(_topology(model.artifact / "1"))
    version = models.find("mlp")
    while not version.replicas:
        await asyncio.sleep(0.01)
        await models.apply(_topology(model.artifact / "1"))
    text = TextEndpoint(models.find_text, models.limits, models.json)
    gateway = Gateway(models, metrics, Keys(()), _constant, text)
    whole = await _through(HttpServer(gateway), body)

    def calls(call: Callable[[], Any]) -> float:
        return min(_burst(call) for _ in range(rounds))

    async def awaits(action: Action) -> float:
        return min([await _async_burst(action) for _ in range(rounds)])

    http = await awaits(constant)
    decode = calls(lambda: decode_request(body, signature))
    checked = calls(lambda: check(request.tensors))
    run = calls(lambda: session.run(names, feed))
    infer = calls(lambda: engine.infer(request.tensors, None))
    encode = calls(lambda: encode_response("mlp", "1", request, outputs, signature))
    observed = calls(lambda: metrics.request("mlp", _PATH, 200, 0.001))
    request_whole = await awaits(whole)
    version.replicas = [Immediate(outputs)]  # type: ignore[list-item]
    without_engine = await awaits(whole)
    found = {
        "HTTP: parse, cycle, write": http,
        "gateway: route, id, keys, admission, client watch": without_engine
        - (http + decode + checked + encode + observed),
        "decode JSON into tensors": decode,
        "check against the signature": checked,
        "ONNX Runtime": run,
        "engine around it: its own check, names": infer - run,
        "queue, batcher, engine's thread and back": request_whole - without_engine - infer,
        "encode the answer": encode,
        "metrics of the request": observed,
        "whole request": request_whole,
        "HTTP by uvicorn": await awaits(by_uvicorn),
    }
    await models.close()
    return found


def _burst(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    for _ in range(_REPEATS):
        call()
    return (time.perf_counter() - began) / _REPEATS * 1e6


async def _async_burst(action: Action) -> float:
    began = time.perf_counter()
    for _ in range(_REPEATS):
        await action()
    return (time.perf_counter() - began) / _REPEATS * 1e6


async def _constant(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - ASGI
    while (await receive()).get("more_body", False):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


async def _through(server: uvicorn.Server, body: bytes) -> Action:
    """Return what sends one request through the protocol that this server speaks."""
    loop = asyncio.get_running_loop()
    inner: Any = server.config.app
    answered: asyncio.Future[None] = loop.create_future()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await inner(scope, receive, send)
        answered.set_result(None)

    server.config.app = app
    server.config.load()
    protocol_class: Any = server.config.http_protocol_class
    protocol = protocol_class(
        config=server.config, server_state=server.server_state, app_state={}, _loop=loop
    )
    protocol.connection_made(Discarding())
    head = f"POST {_PATH} HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def once() -> None:
        nonlocal answered
        answered = loop.create_future()
        protocol.data_received(request)
        await answered

    return once


def _topology(path: Path) -> list[dict[str, Any]]:
    config = ModelConfig(name="mlp", source=path, engine="onnxruntime", threads=2, inline=True)
    version = {
        "version": "1",
        "path": str(path),
        "config": config.model_dump(mode="json"),
        "replicas": [{"id": "mlp/1/0", "socket": None}],
    }
    model = {
        "name": "mlp",
        "required": True,
        "default": "1",
        "unavailable": "",
        "since": 0.0,
        "aliases": [],
    }
    return [{**model, "versions": [version]}]


if __name__ == "__main__":
    main()
