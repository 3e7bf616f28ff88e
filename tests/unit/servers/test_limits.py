"""Bodies: bounded on the wire, bounded decompressed, bounded in time."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any

import pytest

from modelops.errors import RequestError
from modelops_servers.front.limits import (
    BodyTooLargeError,
    ClientLeftError,
    SlowBodyError,
    check_json_size,
    inflate,
    read_body,
)


def read(chunks: list[bytes | None], headers: dict[bytes, bytes] | None = None, **kw: Any) -> bytes:
    """Read a body of these chunks; None is the client leaving."""
    queue = list(chunks)

    async def receive() -> dict[str, Any]:
        if not queue:
            await asyncio.sleep(30)
        chunk = queue.pop(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": bool(queue) or kw.get("open")}

    async def run() -> bytes:
        return await read_body(receive, headers or {}, kw.get("limit", 10), kw.get("seconds", 5))

    return asyncio.run(run())


def test_h6_up_to_the_limit_is_read_and_one_more_is_not() -> None:
    assert read([b"12345", b"67890"]) == b"1234567890"
    assert read([b"1234567890"]) == b"1234567890"
    for chunks in ([b"12345678901"], [b"12345", b"678901"], [b"1"] * 11):
        with pytest.raises(BodyTooLargeError):
            read(chunks)


def test_h6_a_declared_length_decides_before_anything_is_kept() -> None:
    with pytest.raises(BodyTooLargeError):
        read([b"1"], {b"content-length": b"11"})


@pytest.mark.parametrize("length", [b"-5", b"", b"1e3", b"0x1", b" 5", b"9" * 19, "٣".encode()])
def test_h6_a_length_that_is_no_number_is_400(length: bytes) -> None:
    with pytest.raises(RequestError):
        read([b"1"], {b"content-length": length})


def test_a_client_that_left_and_one_that_stalls() -> None:
    with pytest.raises(ClientLeftError):
        read([None])
    with pytest.raises(ClientLeftError):
        read([b"1", None])
    with pytest.raises(SlowBodyError):
        read([b"1"], open=True, seconds=0.05)


@pytest.mark.parametrize(
    ("encoding", "pack"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)]
)
def test_h6_a_bomb_is_never_inflated_beyond_the_limit(encoding: bytes, pack: Any) -> None:
    assert inflate(pack(b"hello"), encoding, 5) == b"hello"
    assert inflate(pack(b""), encoding, 5) == b""
    with pytest.raises(BodyTooLargeError):
        inflate(pack(bytes(10**7)), encoding, 10**6)
    for damaged in (pack(b"hello")[:-2], pack(b"hello") + b"x", b"hello", b""):
        with pytest.raises(RequestError):
            inflate(damaged, encoding, 100)


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(RequestError, match="br"):
        read([b"1"], {b"content-encoding": b"br"})


def test_json_has_its_own_limit() -> None:
    check_json_size(10, 10)
    with pytest.raises(BodyTooLargeError, match="binary"):
        check_json_size(11, 10)
