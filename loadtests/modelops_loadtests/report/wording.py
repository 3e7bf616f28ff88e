"""The figures of a load test in words and units, for every form that a report takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from modelops.report.names import printable
from modelops.report.units import UNKNOWN, number
from modelops.report.units import seconds as in_seconds
from modelops_loadtests.definitions import timing_of
from modelops_loadtests.gates.regressions import DIFFERENCE, RATIO

TONES = {
    "PASS": "good",
    "MEASURED": "good",
    "FAIL": "bad",
    "INVALID": "bad",
    "INCONCLUSIVE": "warn",
}
MARKS = {"good": "✓", "bad": "✗", "warn": "?"}
TIMINGS = {
    "ttft": "TTFT",
    "first_output": "First output",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2e": "End to end",
    "first_byte": "First byte",
    "ttft_from_sent": "TTFT from sent",
    "queued": "Held back by the client",
}
"""In the order in which a reply goes through them; the last ones are for those who look closer."""
_RATES = {
    "error_rate": "Error rate",
    "qps": "Requests/s",
    "items_per_s": "Inputs/s",
    "output_tokens_per_s": "Output tokens/s",
    "input_tokens_per_s": "Input tokens/s",
    "goodput_rps": "Goodput",
    "goodput_share": "Share of good requests",
}
_STATISTICS = {"mean": "mean", "max": "slowest"}
_SHARES = ("error_rate", "goodput_share")


def headline(result: Mapping[str, Any]) -> str:
    """Return the verdict in one line."""
    gates = result["gates"]
    verdict = result["verdict"]
    if verdict == "PASS":
        return f"PASS: {_all(len(gates))} held{_up_to(result)}"
    if verdict == "FAIL":
        failed = sum(gate["verdict"] == "FAIL" for gate in gates)
        if not failed:
            return "FAIL"
        which = f"{failed} of {_objectives(len(gates))}" if len(gates) > 1 else "the one objective"
        lowest = ", even at the lowest load" if result.get("sweep") else ""
        return f"FAIL: {which} did not hold{lowest}"
    return {
        "MEASURED": "Measured: no objective was set",
        "INCONCLUSIVE": "INCONCLUSIVE: too few samples to decide",
        "INVALID": "INVALID: this run may not be believed",
    }[str(verdict)]


def _up_to(result: Mapping[str, Any]) -> str:
    highest = load_of(result.get("highest_within_slo"))
    return "" if highest is None else f" up to {highest:g} {load_unit(result['spec'])}"


def load_unit(spec: Mapping[str, Any]) -> str:
    """Return what the load of a sweep is counted in."""
    return "requests/s" if spec["sweep"]["axis"] == "rate" else "users"


def load_of(found: Mapping[str, Any] | None) -> float | None:
    """Return the load of the knee, or the highest within the SLOs; None where there is none."""
    return None if found is None or found["load"] is None else float(found["load"])


def _objectives(count: int) -> str:
    return f"{count} objective" + ("s" if count != 1 else "")


def _all(count: int) -> str:
    return {1: "the one objective", 2: "both objectives"}.get(count, f"all {count} objectives")


def metric(name: str) -> str:
    """Return a metric's name as people write it: ``TTFT p95``."""
    for ending in (RATIO, DIFFERENCE):
        if name.endswith(ending):
            return metric(name.removesuffix(ending)) + ending
    parts = timing_of(name)
    if parts is None:
        return _RATES.get(name, name)
    timing, statistic = parts
    return f"{TIMINGS[timing]} {_STATISTICS.get(statistic, statistic)}"


def amount(name: str, value: float | None) -> str:
    """Return a metric's value with its unit."""
    if value is None:
        return UNKNOWN
    if name.endswith(RATIO):
        return f"{value:.3f} ×"
    if name.endswith(DIFFERENCE):
        return f"{value * 100:+.3g} points"
    if timing_of(name):
        return ms(value)
    if name in _SHARES:
        return share(value)
    return f"{number(value)}/s"


def ms(value: float | None) -> str:
    """Return milliseconds as ``412 ms`` or ``1.31 s``."""
    if value is None:
        return UNKNOWN
    return "0 ms" if value == 0 else in_seconds(value / 1000)


def share(value: float | None) -> str:
    """Return a share of one as percent; 100 % is all, 0 % is nothing."""
    if value is None:
        return UNKNOWN
    percent = value * 100
    if 0 < percent < 0.001:
        return "below 0.001 %"
    if 99.9 < percent < 100:
        return f"{math.floor(percent * 100) / 100:g} %"
    return f"{percent:.3g} %"


def bound(gate: Mapping[str, Any]) -> str:
    """Return what a gate asked for: ``≤ 300 ms``."""
    return f"{'≤' if gate['upper'] else '≥'} {amount(gate['metric'], gate['bound'])}"


def interval(gate: Mapping[str, Any]) -> str | None:
    """Return where the true value lies, with what confidence; None where nothing says so."""
    found = gate.get("interval")
    if not found:
        return None
    low, high = (found.get(end) for end in ("low", "high"))
    if low is None and high is None:
        return None
    name = gate["metric"]
    if low is None:
        return f"up to {amount(name, high)}"
    return f"{amount(name, low)} to {'∞' if high is None else amount(name, high)}"


def reason(gate: Mapping[str, Any]) -> str:
    """Return one sentence: what was measured, where the truth may lie, what was asked."""
    name = gate["metric"]
    asked = f"{'at most' if gate['upper'] else 'at least'} {amount(name, gate['bound'])}"
    if gate["value"] is None:
        return short(f"{metric(name)}: {asked} was asked; {gate['detail']}", 600)
    told = f"{metric(name)} was {amount(name, gate['value'])}"
    if near := interval(gate):
        told += f" ({near} with {gate['interval']['confidence']:.0%} confidence)"
    if gate["verdict"] != "INCONCLUSIVE":
        return f"{told}; {asked} was asked"
    needed = gate.get("samples_needed")
    would = f"; about {needed:,} would" if needed is not None and needed > gate["samples"] else ""
    return f"{told}; {gate['samples']:,} samples cannot say whether it is {asked}{would}"


def longer(seconds: float) -> str:
    """Return how long a run that does not decide would have to be, as something to type."""
    round_to = 10 if seconds < 120 else 60
    whole = math.ceil(seconds / round_to) * round_to
    typed = f"{whole}s" if whole < 120 else f"{whole // 60}m"
    return f"at this rate, measuring for about {typed} would decide: --duration {typed}"


def sentence(text: str) -> str:
    """Return a reason as it stands alone."""
    shown = short(text, 600)
    return shown[:1].upper() + shown[1:]


def short(text: object, most: int = 300) -> str:
    """Return a stranger's text made harmless and cut to ``most`` characters."""
    whole = str(text)
    shown = printable(whole[: most + 1])
    return shown if len(whole) <= most and len(shown) <= 2 * most else shown[: most - 1] + "…"


def model(result: Mapping[str, Any]) -> str:
    """Return what was loaded, for a heading."""
    spec = result["spec"]
    names = dict.fromkeys([*(spec.get("models") or {}).values(), spec["model"]])
    return short(", ".join(str(n) for n in names if n) or spec["scenario"], 120)


def load(spec: Mapping[str, Any]) -> str:
    """Return the shape of the load in words."""
    if spec.get("sweep"):
        sweep = spec["sweep"]
        loads = sweep["loads"]
        return f"a sweep from {loads[0]:g} to {loads[-1]:g} {load_unit(spec)}"
    if spec.get("trace"):
        return f"the arrivals of {short(spec['trace'], 120)}"
    if spec.get("rate"):
        arrivals = {"poisson": "Poisson", "constant": "even", "gamma": "gamma"}
        return f"{spec['rate']:g} requests/s in an open loop, {arrivals[spec['arrivals']]} arrivals"
    return f"{spec.get('users') or 8:,} users in a closed loop"
