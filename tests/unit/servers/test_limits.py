"""Bodies: bounded on the wire, bounded decompressed, bounded in time."""

from __future__ import annotations

import asyncio
import gzip
import resource
import time
import zlib
from typing import Any

import numpy as np
import pytest

from modelops.errors import RequestError
from modelops_servers.front.limits import (
    Body,
    BodyTooLargeError,
    ClientLeftError,
    SlowBodyError,
    check_json_size,
    inflate,
    read_body,
)


def read(chunks: list[bytes | None], headers: dict[bytes, bytes] | None = None, **kw: Any) -> Body:
    """Read a body of these chunks; None is the client leaving."""
    queue = list(chunks)

    async def receive() -> dict[str, Any]:
        if not queue:
            await asyncio.sleep(30)
        chunk = queue.pop(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": bool(queue) or kw.get("open")}

    async def run() -> Body:
        limit, seconds = kw.get("limit", 10), kw.get("seconds", 5)
        return await read_body(receive, headers or {}, limit, seconds, kw.get("into"))

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


def test_inflating_takes_time_in_proportion_to_what_it_gives() -> None:
    """Each step copies what it leaves of its input: with all of the rest, this takes minutes."""
    noise = np.random.default_rng(0).integers(0, 256, 2**26, np.uint8).tobytes()
    for body in (noise, bytes(2**26)):
        compressed = zlib.compress(body, 1)
        began = time.thread_time()
        assert inflate(compressed, b"deflate", 2**26) == body
        assert time.thread_time() - began < 2
    with pytest.raises(BodyTooLargeError):
        inflate(compressed, b"deflate", 2**26 - 1)


def length(size: int) -> dict[bytes, bytes]:
    return {b"content-length": str(size).encode()}


@pytest.mark.parametrize("size", [5, 300_000])
def test_a_body_of_another_length_than_it_said_is_400(size: int) -> None:
    body = b"a" * size
    for into in (None, lambda n: memoryview(bytearray(n))):
        for chunks in ([body], [body[:2], body[2:]], [b"", body], [body, b""]):
            given = {"limit": 10**6, "into": into}
            assert read([*chunks], length(size), **given) == body
            for said in (size - 1, size + 1):
                with pytest.raises(RequestError, match=r"Content-Length|it said"):
                    read([*chunks], length(said), **given)


def test_a_body_goes_into_the_memory_that_is_given_for_its_length() -> None:
    memory = bytearray(12)
    asked: list[int] = []

    def into(size: int) -> memoryview:
        asked.append(size)
        return memoryview(memory)[:size]

    for chunks in ([b"hello"], [b"he", b"llo"], [b"", b"hello"]):
        body = read([*chunks], length(5), into=into)
        assert isinstance(body, memoryview)
        assert body.obj is memory
        assert memory == b"hello" + bytes(7)
        memory[:] = bytes(12)
    assert asked == [5, 5, 5]
    # Not where the length is not known, is none, is refused, or is not what will be there.
    assert read([b"he", b"llo"], into=into) == b"hello"
    assert read([b""], length(0), into=into) == b""
    with pytest.raises(BodyTooLargeError):
        read([b"he"], length(11), into=into)
    packed = gzip.compress(b"hello")
    headers = {**length(len(packed)), b"content-encoding": b"gzip"}
    assert read([packed], headers, limit=100, into=into) == b"hello"
    assert asked == [5, 5, 5]
    assert read([b"hello"], length(5), into=lambda _: None) == b"hello"


def test_h15_a_body_that_never_begins_is_slow_too() -> None:
    for headers in ({}, length(5), length(500_000)):
        with pytest.raises(SlowBodyError):
            read([b""], headers, open=True, seconds=0.05, limit=10**6)


def test_a_large_body_is_not_touched_before_it_comes() -> None:
    """A length is only a claim: memory is for bytes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ClientLeftError):
        read([b"a", None], length(2**30), limit=2**31)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak - before < 2**18  # KiB


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(RequestError, match="br"):
        read([b"1"], {b"content-encoding": b"br"})


def test_json_has_its_own_limit() -> None:
    check_json_size(10, 10)
    with pytest.raises(BodyTooLargeError, match="binary"):
        check_json_size(11, 10)
