"""Two artifacts side by side: how their signatures differ, and their answers to fresh inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from modelops.artifact.manifest import ParityPoint, Tolerance
from modelops.parity.compare import compare_outputs
from modelops.parity.inputs import RandomInputs
from modelops.progress import Progress
from modelops.protocols import Runtime
from modelops.signature import Signature


def differences(first: Signature, second: Signature) -> list[str]:
    """Return, field by field, why two artifacts cannot be asked the same; none where they can."""
    found: list[str] = []
    for side in ("inputs", "outputs"):
        a = {t.name: t for t in getattr(first, side)}
        b = {t.name: t for t in getattr(second, side)}
        for name in [*a, *(n for n in b if n not in a)]:
            what = f"{side[:-1]} {name!r}"
            if name not in b or name not in a:
                found.append(f"{what} is only in the {'first' if name in a else 'second'}")
                continue
            for field in ("dtype", "shape"):
                x, y = getattr(a[name], field), getattr(b[name], field)
                if field == "shape" and len(x) == len(y):
                    # A dim that is called otherwise, or fixed, still takes the same tensors.
                    same = all(
                        isinstance(i, str) or isinstance(j, str) or i == j
                        for i, j in zip(x, y, strict=True)
                    )
                    if same:
                        continue
                if x != y:
                    found.append(
                        f"{what}: {field} {_shown(x)} in the first, {_shown(y)} in the second"
                    )
    return found


def looser(first: Tolerance, second: Tolerance) -> Tolerance:
    """Return the tolerance that allows what either does."""
    return Tolerance(
        atol=max(first.atol, second.atol),
        rtol=max(first.rtol, second.rtol),
        min_cosine=min(first.min_cosine, second.min_cosine),
    )


def compare_afresh(
    signature: Signature,
    first: Runtime,
    second: Runtime,
    *,
    proven: Sequence[Mapping[str, int]],
    points: int,
    tolerance: Tolerance,
    seed: int,
    progress: Progress,
) -> tuple[ParityPoint, ...]:
    """Compare two artifacts at ``points`` random sizes, none larger than one of ``proven``."""
    rng = np.random.default_rng(seed)
    maker = RandomInputs(signature, seed)
    found = []
    for number in range(1, points + 1):
        within = proven[int(rng.integers(len(proven)))]
        sizes = {
            name: int(rng.integers(min(r.min, within[name]), within[name], endpoint=True))
            for name, r in signature.dims.items()
        }
        padded = signature.padding is not None and number % 2 == 0
        progress(f"fresh inputs {number}/{points}")
        inputs = maker.make(sizes, padded=padded)
        outputs = compare_outputs(
            signature.outputs, first.run(inputs), second.run(inputs), tolerance
        )
        told = tuple(
            o.model_copy(update={"why": o.why.replace("eager", "the first")}) if o.why else o
            for o in outputs
        )
        found.append(
            ParityPoint(
                label=f"fresh {number}", dims=sizes, inputs="random", padded=padded, outputs=told
            )
        )
    return tuple(found)


def _shown(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
