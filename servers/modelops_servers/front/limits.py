"""Bounds on what a request may send: size on the wire, size decompressed, time to arrive."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import numpy as np

from modelops.errors import ModelopsError, RequestError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
HeaderMap = dict[bytes, bytes]
Body = bytes | memoryview
Into = Callable[[int], memoryview | None]

# From here on a body gets memory of its whole size at once, and comes into it without a detour.
_LARGE_BYTES = 256 * 1024
_WBITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
_INFLATE_IN = 2**16
_INFLATE_OUT = 2**18


class BodyTooLargeError(RequestError):
    """The body, or the JSON in it, is larger than allowed."""


class SlowBodyError(RequestError):
    """The body did not arrive in time."""


class ClientLeftError(ModelopsError):
    """The client closed the connection before its answer; nobody reads one."""


async def read_body(
    receive: Receive,
    headers: HeaderMap,
    limit: int,
    seconds: float,
    into: Into | None = None,
) -> Body:
    """Return the whole body, decompressed, of at most ``limit`` bytes either way.

    ``into`` is called with the length of a body that says it and is not compressed; where it
    returns memory of just that size, the body is put there and that memory returned. Whatever
    is raised, nothing is written there afterwards.

    The first call of ``receive`` must not wait (HttpCycle's does not): only the others are timed.

    Raises:
        BodyTooLargeError: it is larger, whether it says so first or not.
        SlowBodyError: it was not there after ``seconds``.
        RequestError: its Content-Length or Content-Encoding is off.
        ClientLeftError: the client left in the middle.
    """
    declared = _declared(headers)
    if declared is not None and declared > limit:
        raise _too_large(limit)
    encoding = headers.get(b"content-encoding", b"identity").lower()
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeftError("the client left")
    body: Body = message.get("body", b"")
    more = message.get("more_body", False)
    target = None
    if declared:
        if into is not None and encoding == b"identity":
            target = into(declared)
        if target is None and more and declared >= _LARGE_BYTES:
            target = np.empty(declared, np.uint8).data
    try:
        if target is not None:
            async with asyncio.timeout(seconds if more else None):
                await _fill(receive, body, target, more)
            body = target
        elif more:
            async with asyncio.timeout(seconds):
                body = await _gather(receive, body, limit)
        elif len(body) > limit:
            raise _too_large(limit)
    except TimeoutError:
        raise SlowBodyError(f"the body did not arrive within {seconds:g} s") from None
    if declared is not None and len(body) != declared:
        raise RequestError(f"the body has {len(body)} bytes; its Content-Length said {declared}")
    if encoding == b"identity":
        return body
    return await asyncio.to_thread(inflate, body, encoding, limit)


def inflate(body: Body, encoding: bytes, limit: int) -> Body:
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
    view = memoryview(body)
    inflated = bytearray()
    at = 0
    try:
        while at < len(view) and not inflator.eof:
            # What a step does not take in is copied for the next one: so steps are short.
            rest: Body = view[at : at + _INFLATE_IN]
            at += len(rest)
            while rest and not inflator.eof:
                inflated += inflator.decompress(rest, _INFLATE_OUT)
                if len(inflated) > limit:
                    raise _too_large(limit)
                rest = inflator.unconsumed_tail
    except zlib.error as error:
        raise RequestError(f"the body is no {encoding.decode()}: {error}") from error
    if not inflator.eof or inflator.unused_data or at < len(view):
        raise RequestError(f"the {encoding.decode()} body is cut short or has bytes after its end")
    return memoryview(inflated)


def check_json_size(size: int, limit: int) -> None:
    """Refuse JSON that is too large to parse.

    Raises:
        BodyTooLargeError: it is larger than ``limit`` bytes.
    """
    if size > limit:
        raise BodyTooLargeError(
            f"JSON of {size} bytes is over the limit of {limit}; send large tensors as binary data"
        )


def _declared(headers: HeaderMap) -> int | None:
    value = headers.get(b"content-length")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise RequestError("Content-Length is not a number of bytes")
    return int(value)


async def _fill(receive: Receive, first: Body, target: memoryview, more: bool) -> None:
    """Put the body into ``target``: the ``first`` bytes of it, and the rest as it comes."""
    declared = len(target)
    if len(first) > declared or (not more and len(first) < declared):
        raise RequestError(f"the body does not have the {declared} bytes of its Content-Length")
    target[: len(first)] = first
    size = len(first)
    fill = getattr(receive, "fill", None)
    if fill is not None and declared - size >= _LARGE_BYTES:
        if await fill(target[size:]) < declared - size:
            raise ClientLeftError("the client left in the middle of its body")
        return
    while more:
        part, more = await _next(receive)
        if len(part) > declared - size:
            raise RequestError(f"the body is longer than the {declared} bytes it said")
        target[size : size + len(part)] = part
        size += len(part)
    if size < declared:
        raise RequestError(f"the body has {size} bytes; its Content-Length said {declared}")


async def _gather(receive: Receive, first: Body, limit: int) -> Body:
    """Return ``first`` and the rest, whose length is small or not known."""
    part, more = await _next(receive)
    if not first and not more and len(part) <= limit:
        return part  # the head came alone and then all of the body: nothing to join
    body = bytearray(first)
    body += part
    while more and len(body) <= limit:
        part, more = await _next(receive)
        body += part
    if len(body) > limit:
        raise _too_large(limit)
    return memoryview(body)


async def _next(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeftError("the client left in the middle of its body")
    return message.get("body", b""), message.get("more_body", False)


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is over the limit of {limit} bytes")
