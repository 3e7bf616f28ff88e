"""An engine's error answers, and the event that says in a stream that it failed."""

from __future__ import annotations

from typing import Any

import orjson

from modelops.errors import DeadlineError, EngineError, ModelopsError, NotReadyError, RequestError
from modelops_servers.front.exchange import Reply
from modelops_servers.front.limits import BodyTooLargeError
from modelops_servers.front.openai.headers import RawHeaders, to_client
from modelops_servers.front.status import RETRY_AFTER_SECONDS, NoRouteError, answer

_SHOWN = 512
_RETRIED = (429, 503)
# The protocols that name their events.
_RESPONSES = "/v1/responses"
_NAMED = (_RESPONSES, "/v1/messages")
# An engine's own failures; 500 is for this gateway's.
_ENGINE_FAILED = (500, 502)
# It is the gateway that the engine does not let in: the client can do nothing about it.
_OUR_KEY = (401, 403, 407)


def failed_answer(status: int, headers: RawHeaders, body: bytes) -> Reply:
    """Return what a client gets for an engine's answer of 400 and above.

    Where the body is in OpenAI's form it is the client's, byte for byte, with its status.

    Raises:
        ModelopsError: it is not; this says the same in our form.
    """
    if status in _OUR_KEY:
        raise EngineError(f"the engine does not let this gateway in (it answered {status})")
    if not _in_form(body):
        raise _error(status, body)
    told = to_client(headers)
    if status in _RETRIED and not any(name == b"retry-after" for name, _ in told):
        told.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
    return Reply([body], told, 502 if status in _ENGINE_FAILED else status)


def failure_event(
    error: BaseException, path: str, request_id: str, *, apart: bool
) -> tuple[int, bytes]:
    """Return the status that ``error`` would have had, and the event that says it in a stream.

    ``apart`` where another event is not whole, which this must not be taken for a part of.
    """
    failure = answer(error, "openai", request_id=request_id)
    said: dict[str, Any] = orjson.loads(failure.body)
    said["error"]["code"] = said["error"]["code"] or failure.status
    if path in _NAMED:
        detail = said["error"] if path == _RESPONSES else {}
        said = {**detail, "type": "error", **said}
        event = b"event: error\ndata: %s\n\n" % orjson.dumps(said)
    else:
        event = b"data: %s\n\n" % orjson.dumps(said)
    return failure.status, b"\n\n" + event if apart else event


def _in_form(body: bytes) -> bool:
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    error = said.get("error") if isinstance(said, dict) else None
    return isinstance(error, dict) and isinstance(error.get("message"), str)


def _error(status: int, body: bytes) -> ModelopsError:
    text = _text(body)
    if status == 404:
        return NoRouteError(f"the model's engine has no such route: {text}")
    if status == 413:
        return BodyTooLargeError(f"the engine takes no body of this size: {text}")
    if status < 500 and status != 429:
        return RequestError(f"the engine refused the request ({status}): {text}")
    if status in _RETRIED:
        return NotReadyError(f"the engine is not ready ({status}): {text}")
    if status == 504:
        return DeadlineError(f"the engine was too slow: {text}")
    return EngineError(f"the engine failed ({status}): {text}")


def _text(body: bytes) -> str:
    """Return what a body in no known form says, as much of it as one reads."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = body[: 4 * _SHOWN].decode("utf-8", "replace")
    if isinstance(said, dict):
        said = next((said[k] for k in ("detail", "message", "error") if k in said), said)
    text = said if isinstance(said, str) else orjson.dumps(said).decode()
    if text.lstrip().startswith("<"):
        return "it sent a page, not an answer"
    return text[:_SHOWN] or "it said nothing"
