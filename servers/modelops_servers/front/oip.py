"""Open Inference Protocol v2 over HTTP: the infer route, a plain ASGI endpoint."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from dataclasses import replace
from typing import cast

from modelops.config import LimitsConfig
from modelops.errors import RequestError
from modelops_servers.dataplane.packed_strings import PackedStrings, packed
from modelops_servers.front.exchange import Call, Reply
from modelops_servers.front.json_process import (
    DECODED_ON_LOOP_BYTES,
    ENCODED_ON_LOOP_VALUES,
    STRINGS_ON_LOOP,
    json_values,
)
from modelops_servers.front.limits import HeaderMap, check_json_size, read_body
from modelops_servers.front.models import Models
from modelops_servers.front.oip_codec import (
    Encoded,
    InferRequest,
    decode_request,
    encode_response,
)
from modelops_servers.front.replica import Answer, Lease, Outputs
from modelops_servers.front.status import JSON
from modelops_servers.front.tensor_codec import check_strings
from modelops_servers.front.version import Version
from modelops_servers.front.watch import ClientWatch

_LENGTH = b"inference-header-content-length"
_OCTETS = (b"content-type", b"application/octet-stream")
_SHARED_BYTES = 256 * 1024
_ALIGNMENT = 64
_WORTH_COMPRESSING = 1024
_COMPRESSED_ON_LOOP = 64 * 1024


class InferEndpoint:
    """Bytes to tensors, tensors through the model, tensors to bytes."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def __call__(self, call: Call, name: str, version: str | None) -> Reply:
        """Answer one infer request for model ``name``."""
        found = self._models.find(name, version)
        call.model, call.version = found.config.name, found.number
        body = _Body(found, call.headers, self._models.limits)
        try:
            data = await body.read(call)
            # While it came, another version may have taken the place of the one that was found.
            found = self._models.find(name, version)
            call.version = found.number
            found.admit()
            try:
                request = await self._decode(call, data, found, body.json_length)
                if request.timeout_seconds is not None:
                    call.deadline = min(call.deadline, time.monotonic() + request.timeout_seconds)
                with ClientWatch(call.receive, call.deadline):
                    answer = await found.infer(request.tensors, call.deadline, body.lease_of(found))
                try:
                    encoded = await self._encode(name, found, request, answer)
                finally:
                    answer.release()
            finally:
                found.leave()
        finally:
            body.release()
        if encoded.json_length is None:
            headers = [JSON]
        else:
            headers = [_OCTETS, (_LENGTH, str(encoded.json_length).encode())]
        return await _compressed(Reply(encoded.parts, headers), call.headers)

    async def _decode(
        self, call: Call, data: bytes | memoryview, found: Version, json_length: int | None
    ) -> InferRequest:
        size = len(data) if json_length is None else json_length
        run = self._models.json.run
        if size > DECODED_ON_LOOP_BYTES:
            with ClientWatch(call.receive, call.deadline):
                return await run(decode_request, data, found.signature, json_length)
        request = decode_request(data, found.signature, json_length, STRINGS_ON_LOOP)
        if request.unwalked:
            # They stay where they are, packed: only whether they are whole is found out elsewhere.
            with ClientWatch(call.receive, call.deadline):
                for name in request.unwalked:
                    strings = cast(PackedStrings, request.tensors[name])
                    await run(check_strings, name, strings.packed, strings.size)
        return request

    async def _encode(
        self, name: str, found: Version, request: InferRequest, answer: Answer
    ) -> Encoded:
        values = [o.name for o in request.outputs if not o.binary]
        if values and json_values({n: answer.outputs[n] for n in values}) > ENCODED_ON_LOOP_VALUES:
            asked = replace(request, tensors={})
            outputs = {o.name: answer.outputs[o.name] for o in request.outputs}
            return await self._models.json.run(
                encode_response, name, found.number, asked, outputs, found.signature
            )
        outputs = await _joined(answer.outputs, [o.name for o in request.outputs if o.binary])
        encoded = encode_response(name, found.number, request, outputs, found.signature)
        if answer.shared:
            # What lies in shared memory is given back before it is sent.
            return Encoded([b"".join(encoded.parts)], encoded.json_length)
        return encoded


class _Body:
    """One request's body: its bounds, and the shared memory that it is read into."""

    __slots__ = ("_found", "_headers", "_limits", "json_length", "lease")

    def __init__(self, found: Version, headers: HeaderMap, limits: LimitsConfig) -> None:
        self._found = found
        self._headers = headers
        self._limits = limits
        self.json_length = _json_length(headers)
        self.lease: Lease | None = None

    async def read(self, call: Call) -> bytes | memoryview:
        """Return the body; a large one of binary tensors lies where the engine can see it."""
        limits, most = self._limits, self._limits.max_json_bytes
        if self.json_length is not None:
            check_json_size(self.json_length, limits.max_json_bytes)
            most = limits.max_body_bytes
        into = self._set_aside if self.json_length is not None else None
        return await read_body(call.receive, self._headers, most, limits.request_seconds, into)

    def lease_of(self, version: Version) -> Lease | None:
        """Return the shared memory that the body lies in, where it is ``version``'s."""
        return self.lease if version is self._found else None

    def release(self) -> None:
        """Give shared memory back that was not handed over."""
        if self.lease is not None:
            self.lease.release()

    def _set_aside(self, count: int) -> memoryview | None:
        if count < _SHARED_BYTES:
            return None
        # The first tensor begins after the JSON: let it begin on a boundary.
        lead = -(self.json_length or 0) % _ALIGNMENT
        self.lease = self._found.lease(lead + count)
        return None if self.lease is None else self.lease.memory[lead : lead + count]


def _json_length(headers: HeaderMap) -> int | None:
    value = headers.get(_LENGTH)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise RequestError("Inference-Header-Content-Length is not a number of bytes")
    return int(value)


async def _joined(outputs: Outputs, binary: list[str]) -> Outputs:
    """Join the strings of the ``binary`` outputs off the loop, where they are many."""
    loose = {
        name: outputs[name]
        for name in binary
        if outputs[name].dtype == object and not isinstance(outputs[name], PackedStrings)
    }
    if sum(array.size for array in loose.values()) <= STRINGS_ON_LOOP:
        return outputs
    joined = {
        name: PackedStrings.of(memoryview(await asyncio.to_thread(packed, array)), array.shape)
        for name, array in loose.items()
    }
    return {**outputs, **joined}


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
