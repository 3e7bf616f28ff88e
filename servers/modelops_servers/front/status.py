"""Errors become HTTP answers here and nowhere else, in the two forms that clients know."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from modelops.errors import (
    DeadlineError,
    EngineError,
    ModelNotFoundError,
    ModelopsError,
    NotReadyError,
    OverloadedError,
    RequestError,
)
from modelops_servers.front.auth import UnauthorizedError
from modelops_servers.front.limits import BodyTooLargeError, SlowBodyError
from modelops_servers.front.overload import QueueFullError

_log = logging.getLogger(__name__)

Form = Literal["oip", "openai"]
Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
_OPENAI = ("/v1/", "/tokenize", "/detokenize")
_INTERNAL = "internal error; the server's log has it under this request's X-Request-Id"


class FieldError(RequestError):
    """One field of an OpenAI request is off; clients read ``param`` and ``code``."""

    def __init__(self, message: str, *, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class NoRouteError(RequestError):
    """No route has this path."""


class MethodError(RequestError):
    """The route does not take this method; ``allowed`` are those it takes."""

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"this route takes {', '.join(allowed)}, not {method[:16]!r}")
        self.allowed = allowed


# The first match counts, so the narrow stand before the wide.
_STATUS: tuple[tuple[type[ModelopsError], int, str], ...] = (
    (UnauthorizedError, 401, "authentication_error"),
    (ModelNotFoundError, 404, "invalid_request_error"),
    (NoRouteError, 404, "invalid_request_error"),
    (MethodError, 405, "invalid_request_error"),
    (SlowBodyError, 408, "invalid_request_error"),
    (BodyTooLargeError, 413, "invalid_request_error"),
    (RequestError, 400, "invalid_request_error"),
    (OverloadedError, 503, "overloaded_error"),
    (NotReadyError, 503, "not_ready_error"),
    (DeadlineError, 504, "timeout_error"),
    (EngineError, 502, "engine_error"),
)
RETRY_AFTER_SECONDS = 5
"""When to come back to what is not ready, where nobody knows better."""


@dataclass(frozen=True)
class ErrorAnswer:
    """One finished error response."""

    status: int
    headers: Headers
    body: bytes


def answer(error: BaseException, form: Form, *, request_id: str = "") -> ErrorAnswer:
    """Return the response for ``error``; one that is not in the table is a bug, logged, 500."""
    status, kind = next(
        ((s, k) for caught, s, k in _STATUS if isinstance(error, caught)), (500, "internal_error")
    )
    if status == 500:
        _log.error("unforeseen error", exc_info=error, extra={"request_id": request_id})
        message = _INTERNAL
    else:
        assert isinstance(error, ModelopsError)  # noqa: S101 - the table holds nothing else
        message = error.message
    headers: Headers = [JSON]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodError):
        headers.append((b"allow", ", ".join(error.allowed).encode()))
    if status == 503:
        wait = error.retry_after if isinstance(error, QueueFullError) else RETRY_AFTER_SECONDS
        headers.append((b"retry-after", str(wait).encode()))
    if status in (408, 413):
        headers.append((b"connection", b"close"))
    param, code = _param_and_code(error)
    body = _body(message, form, kind, param, code)
    headers.append((b"content-length", str(len(body)).encode()))
    return ErrorAnswer(status, headers, body)


def form_of(path: str) -> Form:
    """Return the form in which a client of ``path`` expects its errors."""
    return "openai" if path.startswith(_OPENAI) else "oip"


def _param_and_code(error: BaseException) -> tuple[str | None, str | None]:
    if isinstance(error, FieldError):
        return error.param, error.code
    if isinstance(error, ModelNotFoundError):
        return "model", "model_not_found"
    if isinstance(error, UnauthorizedError):
        return None, "invalid_api_key"
    return None, None


def _body(message: str, form: Form, kind: str, param: str | None, code: str | None) -> bytes:
    # A message quotes what the client sent, which may hold lone surrogates.
    text = message.encode("utf-8", "backslashreplace").decode()
    if form == "oip":
        return orjson.dumps({"error": text})
    return orjson.dumps({"error": {"message": text, "type": kind, "param": param, "code": code}})
