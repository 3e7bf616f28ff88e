"""Bounds on what a request may send: size on the wire, size decompressed, time to arrive."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from modelops.errors import ModelopsError, RequestError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
HeaderMap = dict[bytes, bytes]

# A client that is told 413 while it still sends sees a reset instead; so a little more is read
# and thrown away before the answer.
_DISCARD_BYTES = 64 * 2**20
_DISCARD_SECONDS = 2.0
_WBITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
_INFLATE_STEP = 2**18


class BodyTooLargeError(RequestError):
    """The body, or the JSON in it, is larger than allowed."""


class SlowBodyError(RequestError):
    """The body did not arrive in time."""


class ClientLeftError(ModelopsError):
    """The client closed the connection before its answer; nobody reads one."""


async def read_body(receive: Receive, headers: HeaderMap, limit: int, seconds: float) -> bytes:
    """Return the whole body, decompressed, of at most ``limit`` bytes either way.

    Raises:
        BodyTooLargeError: it is larger, whether it says so first or not.
        SlowBodyError: it was not there after ``seconds``.
        RequestError: its Content-Length or Content-Encoding is off.
        ClientLeftError: the client left in the middle.
    """
    declared = _declared(headers)
    if declared > limit:
        # "Expect: 100-continue" waits for leave to send: it gets the answer instead.
        if b"expect" not in headers:
            await _discard(receive)
        raise _too_large(limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeftError("the client left")
    if message.get("more_body", False):
        try:
            async with asyncio.timeout(seconds):
                body = await _rest(receive, bytes(message.get("body", b"")), limit)
        except TimeoutError:
            raise SlowBodyError(f"the body did not arrive within {seconds:g} s") from None
    else:
        body = message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
    encoding = headers.get(b"content-encoding")
    if encoding is None or encoding.lower() == b"identity":
        return bytes(body)
    return await asyncio.to_thread(inflate, body, encoding.lower(), limit)


def inflate(body: bytes, encoding: bytes, limit: int) -> bytes:
    """Decompress gzip or deflate, never beyond ``limit`` bytes.

    Raises:
        BodyTooLargeError: it holds more.
        RequestError: it is damaged, cut short, or of another encoding.
    """
    if encoding not in _WBITS:
        raise RequestError(
            f"Content-Encoding {encoding[:32].decode('latin-1')!r} is not supported; "
            "gzip and deflate are"
        )
    inflator = zlib.decompressobj(_WBITS[encoding])
    parts: list[bytes] = []
    size = 0
    rest = body
    try:
        while rest and not inflator.eof:
            part = inflator.decompress(rest, _INFLATE_STEP)
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
            rest = inflator.unconsumed_tail
            if not part and not rest:
                break
    except zlib.error as error:
        raise RequestError(f"the body is no {encoding.decode()}: {error}") from error
    if not inflator.eof or inflator.unused_data:
        raise RequestError(f"the {encoding.decode()} body is cut short or has bytes after its end")
    return b"".join(parts)


def check_json_size(size: int, limit: int) -> None:
    """Refuse JSON that is too large to parse on the event loop.

    Raises:
        BodyTooLargeError: it is larger than ``limit`` bytes.
    """
    if size > limit:
        raise BodyTooLargeError(
            f"JSON of {size} bytes is over the limit of {limit}; send large tensors as binary data"
        )


def _declared(headers: HeaderMap) -> int:
    value = headers.get(b"content-length")
    if value is None:
        return 0
    if not value.isdigit() or len(value) > 18:
        raise RequestError("Content-Length is not a number of bytes")
    return int(value)


async def _rest(receive: Receive, first: bytes, limit: int) -> bytes:
    parts = [first]
    size = len(first)
    while True:
        if size > limit:
            parts.clear()
            await _discard(receive)
            raise _too_large(limit)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError("the client left in the middle of its body")
        part = message.get("body", b"")
        size += len(part)
        parts.append(part)
        if not message.get("more_body", False):
            break
    if size > limit:
        raise _too_large(limit)
    return b"".join(parts)


async def _discard(receive: Receive) -> None:
    end = time.monotonic() + _DISCARD_SECONDS
    size = 0
    try:
        async with asyncio.timeout(_DISCARD_SECONDS):
            while size < _DISCARD_BYTES and time.monotonic() < end:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))
    except TimeoutError:
        return


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is over the limit of {limit} bytes")
