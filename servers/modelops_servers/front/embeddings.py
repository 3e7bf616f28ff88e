"""``/v1/embeddings`` as OpenAI has it: text or token ids in, vectors and real usage out."""

from __future__ import annotations

import asyncio

import numpy as np
import numpy.typing as npt

from modelops_servers.front.embeddings_codec import EmbeddingRequest, encode, parse
from modelops_servers.front.exchange import Call, Reply
from modelops_servers.front.json_process import DECODED_ON_LOOP_BYTES, ENCODED_ON_LOOP_VALUES
from modelops_servers.front.limits import read_body
from modelops_servers.front.models import Models
from modelops_servers.front.status import JSON, FieldError
from modelops_servers.front.version import Version
from modelops_servers.front.watch import ClientWatch
from modelops_servers.text import Batch, TextInputs

_PREPARED_ON_LOOP = 8192  # characters or token ids


class EmbeddingsEndpoint:
    """Text to tokens, tokens through the model in like-length batches, vectors in order."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def __call__(self, call: Call) -> Reply:
        """Answer one embeddings request."""
        limits = self._models.limits
        body = await read_body(
            call.receive, call.headers, limits.max_json_bytes, limits.request_seconds
        )
        if len(body) > DECODED_ON_LOOP_BYTES:
            request = await self._models.json.run(parse, body)
        else:
            request = parse(body)
        found = self._models.find(request.model)
        name = found.config.name
        call.model, call.version = name, found.number
        text = found.text
        if text is None:
            raise FieldError(
                f"model {name!r} makes no embeddings (its task is "
                f"{found.artifact.manifest.task}); use /v2/models/{name}/infer",
                param="model",
            )
        if request.dimensions is not None and request.dimensions != text.dimensions:
            raise FieldError(
                f"this model's embeddings have {text.dimensions} dimensions, "
                f"and it cannot give {request.dimensions}",
                param="dimensions",
            )
        found.admit()
        try:
            with ClientWatch(call.receive, call.deadline):
                batches, tokens = await _batches(text, request)
                count = len(request.rows or request.texts or [])
                vectors = await _vectors(found, batches, count, call.deadline)
        finally:
            found.leave()
        self._models.metrics.of(name, found.number).tokens(tokens)
        answer = request.model, vectors, request.encoding_format, tokens
        if vectors.size > ENCODED_ON_LOOP_VALUES:
            return Reply([await self._models.json.run(encode, *answer)], [JSON])
        return Reply([encode(*answer)], [JSON])


async def _vectors(
    version: Version, batches: list[Batch], count: int, deadline: float
) -> npt.NDArray[np.float32]:
    """Return the vectors of ``count`` rows, [count, dimensions]; the batches go out together."""
    output = version.signature.outputs[0].name
    tasks = [asyncio.create_task(_answer(version, b, output, deadline)) for b in batches]
    try:
        answers = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    vectors = np.empty((count, answers[0].shape[1]), dtype=np.float32)
    for batch, values in zip(batches, answers, strict=True):
        vectors[list(batch.items)] = values[: len(batch.items)]
    return vectors


async def _answer(
    version: Version, batch: Batch, output: str, deadline: float
) -> npt.NDArray[np.float32]:
    answer = await version.infer(batch.tensors, deadline)
    try:
        return np.array(answer.outputs[output], dtype=np.float32)
    finally:
        answer.release()


async def _batches(text: TextInputs, request: EmbeddingRequest) -> tuple[list[Batch], int]:
    """Return the model's inputs and how many tokens they are; much of it is made off the loop."""

    def make() -> tuple[list[Batch], int]:
        rows = request.rows or text.tokenize(request.texts or [])
        text.check(rows)
        return text.batches(rows), sum(map(len, rows))

    if sum(map(len, request.rows or request.texts or [])) <= _PREPARED_ON_LOOP:
        return make()
    return await asyncio.to_thread(make)
