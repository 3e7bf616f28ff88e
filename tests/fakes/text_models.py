"""Text models for the token path, without a supervisor: a scripted upstream behind a gateway."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from raw_http import Reader, Running, running
from scripted_upstream import Script, ScriptedUpstream, scripted

from modelops.config import LimitsConfig
from modelops.errors import ModelNotFoundError
from modelops_servers.front.auth import Keys
from modelops_servers.front.gateway import Gateway
from modelops_servers.front.metrics import Metrics, TextMetrics
from modelops_servers.front.models import Models
from modelops_servers.front.openai.endpoint import TextEndpoint
from modelops_servers.front.openai.settings import UpstreamSettings
from modelops_servers.front.openai.upstream import Upstream
from modelops_servers.front.overload import QueueFullError

CHAT = "/v1/chat/completions"


@dataclass
class ServedText:
    """A ``TextModel`` over one upstream."""

    upstream: Upstream
    metrics: TextMetrics
    name: str = "chat"
    engine_name: str = "m"
    context: int | None = 4096
    tokenizes: bool = True
    most: int = 1000
    admitted: int = 0
    asked: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)

    def admit(self) -> None:
        if self.admitted >= self.most:
            raise QueueFullError("all seats are taken", retry_after=7)
        self.admitted += 1

    def leave(self) -> None:
        self.admitted -= 1

    async def take(self, tokens: int, deadline: float) -> None:
        self.asked.append(tokens)

    def give(self, tokens: int) -> None:
        self.left.append(tokens)

    def answered(self, began: float) -> None:
        assert began <= time.monotonic()

    def engine(self) -> Upstream:
        return self.upstream


@dataclass
class Stage:
    """A gateway over a scripted upstream."""

    server: Running
    upstream: ScriptedUpstream
    model: ServedText
    prometheus: Metrics
    models: Models

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.ports[0]}"

    def value(self, name: str, **labels: str) -> float:
        """One sample of the metrics; 0 where there is none yet."""
        return self.prometheus.registry.get_sample_value(name, {"model": "chat", **labels}) or 0.0

    def tokens(self, kind: str) -> float:
        return self.value("modelops_tokens_total", kind=kind)

    def status_count(self, status: int, route: str = CHAT) -> float:
        return self.value(
            "modelops_request_duration_seconds_count", route=route, status=str(status)
        )


@contextlib.contextmanager
def stage(
    script: Script,
    *,
    socket: Path | None = None,
    keys: tuple[str, ...] = (),
    limits: dict[str, Any] | None = None,
    settings: UpstreamSettings | None = None,
    **model: Any,
) -> Iterator[Stage]:
    """Run a gateway whose model ``chat`` (alias ``alias``) follows ``script``."""
    with scripted(script, socket) as upstream:
        metrics = Metrics()
        known = LimitsConfig(**(limits or {}))
        models = Models(known, metrics, 1, lambda _: None)
        engine = Upstream(
            "http://engine" if socket else upstream.url, socket=socket, settings=settings
        )
        served = ServedText(engine, metrics.text("chat"), **model)

        def find(name: str) -> ServedText:
            if name not in ("chat", "alias"):
                raise ModelNotFoundError(f"model {name[:64]!r} is not served here; served: chat")
            return served

        endpoint = TextEndpoint(find, known, models.json)

        async def nothing(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        gateway = Gateway(
            models, metrics, Keys([SecretStr(k) for k in keys]), nothing, text=endpoint
        )
        closing = Closing(gateway, endpoint, engine, models)
        with running(closing, header_seconds=10) as server:
            try:
                yield Stage(server, upstream, served, metrics, models)
            finally:
                closing.close(server)


class Closing:
    """The gateway, and a way to close what it uses on the loop that it runs on."""

    def __init__(
        self, gateway: Gateway, endpoint: TextEndpoint, engine: Upstream, models: Models
    ) -> None:
        self._gateway = gateway
        self._parts = (engine, endpoint, models)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/close":
            await self._gateway(scope, receive, send)
            return
        for part in self._parts:
            await part.close()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def close(self, server: Running) -> None:
        with server.connect() as link:
            link.sendall(b"GET /close HTTP/1.1\r\nHost: x\r\n\r\n")
            assert link.recv(100).startswith(b"HTTP/1.1 204")


def body(**fields: Any) -> bytes:
    """A chat's request."""
    whole = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], **fields}
    return json.dumps(whole).encode()


def request(data: bytes, path: str = CHAT, *lines: bytes) -> bytes:
    """``data`` as it goes over the wire, with further header lines."""
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % (path.encode(), len(data))
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + data


def ask(on: Stage, data: bytes, path: str = CHAT, *lines: bytes) -> tuple[int, Any, bytes]:
    """One request on a connection of its own; its status, headers and body."""
    with on.server.connect() as link:
        link.sendall(request(data, path, *lines))
        return Reader(link).answer()


def error_of(answer: tuple[int, Any, bytes], status: int) -> dict[str, Any]:
    """The answer is an error in OpenAI's form."""
    assert answer[0] == status, answer
    assert answer[1]["content-type"] == "application/json"
    error: dict[str, Any] = json.loads(answer[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error
