"""A comparison in words: the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modelops.report.units import UNKNOWN
from modelops_loadtests.gates.regressions import is_of_difference
from modelops_loadtests.report.wording import amount, metric

TONES = {"better": "good", "worse": "bad", "none": "muted", "unknown": "warn"}
SHOWN = {
    "better": "better",
    "worse": "worse",
    "none": "no difference shown",
    "unknown": "cannot be said",
}

_NOTHING, _ANYTHING = -99.9, 1000.0
"""Percent: an interval from all gone to ten times as much says nothing."""


@dataclass(frozen=True)
class Row:
    """One metric in words; ``tone`` is a colour's role."""

    metric: str
    name: str
    a: str
    b: str
    difference: str
    change: str
    between: str
    shown: str
    tone: str


def row(found: Mapping[str, Any]) -> Row:
    """Return one row of ``compare``'s result in words."""
    name = found["metric"]
    change, between = _change(found)
    return Row(
        name,
        metric(name),
        _side(found, "a"),
        _side(found, "b"),
        _difference(found),
        change,
        between,
        SHOWN[found["shown"]],
        TONES[found["shown"]],
    )


def headline(result: Mapping[str, Any]) -> tuple[str, str]:
    """Return the tone and the verdict in one line."""
    if result["verdict"] == "INVALID":
        return "bad", "INVALID: a run here may not be believed"
    gates, failed = result["gates"], sum(g["verdict"] == "FAIL" for g in result["gates"])
    if result["verdict"] == "FAIL":
        return "bad", f"FAIL: B is worse than allowed in {failed} of {len(gates)} limits"
    if result["verdict"] == "INCONCLUSIVE":
        return "warn", "INCONCLUSIVE: too few samples to decide"
    counts = {s: sum(r["shown"] == s for r in result["rows"]) for s in ("better", "worse")}
    if not any(counts.values()):
        said = "no difference shown"
    else:
        said = ", ".join(f"B is {s} in {n}" for s, n in counts.items() if n)
        said += f" of {len(result['rows'])} figures"
    if gates:
        return "good", f"PASS: within all limits; {said}"
    return "warn" if counts["worse"] else "good", said[0].upper() + said[1:]


def chance(result: Mapping[str, Any]) -> str:
    """Return what the intervals promise, and what they do not."""
    confidence = result["confidence"]
    return (
        f"Each interval holds with {confidence:.0%} confidence: of {len(result['rows'])} figures "
        f"of two equal servers, {(1 - confidence) * len(result['rows']):.1f} or fewer show a "
        "difference by chance."
    )


def _side(found: Mapping[str, Any], side: str) -> str:
    # With a difference there is a value, and one that is not finite lies among failed requests.
    if found[side] is None and found["difference"] is not None:
        return "failed"
    return amount(found["metric"], found[side])


def _difference(found: Mapping[str, Any]) -> str:
    apart = found["difference"]
    if apart is None or apart["value"] is None:
        return UNKNOWN
    return f"{'+' if apart['value'] >= 0 else '−'}{_size(found['metric'], abs(apart['value']))}"


def _size(name: str, value: float) -> str:
    return f"{value * 100:.3g} points" if is_of_difference(name) else amount(name, value)


def _change(found: Mapping[str, Any]) -> tuple[str, str]:
    """Return the change and its interval, in percent of A; of shares: in points."""
    times, apart = found["ratio"], found["difference"]
    if times is not None:
        value, low, high = (
            None if v is None else (v - 1) * 100
            for v in (times[k] for k in ("value", "low", "high"))
        )
        unit = "%"
    elif apart is not None and is_of_difference(found["metric"]):
        value, low, high = (
            None if v is None else v * 100 for v in (apart[k] for k in ("value", "low", "high"))
        )
        unit = "points"
    else:
        return UNKNOWN, ""
    shown = UNKNOWN if value is None else f"{_signed(value)} {unit}"
    if low is None and high is None:
        return shown, ""
    if unit == "%" and low is not None and low < _NOTHING and (high is None or high > _ANYTHING):
        return shown, "not known"
    ends = ("−∞" if low is None else _signed(low), "∞" if high is None else _signed(high))
    return shown, f"{ends[0]} to {ends[1]} {unit}"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")
