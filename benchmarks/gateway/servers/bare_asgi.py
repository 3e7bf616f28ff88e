"""The least that answers: one ASGI function on uvicorn with uvloop and httptools, orjson, numpy.

It knows valid requests only: no checks, limits, deadlines, metrics or batching.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import numpy as np
import orjson
import uvicorn

from gateway.servers.session import DATATYPES, arguments, arrays_of, open_session


class Endpoint:
    """Answers every POST with the model's outputs, JSON for JSON and binary for binary."""

    def __init__(self, session: Any, name: str, *, executor: bool) -> None:
        self._run = session.run
        self._name = name
        self._outputs = [o.name for o in session.get_outputs()]
        self._executor = executor

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        parts, more = [], True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        length = dict(scope["headers"]).get(b"inference-header-content-length")
        answer, head = await self.answer(body, None if length is None else int(length))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(sum(map(len, answer))).encode()),
        ]
        if head is not None:
            headers.append((b"inference-header-content-length", str(head).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in answer[:-1]:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": answer[-1]})

    async def answer(self, body: bytes, json_length: int | None) -> tuple[list[Any], int | None]:
        """Return the body's parts, and the JSON's length where the rest is binary."""
        if json_length is None:
            feed = arrays_of(orjson.loads(body)["inputs"])
        else:
            feed = _views(body, json_length)
        if self._executor:
            loop = asyncio.get_running_loop()
            run = functools.partial(self._run, self._outputs, feed)
            values = await loop.run_in_executor(None, run)
        else:
            values = self._run(self._outputs, feed)
        binary = json_length is not None
        outputs = [
            {
                "name": n,
                "datatype": "FP32",
                "shape": v.shape,
                **({"parameters": _size(v)} if binary else {"data": v.ravel()}),
            }
            for n, v in zip(self._outputs, values, strict=True)
        ]
        text = orjson.dumps(
            {"model_name": self._name, "outputs": outputs}, option=orjson.OPT_SERIALIZE_NUMPY
        )
        if not binary:
            return [text], None
        return [text, *(v.reshape(-1).view(np.uint8).data for v in values)], len(text)


def _size(array: Any) -> dict[str, int]:
    return {"binary_data_size": array.nbytes}


def _views(body: bytes, json_length: int) -> dict[str, Any]:
    feed = {}
    offset = json_length
    view = memoryview(body)
    for tensor in orjson.loads(view[:json_length])["inputs"]:
        end = offset + tensor["parameters"]["binary_data_size"]
        flat = np.frombuffer(view[offset:end], DATATYPES[tensor["datatype"]])
        feed[tensor["name"]] = flat.reshape(tensor["shape"])
        offset = end
    return feed


def serve(app: Any, port: int) -> None:
    """Run ``app`` as every hand-written contender here is run."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--executor", action="store_true", help="run the model in a thread pool")
    options = parser.parse_args()
    session = open_session(options.model, options.threads)
    serve(Endpoint(session, options.name, executor=options.executor), options.port)


if __name__ == "__main__":
    main()
