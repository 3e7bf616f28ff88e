"""Golden samples: the inputs and eager outputs of checked points, in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from modelops.errors import IntegrityError
from modelops.parity.check import Sample
from modelops.parity.inputs import Arrays

SAMPLES = "samples.safetensors"
TEXT_SAMPLES = f"evidence/{SAMPLES}"
"""Of a Hugging Face folder: engines take every such file beside its config.json for weights."""

# Enough for every point of most models; more would weigh on each copy of the artifact.
_MOST_BYTES = 32 * 2**20


def write_samples(path: Path, samples: Sequence[Sample]) -> list[str]:
    """Write ``samples`` to ``path``, largest left out beyond 32 MiB; return the labels kept."""
    from safetensors.numpy import save_file

    path.parent.mkdir(exist_ok=True)

    room = _MOST_BYTES
    chosen: list[int] = []
    for number in sorted(range(len(samples)), key=lambda i: _nbytes(samples[i])):
        room -= _nbytes(samples[number])
        if room < 0:
            break
        chosen.append(number)
    kept = [samples[number] for number in sorted(chosen)]
    tensors: Arrays = {}
    for number, sample in enumerate(kept):
        tensors |= {f"{number}.in.{name}": a for name, a in sample.inputs.items()}
        tensors |= {f"{number}.out.{name}": a for name, a in sample.outputs.items()}
    labels = [s.label for s in kept]
    save_file({k: a.copy() for k, a in tensors.items()}, path, {"labels": json.dumps(labels)})
    return labels


def read_samples(path: Path) -> list[Sample]:
    """Read what ``write_samples`` wrote.

    Raises:
        IntegrityError: the file does not hold samples.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            labels: list[str] = json.loads(file.metadata()["labels"])
            pairs: list[tuple[Arrays, Arrays]] = [({}, {}) for _ in labels]
            for key in file.keys():  # noqa: SIM118  safe_open is no mapping
                number, side, name = key.split(".", 2)
                pairs[int(number)][side == "out"][name] = file.get_tensor(key)
    except (SafetensorError, OSError, KeyError, ValueError, IndexError, TypeError) as error:
        raise IntegrityError(f"{path.name} holds no golden samples: {error}") from error
    return [Sample(label, i, o) for label, (i, o) in zip(labels, pairs, strict=True)]


def _nbytes(sample: Sample) -> int:
    return sum(a.nbytes for a in (*sample.inputs.values(), *sample.outputs.values()))
