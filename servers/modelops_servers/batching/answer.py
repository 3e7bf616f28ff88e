"""One batch through the engine: each item gets its own answer or its own failure."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

from modelops.errors import (
    DeadlineError,
    EngineError,
    ModelopsError,
    NotReadyError,
    OverloadedError,
)
from modelops.protocols import TensorEngine, Tensors
from modelops.signature import Signature
from modelops_servers.batching.item import Item
from modelops_servers.batching.layout import layout_of
from modelops_servers.batching.merge import merge, split

_log = logging.getLogger(__name__)

Outputs = dict[str, npt.NDArray[Any]]

# These are about the engine or the time, not about any of the items.
_EVERYBODYS = (NotReadyError, OverloadedError, DeadlineError)


def answer(
    engine: TensorEngine,
    signature: Signature,
    items: Sequence[Item],
    monotonic: Callable[[], float] = time.monotonic,
) -> list[Outputs | ModelopsError]:
    """Run ``items`` in one call and return what each gets, in order; raises nothing.

    Where the call fails, each half is run again, so that only the guilty fail: an input that the
    runtime refuses, or a batch that was too large for it.
    """
    try:
        return list(_run(engine, signature, items))
    except ModelopsError as error:
        failure = error
    except Exception as error:  # noqa: BLE001 - the engine's thread must outlive any request
        _log.exception("the engine failed in an unforeseen way")
        failure = EngineError(f"the engine failed: {type(error).__name__}")
    if len(items) == 1 or isinstance(failure, _EVERYBODYS):
        return [failure] * len(items)
    _log.warning("a call of %d requests failed; running its halves: %s", len(items), failure)
    middle = len(items) // 2
    return [
        result
        for half in (items[:middle], items[middle:])
        for result in _again(engine, signature, half, monotonic)
    ]


def _run(engine: TensorEngine, signature: Signature, items: Sequence[Item]) -> list[Outputs]:
    deadlines = [item.deadline for item in items if item.deadline is not None]
    # The engine may give up only when nobody waits any more.
    deadline = max(deadlines) if len(deadlines) == len(items) else None
    outputs = engine.infer(merge(signature, items), deadline)
    _check(signature, items, outputs)
    return split(signature, items, outputs)


def _check(signature: Signature, items: Sequence[Item], outputs: Tensors) -> None:
    """Refuse outputs that cannot be handed out: the wrong rows would be someone else's answer."""
    layout = layout_of(signature)
    rows = sum([item.rows for item in items])
    longest = 0 if layout.padding is None else max([item.length for item in items])
    for name, dtype, rank, padded in layout.outputs:
        array = outputs.get(name)
        if array is None:
            raise EngineError(f"the engine did not return output {name!r}")
        if array.dtype != dtype:
            raise EngineError(f"{name!r} is {array.dtype} where the signature has {dtype}")
        if layout.batch is None:
            continue
        shape = array.shape
        wrong = len(shape) != rank or shape[0] != rows
        if wrong or (padded and any(shape[axis] != longest for axis in padded)):
            positions = f" of {longest} positions" if padded else ""
            raise EngineError(f"{rows} rows{positions} gave {name!r} of shape {list(shape)}")


def _again(
    engine: TensorEngine,
    signature: Signature,
    items: Sequence[Item],
    monotonic: Callable[[], float],
) -> list[Outputs | ModelopsError]:
    """Run those that somebody still waits for."""
    now = monotonic()
    results: list[Outputs | ModelopsError | None] = [None] * len(items)
    for number, item in enumerate(items):
        if item.cancelled:
            results[number] = EngineError("withdrawn")
        elif item.deadline is not None and now >= item.deadline:
            results[number] = DeadlineError(
                "the deadline passed while another request of the same call failed"
            )
    live = [item for item, result in zip(items, results, strict=True) if result is None]
    fresh = iter(answer(engine, signature, live, monotonic) if live else ())
    return [next(fresh) if result is None else result for result in results]
