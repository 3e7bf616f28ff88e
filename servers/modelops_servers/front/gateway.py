"""The gateway's outermost ASGI layer: keys, request ids, hot routes, errors, metrics.

Hot routes never reach the framework; everything else does.
"""

from __future__ import annotations

import itertools
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import structlog

from modelops_servers.front.auth import Keys, UnauthorizedError
from modelops_servers.front.embeddings import EmbeddingsEndpoint
from modelops_servers.front.exchange import Call, Outlet, Reply, Send
from modelops_servers.front.limits import ClientLeftError, HeaderMap, Receive
from modelops_servers.front.metrics import OTHER, Metrics
from modelops_servers.front.models import Models
from modelops_servers.front.oip import InferEndpoint
from modelops_servers.front.openai.endpoint import TextEndpoint
from modelops_servers.front.openai.routes import TEXT_ROUTES
from modelops_servers.front.status import MethodError, answer, form_of

Scope = MutableMapping[str, Any]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

INFER_ROUTE = "/v2/models/{model}/infer"
VERSION_INFER_ROUTE = "/v2/models/{model}/versions/{version}/infer"
EMBEDDINGS_ROUTE = "/v1/embeddings"


_PREFIX = "/v2/models/"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}\Z")
# Larger parts are sent as they are, without a copy.
_JOINED_BYTES = 64 * 1024
_LEFT = 499  # only in the metrics: the client never sees it

_log = structlog.stdlib.get_logger(__name__)


class Gateway:
    """One ASGI application over the served models."""

    def __init__(
        self,
        models: Models,
        metrics: Metrics,
        keys: Keys,
        admin: ASGIApp,
        text: TextEndpoint,
    ) -> None:
        self._text = text
        self._metrics = metrics
        self._keys = keys
        self._admin = admin
        self._infer = InferEndpoint(models)
        self._embeddings = EmbeddingsEndpoint(models)
        self._seconds = models.limits.request_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] != "http":
            await self._admin(scope, receive, send)
            return
        began = time.perf_counter()
        headers: HeaderMap = dict(scope["headers"])
        request_id = _request_id(headers.get(b"x-request-id"))
        path: str = scope["path"]
        call = Call(receive, headers, self._seconds)
        route = OTHER
        try:
            self._keys.check(path, scope["headers"])
            asked = _infer_target(path)
            if asked is not None or path == EMBEDDINGS_ROUTE:
                if asked is None:
                    route = EMBEDDINGS_ROUTE
                else:
                    route = INFER_ROUTE if asked[1] is None else VERSION_INFER_ROUTE
                if scope["method"] != "POST":
                    raise MethodError(scope["method"], ["POST"])
                if asked is None:
                    reply = await self._embeddings(call)
                else:
                    reply = await self._infer(call, *asked)
                status = reply.status
                await _send(send, reply, request_id)
            elif path in TEXT_ROUTES:
                route = path
                if scope["method"] != "POST":
                    raise MethodError(scope["method"], ["POST"])
                said = await self._text(call, path, Outlet(send, request_id))
                status = said.status
                if isinstance(said, Reply):
                    await _send(send, said, request_id)
            else:
                route, status = await self._framework(scope, receive, send, request_id)
        except ClientLeftError:
            status = _LEFT
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            if isinstance(error, UnauthorizedError):
                self._metrics.rejected("unauthorized")
            failure = answer(error, form_of(path), request_id=request_id.decode())
            status = failure.status
            if status >= 500:
                _log.warning(
                    "request failed",
                    request_id=request_id.decode(),
                    path=path[:256],
                    status=status,
                    error=str(error)[:1024],
                )
            await _send(send, Reply([failure.body], failure.headers, status), request_id)
        seconds = time.perf_counter() - began
        self._metrics.request(call.model, route, status, seconds, call.version)

    async def close(self) -> None:
        """Give up what is still to be counted of requests that were answered."""
        await self._text.close()

    async def _framework(
        self, scope: Scope, receive: Receive, send: Send, request_id: bytes
    ) -> tuple[str, int]:
        """Let the framework answer; return the route's template and the status."""
        status = 0

        async def tagged(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        # A HEAD is a GET whose body the server leaves out.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else {**scope}
        try:
            await self._admin(inner, receive, tagged)
        except Exception:
            if not status:
                raise
            _log.exception("failed after the answer began", request_id=request_id.decode())
        return getattr(inner.get("route"), "path", OTHER), status


async def _send(send: Send, reply: Reply, request_id: bytes) -> None:
    length = sum(map(len, reply.parts))
    headers = [
        *(h for h in reply.headers if h[0] != b"content-length"),
        (b"content-length", b"%d" % length),
        (b"x-request-id", request_id),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    parts = reply.parts
    if length <= _JOINED_BYTES:
        parts = [b"".join(parts)]
    for number, part in enumerate(parts, start=1):
        more = number < len(parts)
        await send({"type": "http.response.body", "body": part, "more_body": more})


def _infer_target(path: str) -> tuple[str, str | None] | None:
    """Return the model and version that an infer route names, served or not; else None."""
    if not (path.startswith(_PREFIX) and path.endswith("/infer")):
        return None
    match path[len(_PREFIX) :].split("/"):
        case [name, "infer"]:
            return name, None
        case [name, "versions", version, "infer"]:
            return name, version
    return None


_started = secrets.token_hex(8).encode()
_numbers = itertools.count()


def _request_id(given: bytes | None) -> bytes:
    """Echo a well-formed id; anything else is replaced by one that no other request has."""
    if given is not None and _REQUEST_ID.match(given):
        return given
    return b"%s%016x" % (_started, next(_numbers))
