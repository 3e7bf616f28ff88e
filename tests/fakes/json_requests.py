"""Large JSON requests, and a JSON process to send them through."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import orjson
import uvloop

from modelops.signature import DimRange, Signature, TensorSpec
from modelops_servers.front.json_process import JsonProcess
from modelops_servers.front.oip_codec import decode_request, encode_response


def with_process(job: Callable[[JsonProcess], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    async def main() -> Any:
        process = JsonProcess(**options)
        try:
            return await job(process)
        finally:
            await process.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def signature_of(dtype: str, *dims: str) -> Signature:
    return Signature(
        inputs=(TensorSpec(name="x", dtype=dtype, shape=dims),),
        outputs=(TensorSpec(name="y", dtype=dtype, shape=dims),),
        dims={d: DimRange(min=1, max=2**30) for d in dims},
    )


FLOATS = signature_of("float32", "n")


def request_of(datatype: str, shape: list[int], values: str) -> bytes:
    head = f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{shape},"data":'
    return f"{head}{values}}}]}}".encode()


def flat(count: int) -> bytes:
    values = orjson.dumps(np.random.default_rng(0).random(count), option=orjson.OPT_SERIALIZE_NUMPY)
    return request_of("FP32", [count], values.decode())


async def echoed(
    process: JsonProcess, body: bytes, signature: Signature
) -> tuple[Any, memoryview | bytes]:
    """Decode and encode again, both there; the inputs go back as the outputs."""
    request = await process.run(decode_request, body, signature, None)
    outputs = {"y": request.tensors["x"]}
    bare = dataclasses.replace(request, tensors={})
    encoded = await process.run(encode_response, "m", "1", bare, outputs, signature)
    assert len(encoded.parts) == 1
    return request, encoded.parts[0]
