"""Request bodies of the Open Inference Protocol, made from a seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Feed = dict[str, npt.NDArray[Any]]

_DATATYPES = {"float32": "FP32", "int64": "INT64"}
_VOCABULARY = (1000, 30000)


@dataclass(frozen=True)
class Body:
    """One request's bytes; ``json_length`` is None where all of it is JSON."""

    data: bytes
    json_length: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What must be sent with it."""
        if self.json_length is None:
            return {"Content-Type": "application/json"}
        return {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(self.json_length),
        }


def json_body(feed: Feed) -> Body:
    """All values in JSON."""
    inputs = [{**_head(n, a), "data": a.ravel().tolist()} for n, a in feed.items()]
    return Body(json.dumps({"inputs": inputs}).encode())


def binary_body(feed: Feed) -> Body:
    """The values after the JSON; the answer is asked for in the same form."""
    inputs = [
        {**_head(n, a), "parameters": {"binary_data_size": a.nbytes}} for n, a in feed.items()
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return Body(b"".join([head, *(a.tobytes() for a in feed.values())]), len(head))


def rows(count: int, width: int, seed: int = 7) -> Feed:
    """One float32 input ``x`` of ``count`` rows."""
    rng = np.random.default_rng([seed, count, width])
    return {"x": rng.standard_normal((count, width), dtype=np.float32)}


def sentences(names: Sequence[str], count: int, low: int, high: int, seed: int = 7) -> list[Feed]:
    """One-row token inputs whose lengths are uniform in ``low..high``, in random order."""
    rng = np.random.default_rng(seed)
    feeds = []
    for length in rng.integers(low, high + 1, count):
        ids = rng.integers(*_VOCABULARY, (1, length))
        known = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        feeds.append({name: known[name] for name in names})
    return feeds


def write(bodies: Sequence[Body], path: Path) -> Path:
    """Write what wrk.lua reads: for each body a line of two lengths, then its bytes."""
    with path.open("wb") as file:
        for body in bodies:
            file.write(f"{body.json_length or 0} {len(body.data)}\n".encode() + body.data)
    return path


def _head(name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    datatype = _DATATYPES[array.dtype.name]
    return {"name": name, "shape": list(array.shape), "datatype": datatype}
