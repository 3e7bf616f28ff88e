"""The proof: eager and artifact side by side, at every point, padded and unpadded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy.typing as npt

from modelops.artifact.manifest import OutputParity, Parity, ParityPoint, Tolerance
from modelops.errors import RequestError
from modelops.parity.compare import compare_outputs
from modelops.parity.inputs import Arrays
from modelops.parity.points import Point
from modelops.progress import Progress, silent
from modelops.protocols import Runtime, Tensors
from modelops.signature import Signature

Eager = Runtime
"""The model before export, behind the same interface as the artifact's runtime."""


class InputMaker(Protocol):
    """Where the inputs of a comparison come from."""

    def random(self, dims: dict[str, int], *, padded: bool) -> Arrays:
        """Return random inputs at the sizes ``dims``, with ragged lengths where ``padded``."""

    def realistic(self, dims: dict[str, int]) -> Arrays | None:
        """Return inputs such as users send, at about the sizes ``dims``; None if unknown."""


@dataclass(frozen=True)
class Sample:
    """One checked point's inputs and what eager made of them."""

    label: str
    inputs: Arrays
    outputs: Arrays


@dataclass(frozen=True)
class Case:
    """One comparison to make."""

    label: str
    kind: Literal["random", "realistic"]
    padded: bool
    inputs: Arrays


def plan_cases(signature: Signature, maker: InputMaker, points: Sequence[Point]) -> list[Case]:
    """Return every comparison: each point unpadded, padded where there is a mask, and realistic."""
    cases: list[Case] = []
    for point in points:
        cases.append(Case(point.label, "random", False, maker.random(point.dims, padded=False)))
        if signature.padding is not None:
            cases.append(Case(point.label, "random", True, maker.random(point.dims, padded=True)))
    # The extremes are the random inputs' business; users' inputs lie between.
    for point in points[1:3] or points:
        if (inputs := maker.realistic(point.dims)) is not None:
            padded = signature.padding is not None and not inputs[signature.padding.mask].all()
            cases.append(Case(point.label, "realistic", bool(padded), inputs))
    return cases


def check_parity(
    signature: Signature,
    eager: Eager,
    artifact: Runtime,
    *,
    maker: InputMaker,
    points: Sequence[Point],
    tolerance: Tolerance,
    seed: int,
    budget: int,
    progress: Progress = silent,
) -> tuple[Parity, list[Sample]]:
    """Compare ``artifact`` with ``eager`` and return the evidence, passed or not.

    Args:
        signature: what both take and give.
        eager: the model as PyTorch runs it.
        artifact: the exported model in its own runtime.
        maker: where inputs come from.
        points: the sizes to check at (``choose_points``).
        tolerance: how far an output may be.
        seed: recorded, so that the inputs can be made again.
        budget: recorded, bytes; the largest point was chosen to fit it.
        progress: told before each comparison.

    Returns:
        The evidence for the manifest, and the samples that it rests on.
    """
    cases = plan_cases(signature, maker, points)
    checked: list[ParityPoint] = []
    samples: list[Sample] = []
    for number, case in enumerate(cases, 1):
        sizes = signature.bind({name: a.shape for name, a in case.inputs.items()})
        shown = " ".join(f"{k}={v}" for k, v in sizes.items())
        progress(f"parity {number}/{len(cases)}: {case.label}, {case.kind}, {shown}")
        expected = eager.run(case.inputs)
        outputs = compare_outputs(signature.outputs, expected, artifact.run(case.inputs), tolerance)
        checked.append(
            ParityPoint(
                label=case.label,
                dims=sizes,
                inputs=case.kind,
                padded=case.padded,
                outputs=outputs,
            )
        )
        samples.append(Sample(f"{case.label}-{case.kind}", case.inputs, expected))
    checks: list[str] = []
    if signature.padding is not None:
        progress("checking that padding does not change an answer")
        point = points[min(1, len(points) - 1)]
        inputs = maker.random(point.dims, padded=True)
        found = check_padding(signature, eager, artifact, inputs, tolerance)
        checked.append(
            ParityPoint(
                label="alone or padded",
                dims=signature.bind({name: a.shape for name, a in inputs.items()}),
                inputs="random",
                padded=True,
                outputs=found,
            )
        )
        checks.append("an item's answer is the same alone as padded in a batch")
    return (
        Parity(
            tolerance=tolerance,
            seed=seed,
            memory_budget=budget,
            points=tuple(checked),
            checks=tuple(checks),
        ),
        samples,
    )


def check_padding(
    signature: Signature,
    eager: Eager,
    runtime: Runtime,
    inputs: Tensors,
    tolerance: Tolerance,
) -> tuple[OutputParity, ...]:
    """Compare each item of the padded batch ``inputs`` with eager's answer to it alone.

    Returns:
        For each output the worst item.
    """
    padding = signature.padding
    if padding is None:
        raise RequestError("the signature knows no padding")
    together = runtime.run(inputs)
    lengths = inputs[padding.mask].sum(axis=-1).astype(int)
    worst: dict[str, OutputParity] = {}
    for item, length in enumerate(lengths):
        # A dim that may not be so short keeps its padding down to the least size.
        keep = max(int(length), signature.dims[padding.dim].min)
        alone = eager.run(
            {
                t.name: _cut(inputs, t.name, t.shape, padding.dim, item, keep)
                for t in signature.inputs
            }
        )
        batch = {
            t.name: _cut(together, t.name, t.shape, padding.dim, item, keep, real=int(length))
            for t in signature.outputs
        }
        only = {
            t.name: _cut(alone, t.name, t.shape, padding.dim, 0, keep, real=int(length))
            for t in signature.outputs
        }
        for found in compare_outputs(signature.outputs, only, batch, tolerance):
            known = worst.get(found.output)
            if known is None or _distance(found) > _distance(known):
                worst[found.output] = found
    return tuple(worst[t.name] for t in signature.outputs)


def _cut(
    tensors: Tensors,
    name: str,
    shape: tuple[int | str, ...],
    dim: str,
    item: int,
    keep: int,
    *,
    real: int | None = None,
) -> npt.NDArray[Any]:
    array = tensors[name][item : item + 1]
    index = tuple(
        slice(0, real if real is not None else keep) if d == dim else slice(None) for d in shape
    )
    return array[index]


def _distance(found: OutputParity) -> float:
    if not found.passed:
        return float("inf")
    return found.max_abs or 0.0


def recheck_samples(
    signature: Signature, artifact: Runtime, samples: Sequence[Sample], tolerance: Tolerance
) -> tuple[ParityPoint, ...]:
    """Compare ``artifact`` on this machine with the stored outputs of eager."""
    points = []
    for sample in samples:
        sizes = signature.bind({name: a.shape for name, a in sample.inputs.items()})
        padding = signature.padding
        label, _, kind = sample.label.rpartition("-")
        points.append(
            ParityPoint(
                label=label,
                dims=sizes,
                inputs="realistic" if kind == "realistic" else "random",
                padded=padding is not None and not bool(sample.inputs[padding.mask].all()),
                outputs=compare_outputs(
                    signature.outputs, sample.outputs, artifact.run(sample.inputs), tolerance
                ),
            )
        )
    return tuple(points)
