"""Open Inference Protocol v2 over HTTP: the infer route, a plain ASGI endpoint."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib

from modelops.errors import RequestError
from modelops_servers.front.exchange import Call, Reply, Served
from modelops_servers.front.limits import HeaderMap, check_json_size, read_body
from modelops_servers.front.oip_codec import decode_request, encode_response
from modelops_servers.front.status import JSON
from modelops_servers.front.watch import ClientWatch

_LENGTH = b"inference-header-content-length"
_OCTETS = (b"content-type", b"application/octet-stream")
_WORTH_COMPRESSING = 1024
_COMPRESSED_ON_LOOP = 64 * 1024


class InferEndpoint:
    """Bytes to tensors, tensors through the model, tensors to bytes."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def __call__(self, call: Call, name: str, version: str | None) -> Reply:
        """Answer one infer request for model ``name``."""
        model, loaded = self._served.loaded(name, version)
        call.model = name
        limits = self._served.limits
        json_length = _json_length(call.headers)
        whole = limits.max_json_bytes if json_length is None else limits.max_body_bytes
        if json_length is not None:
            check_json_size(json_length, limits.max_json_bytes)
        body = await read_body(call.receive, call.headers, whole, limits.request_seconds)
        signature = loaded.artifact.manifest.signature
        request = decode_request(body, signature, json_length)
        if request.timeout_seconds is not None:
            call.deadline = min(call.deadline, time.monotonic() + request.timeout_seconds)
        async with ClientWatch(call.receive, call.deadline):
            outputs = await model.infer(request.tensors, call.deadline)
        encoded = encode_response(name, str(loaded.artifact.version), request, outputs, signature)
        if encoded.json_length is None:
            headers = [JSON]
        else:
            headers = [_OCTETS, (_LENGTH, str(encoded.json_length).encode())]
        return await _compressed(Reply(encoded.parts, headers), call.headers)


def _json_length(headers: HeaderMap) -> int | None:
    value = headers.get(_LENGTH)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise RequestError("Inference-Header-Content-Length is not a number of bytes")
    return int(value)


async def _compressed(reply: Reply, headers: HeaderMap) -> Reply:
    """Compress for a client that names exactly one coding.

    General HTTP clients list every coding they know with each request; on tensors that costs far
    more time than it saves, so only the client that asks for one gets it.
    """
    coding = headers.get(b"accept-encoding", b"").strip().lower()
    if coding not in (b"gzip", b"deflate"):
        return reply
    body = b"".join(reply.parts)
    if len(body) < _WORTH_COMPRESSING:
        return reply
    deflate = _gzip if coding == b"gzip" else _zlib
    if len(body) > _COMPRESSED_ON_LOOP:
        small = await asyncio.to_thread(deflate, body)
    else:
        small = deflate(body)
    return Reply([small], [*reply.headers, (b"content-encoding", coding)], reply.status)


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=1, mtime=0)


def _zlib(body: bytes) -> bytes:
    return zlib.compress(body, level=1)
