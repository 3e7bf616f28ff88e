"""Naming, in a parity that did not hold, the layer where it was lost."""

from __future__ import annotations

from pathlib import Path

from modelops.artifact.manifest import Manifest, Parity
from modelops.parity.check import Sample
from modelops.protocols import Exporter


def name_the_layer(
    parity: Parity, samples: list[Sample], exporter: Exporter, folder: Path, draft: Manifest
) -> Parity:
    """Return ``parity`` with the first layer that is off told at the first point that failed.

    The same where it held, or where the target keeps no names of the trace.
    """
    program = getattr(exporter, "translated", None)
    if parity.passed or program is None:
        return parity
    from modelops_exporters.bisect import locate

    failed = [
        (number, sample)
        for number, (point, sample) in enumerate(zip(parity.points, samples, strict=False))
        if not point.passed
    ]
    if not failed:
        return parity
    # The first that failed is the one that is told, and points come from the smallest on.
    number, sample = failed[0]
    parting = locate(program, folder, draft, sample.inputs)
    if parting is None:
        return parity
    point = parity.points[number]
    outputs = list(point.outputs)
    first = next(i for i, o in enumerate(outputs) if not o.passed)
    told = f"{outputs[first].why}; {parting}"
    outputs[first] = outputs[first].model_copy(update={"why": told})
    points = list(parity.points)
    points[number] = point.model_copy(update={"outputs": tuple(outputs)})
    return parity.model_copy(update={"points": tuple(points)})
