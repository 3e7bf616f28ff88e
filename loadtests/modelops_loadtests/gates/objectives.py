"""Service level objectives as they are written: on the command line or in a YAML file."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelops.config.yaml_values import MAX_BYTES, parse_yaml
from modelops.errors import InputError, UsageError
from modelops_loadtests.definitions import LOWER_BOUNDED, TIMINGS, timing_of

_STATISTICS = ("p50", "p90", "p95", "p99", "mean", "max")
_EXAMPLES = [f"{t}_{s}_ms" for t in TIMINGS for s in _STATISTICS]
_SHARES = ("error_rate", "goodput_share")


@dataclass(frozen=True)
class Gate:
    """One objective; ``bound`` is in the metric's unit, ``upper`` says on which side it lies."""

    metric: str
    bound: float
    upper: bool

    def __str__(self) -> str:
        return f"{self.metric} {'≤' if self.upper else '≥'} {self.bound:g}"


def parse(texts: Iterable[str]) -> tuple[Gate, ...]:
    """Read objectives such as ``e2e_p95_ms=300``, ``error_rate=0.1%``, ``qps=50``, or files of them.

    A text without ``=`` is the path of a YAML file: its key ``slo`` maps metrics to bounds. Latencies
    (in milliseconds) and the error rate are bounded from above, throughputs and goodput from below.

    Raises:
        UsageError: the form, the metric or the bound cannot be meant, or a metric comes twice.
        InputError: a file cannot be read, or is no such YAML.
    """  # noqa: E501
    gates: dict[str, Gate] = {}
    for said, metric, written in _pairs(texts):
        gate = _gate(said, metric, written)
        if metric in gates:
            raise UsageError(f"{said}: {metric} is given twice")
        gates[metric] = gate
    return tuple(gates.values())


def _pairs(texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield where each objective stands, its metric and its bound as written."""
    for text in texts:
        metric, equals, written = (part.strip() for part in text.partition("="))
        if equals and metric and written:
            yield f"--slo {text}", metric, written
        elif not equals and metric.endswith((".yaml", ".yml")):
            yield from _of_file(Path(metric))
        else:
            raise UsageError(
                f"cannot read {text!r} as an objective",
                hint='write it as "e2e_p95_ms=300", or name a .yaml file',
            )


def _of_file(path: Path) -> Iterator[tuple[str, str, str]]:
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the objectives in {path}: {error}") from error
    if len(text) > MAX_BYTES:
        raise InputError(f"{path} is larger than a file of objectives is")
    try:
        document = parse_yaml(text)
    except InputError as error:
        raise InputError(f"{path}: {error.message}", hint=error.hint) from error
    objectives: Any = document.value.get("slo")
    if not isinstance(objectives, dict) or set(document.value) != {"slo"}:
        raise InputError(f"{path} holds no objectives", hint="slo: {e2e_p95_ms: 300}")
    for metric, bound in objectives.items():
        if isinstance(bound, bool) or not isinstance(bound, int | float | str):
            line = document.line(("slo", metric))
            raise InputError(f"{path}, line {line}: the bound of {metric} is no number")
        yield f"{path}, line {document.line(('slo', metric))}", metric, str(bound)


def _gate(said: str, metric: str, written: str) -> Gate:
    if not (timing_of(metric) or metric in _SHARES or metric in LOWER_BOUNDED):
        raise unknown(metric)
    is_percent = written.endswith("%") and metric in _SHARES
    try:
        bound = float(written.removesuffix("%")) / 100 if is_percent else float(written)
    except ValueError:
        raise UsageError(f"{said}: {written!r} is no number") from None
    if not math.isfinite(bound) or bound < 0:
        raise UsageError(f"{said}: a bound is a finite number, not below zero")
    if metric in _SHARES and bound > 1:
        raise UsageError(
            f"{said}: a share lies between 0 and 1", hint=f"{metric}={bound:g}% for percent"
        )
    return Gate(metric, bound, upper=metric not in LOWER_BOUNDED)


def unknown(metric: str) -> UsageError:
    """Return the error for a metric that there is not, with the nearest that there is."""
    known = [*_EXAMPLES, "error_rate", *LOWER_BOUNDED]
    near = difflib.get_close_matches(metric, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    return UsageError(
        f"there is no metric {metric!r}",
        hint=f"{hint}known: {', '.join(TIMINGS)} with _p50_ms … _p99.9_ms, _mean_ms, _max_ms; "
        f"error_rate; {', '.join(LOWER_BOUNDED)}",
    )
