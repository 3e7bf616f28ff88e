"""The user's own data in an export's proof: parity on it, and the task metric over it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from modelops.artifact.manifest import OutputParity, ParityPoint, Tolerance
from modelops.errors import InputError, UsageError
from modelops.parity import compare_outputs
from modelops.parity.batches import Batch, batches
from modelops.parity.inputs import Arrays
from modelops.parity.user_data import UserData, inputs_of, leading_dim, read_user_data, stacked
from modelops.progress import Progress
from modelops.protocols import Runtime
from modelops.requests import ExportRequest
from modelops.signature import Signature
from modelops_exporters.imported import imported
from modelops_exporters.prepared import Prepared
from modelops_exporters.user_code import user_line

Metric = Callable[[Arrays, Arrays], Any]


@dataclass(frozen=True)
class OwnData:
    """The user's items as calls, and the metric by which they judge."""

    data: UserData
    calls: list[Batch]
    signature: Signature
    metric_name: str | None
    metric: Metric | None
    max_drop: float | None


@dataclass(frozen=True)
class Found:
    """What the user's data showed; ``inputs`` are those of the worst call."""

    point: ParityPoint
    inputs: Arrays
    checks: tuple[str, ...]
    failures: tuple[str, ...]


def read_own_data(
    request: ExportRequest,
    prepared: Prepared,
    signature: Signature,
    nbytes: Callable[[dict[str, int]], int],
) -> OwnData | None:
    """Read what ``--data`` and ``--metric`` name; None where neither was given.

    Raises:
        UsageError: one was given without what it needs.
        InputError: the data do not fit the model.
    """
    if request.metric is not None and request.data is None:
        raise UsageError("--metric is over your own data", hint="add --data FILE")
    if request.max_drop is not None and request.metric is None:
        raise UsageError("--max-drop is of a metric", hint="add --metric MODULE:FUNCTION")
    if request.data is None:
        return None
    metric: Metric | None = None
    if request.metric is not None:
        metric = imported(request.metric, "--metric", "package.module:function")
    data = read_user_data(request.data, signature, encode=prepared.encode)
    calls = batches(data, signature, nbytes=nbytes, budget=request.memory_budget)
    return OwnData(data, calls, signature, request.metric, metric, request.max_drop)


def prove(
    own: OwnData, eager: Runtime, artifact: Runtime, tolerance: Tolerance, progress: Progress
) -> Found:
    """Compare the two on every item, and by the metric where there is one.

    Raises:
        InputError: the metric raises, or is no finite number on eager's own answers.
        VerificationError: the artifact fails on these inputs.
    """
    signature = own.signature
    worst: dict[str, OutputParity] = {}
    where: dict[str, Batch] = {}
    rows: tuple[dict[str, dict[int, Any]], ...] = ({}, {})
    for number, call in enumerate(own.calls, 1):
        progress(f"your data {number}/{len(own.calls)}: {len(call.items)} items")
        expected, got = eager.run(call.inputs), artifact.run(call.inputs)
        for found in compare_outputs(signature.outputs, expected, got, tolerance):
            if found.output not in worst or _badness(found) > _badness(worst[found.output]):
                worst[found.output], where[found.output] = found, call
        if own.metric is not None:
            for kept, outputs in zip(rows, (expected, got), strict=True):
                _keep_rows(kept, outputs, call, own)
    shown = max(worst, key=lambda name: _badness(worst[name]))
    call = where[shown]
    point = ParityPoint(
        label="your data",
        dims=signature.bind({n: a.shape for n, a in call.inputs.items()}),
        inputs="data",
        padded=signature.padding is not None and not call.inputs[signature.padding.mask].all(),
        outputs=tuple(worst[t.name] for t in signature.outputs),
    )
    count, name = len(own.data.items), own.data.name
    checks = [f"all {count} items of {name} were compared with eager, in {len(own.calls)} calls"]
    failures: list[str] = []
    if own.metric is not None:
        _judge(own, rows, checks, failures)
    return Found(point, call.inputs, tuple(checks), tuple(failures))


def _judge(
    own: OwnData,
    rows: tuple[dict[str, dict[int, Any]], ...],
    checks: list[str],
    failures: list[str],
) -> None:
    data = inputs_of(own.data, own.signature) | own.data.extras
    values = [
        _measured(
            own, {n: stacked([r for _, r in sorted(o.items())]) for n, o in side.items()}, data
        )
        for side in rows
    ]
    name = own.metric_name
    if not math.isfinite(values[0]):
        raise InputError(f"{name} gives {values[0]} on eager PyTorch's own answers")
    drop = values[0] - values[1]
    said = f"{name} over {own.data.name}: eager {values[0]:.6g}, the artifact {values[1]:.6g}"
    if not math.isfinite(values[1]):
        failures.append(said)
        return
    said += f", a drop of {drop:.3g}"
    if own.max_drop is not None:
        said += f" where {own.max_drop:g} is allowed"
    # A drop of exactly what is allowed must not fail by the last bit of a difference.
    if own.max_drop is not None and drop > own.max_drop + 1e-12 * max(1.0, abs(values[0])):
        failures.append(said)
    else:
        checks.append(said)


def _measured(own: OwnData, outputs: Arrays, data: Arrays) -> float:
    try:
        # Copies: a metric that works in place must not change what the other side is given.
        value = own.metric(  # type: ignore[misc]
            {n: a.copy() for n, a in outputs.items()}, {n: a.copy() for n, a in data.items()}
        )
        return float(value)
    except Exception as error:
        where = user_line(error)
        raise InputError(
            f"{own.metric_name} raises {type(error).__name__}: {error}"
            + (f" ({where})" if where else ""),
            hint="it is called as function(outputs, data), two dicts of arrays over all items, and "
            "returns a number",
        ) from error


def _keep_rows(kept: dict[str, dict[int, Any]], outputs: Arrays, call: Batch, own: OwnData) -> None:
    """Keep each item's own part of the outputs: its row, without what was padded."""
    signature = own.signature
    lead, padding = leading_dim(signature), signature.padding
    for spec in signature.outputs:
        rows = kept.setdefault(spec.name, {})
        array = outputs[spec.name]
        if lead is None or not spec.shape or spec.shape[0] != lead:
            rows[call.items[0]] = array
            continue
        for row, item in enumerate(call.items):
            rows[item] = _unpadded(array[row], spec.shape[1:], own.data.items[item], padding)


def _unpadded(
    row: npt.NDArray[Any], shape: tuple[int | str, ...], item: Arrays, padding: Any
) -> Any:
    if padding is None or padding.dim not in shape:
        return row
    length = item[padding.mask].shape[-1]
    return row[tuple(slice(length) if d == padding.dim else slice(None) for d in shape)]


def _badness(found: OutputParity) -> tuple[bool, float]:
    largest = found.max_rel if found.max_rel is not None else found.max_abs
    return not found.passed, math.inf if largest is None and not found.passed else largest or 0.0
