"""The inputs that a conversion is tried on: the user's own, else sentences, else random ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from modelops.parity.batches import batches
from modelops.parity.inputs import Arrays
from modelops.parity.user_data import UserData, leading_dim, read_user_data
from modelops.requests import ExportRequest
from modelops.signature import Signature
from modelops_exporters.inputs import PreparedInputs
from modelops_exporters.prepared import Prepared
from modelops_exporters.sentences import CALIBRATION

_RANDOM_CALLS = 8


@dataclass(frozen=True)
class Calibration:
    """Batches by input name, where they came from, and what identifies them."""

    inputs: list[Arrays]
    origin: str
    items: int
    sha256: str


def calibration_for(
    request: ExportRequest,
    prepared: Prepared,
    signature: Signature,
    example: dict[str, int],
    nbytes: Callable[[dict[str, int]], int],
) -> Calibration:
    """Return what ``--calibration`` names, else what the source knows of its inputs.

    None of it is among the inputs that parity is judged on: other sentences, another seed.

    Raises:
        InputError: the file is none of inputs of this model.
    """
    data: UserData | None = None
    if request.calibration is not None:
        data = read_user_data(
            request.calibration, signature, flag="--calibration", encode=prepared.encode
        )
        origin = data.name
    elif prepared.encode is not None and not prepared.fixed:
        data = _sentences(prepared, signature)
        origin = f"{len(data.items)} built-in sentences"
    if data is not None:
        calls = batches(data, signature, nbytes=nbytes, budget=request.memory_budget)
        inputs = [call.inputs for call in calls]
        items = len(data.items)
    else:
        inputs = random_inputs(request, prepared, signature, example, offset=1)
        origin, items = "random inputs, for want of --calibration", len(inputs)
    return Calibration(inputs, origin, items, _sha256(inputs))


def random_inputs(
    request: ExportRequest,
    prepared: Prepared,
    signature: Signature,
    example: dict[str, int],
    *,
    offset: int,
) -> list[Arrays]:
    """Return random batches at the traced sizes; ``offset`` parts their seeds from parity's."""
    first = request.seed + offset * 7919
    return [
        PreparedInputs(prepared, signature, first + n).random(example) for n in range(_RANDOM_CALLS)
    ]


def _sentences(prepared: Prepared, signature: Signature) -> UserData:
    names = [t.name for t in signature.inputs]
    encode = prepared.encode
    items = [] if encode is None else [encode(text) for text in CALIBRATION]
    lead = leading_dim(signature)
    return UserData(
        "sentences",
        tuple({n: i[n][None] if lead is not None else i[n] for n in names} for i in items),
        {},
    )


def _sha256(inputs: list[Arrays]) -> str:
    digest = hashlib.sha256()
    for feed in inputs:
        for name in sorted(feed):
            array = np.ascontiguousarray(feed[name])
            digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
            digest.update(array.tobytes() if array.dtype != object else repr(array).encode())
    return digest.hexdigest()
