"""Which headers go on, either way: a short list of those that mean something, and nothing else.

What is left out needs no list: hop-by-hop headers, lengths, keys, cookies, and all that says who
the client or the engine is.
"""

from __future__ import annotations

from collections.abc import Iterable

from modelops_servers.front.limits import HeaderMap

RawHeaders = Iterable[tuple[bytes, bytes]]

# Host, Authorization, Content-Length and what frames the body are the connection's own.
_TO_ENGINE = (
    b"accept", b"content-type", b"traceparent", b"tracestate", b"openai-beta",
    b"anthropic-beta", b"anthropic-version",
)  # fmt: skip
_TO_CLIENT = frozenset({
    b"content-type", b"content-encoding", b"content-language", b"cache-control", b"retry-after",
    b"vary", b"openai-version", b"openai-processing-ms",
})  # fmt: skip
_TO_CLIENT_PREFIXES = (b"x-ratelimit-", b"anthropic-ratelimit-")
_NO_PROXY_BUFFER = (b"x-accel-buffering", b"no")  # nginx would gather a stream into pages
_NO_CACHE = (b"cache-control", b"no-cache")


def to_engine(headers: HeaderMap, request_id: bytes) -> dict[str, str]:
    """Return what an engine is told of a client's ``headers``."""
    told = {
        name.decode(): headers[name].decode("latin-1") for name in _TO_ENGINE if name in headers
    }
    # Compressed bytes could not be read on their way.
    told["accept-encoding"] = "identity"
    told["x-request-id"] = request_id.decode()
    return told


def to_client(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """Return what a client is told of an engine's ``headers``; their names are in lower case."""
    return [
        (name, value)
        for name, value in headers
        if name in _TO_CLIENT or name.startswith(_TO_CLIENT_PREFIXES)
    ]


def of_stream(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """Return ``to_client(headers)`` and what keeps those between from gathering a stream."""
    told = to_client(headers)
    if not any(name == b"cache-control" for name, _ in told):
        told.append(_NO_CACHE)
    return [*told, _NO_PROXY_BUFFER]
