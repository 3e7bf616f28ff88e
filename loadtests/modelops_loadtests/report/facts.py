"""The key figures of a result, ready to be shown: tiles, latencies, the client's own health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from modelops.report.units import UNKNOWN, number
from modelops_loadtests.definitions import timing_of
from modelops_loadtests.report import wording
from modelops_loadtests.report.plots.plot import COLOURS
from modelops_loadtests.report.wording import TIMINGS, ms, share

SEPARATOR = " · "
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
_TIMED_TILES = (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "End to end"))
_OF_ALL = frozenset({"e2e", "first_byte"})


class Tile(NamedTuple):
    """One key figure; ``role`` is its colour in the plots, ``tone`` what an objective says."""

    label: str
    value: str
    small: str
    role: str
    tone: str = ""


def tiles(result: Mapping[str, Any]) -> list[Tile]:
    """Return the key figures in the order in which they are read."""
    figures = result["summary"]
    found = [_throughput(result)]
    for timing, label in _TIMED_TILES:
        row = figures.get(f"{timing}_ms") or {}
        if row.get("p50") is None:
            if timing == "e2e":
                found.append(Tile("End to end", UNKNOWN, "no request succeeded", "s1"))
            continue
        asked = _asked(result, timing)
        main = asked if row.get(asked) is not None else "p95"
        small = SEPARATOR.join(f"{p} {ms(row[p])}" for p in ("p50", "p95", "p99") if p != main)
        role = COLOURS.get(timing, COLOURS["itl"])
        found.append(Tile(f"{label} {main}", ms(row[main]), small, role, _tone(result, timing)))
    if figures.get("goodput_rps") is not None:
        good = figures.get("goodput_share")
        small = "within every latency objective"
        if good is not None:
            small = f"{share(good)} of requests {small}"
        tone = _tone(result, "goodput_rps") or _tone(result, "goodput_share")
        found.append(Tile("Goodput", f"{number(figures['goodput_rps'])}/s", small, "good", tone))
    lost = f"{figures['failed']:,} of {figures['requests']:,} failed"
    if figures["cut"]:
        lost += f", {figures['cut']:,} cut"
    tone = _tone(result, "error_rate") or ("bad" if figures["failed"] else "")
    role = "bad" if figures["failed"] else COLOURS["quiet"]
    found.append(Tile("Errors", share(figures["error_rate"]), lost, role, tone))
    return found


def _throughput(result: Mapping[str, Any]) -> Tile:
    figures = result["summary"]
    small = "completed without error"
    if figures.get("output_tokens_per_s") is not None:
        small = f"{number(figures['output_tokens_per_s'])} output tokens/s"
    elif figures.get("items_per_s") not in (None, figures["qps"]):
        small = f"{number(figures['items_per_s'])} inputs/s"
    value = UNKNOWN if figures["qps"] is None else f"{number(figures['qps'])}/s"
    return Tile("Requests", value, small, COLOURS["throughput"], _tone(result, "qps"))


def _asked(result: Mapping[str, Any], timing: str) -> str:
    """Return the percentile that an objective names, else the 95th."""
    for gate in result["gates"]:
        parts = timing_of(gate["metric"])
        if parts and parts[0] == timing and parts[1].startswith("p"):
            return parts[1]
    return "p95"


def _tone(result: Mapping[str, Any], name: str) -> str:
    """Return good, bad or warn where an objective is on this timing or rate."""
    verdicts = {
        gate["verdict"]
        for gate in result["gates"]
        if gate["metric"] == name or (timing_of(gate["metric"]) or ("",))[0] == name
    }
    for verdict in ("FAIL", "INCONCLUSIVE", "PASS"):
        if verdict in verdicts:
            return wording.TONES[verdict]
    return ""


class Latency(NamedTuple):
    """One timing: its cells are milliseconds in words, with the interval where it is known."""

    name: str
    meaning: str
    samples: int | None
    cells: dict[str, tuple[str, str | None]]


def latencies(result: Mapping[str, Any]) -> list[Latency]:
    """Return every timing that was measured."""
    from modelops_loadtests.definitions import TIMINGS as DEFINED

    rows = []
    for timing, name in TIMINGS.items():
        row = result["summary"].get(f"{timing}_ms") or {}
        if row.get("p50") is None:
            continue
        near = (result.get("intervals") or {}).get(f"{timing}_ms") or {}
        cells = {s: (ms(row.get(s)), _between(near.get(s))) for s in STATISTICS}
        rows.append(Latency(name, DEFINED[timing].meaning, row.get("count"), cells))
    return rows


def _between(found: Any) -> str | None:
    if not found:
        return None
    low, high = found
    if low is None and high is None:
        return None
    return f"{'0' if low is None else ms(low)} – {'∞' if high is None else ms(high)}"


class Health(NamedTuple):
    """One figure of the client itself, and the bound beyond which the run is not believed."""

    name: str
    value: str
    bound: str
    within: bool | None


_CLIENT: tuple[tuple[str, str, str, str], ...] = (
    ("cpu_share", "CPU, of one core", "share", "cpu_share"),
    ("lag_p99_ms", "Lag of its loop, p99", "ms", "lag_p99_ms"),
    ("lag_max_ms", "Lag of its loop, largest", "ms", ""),
    ("cpu_wait_share", "Waiting for a core", "share", ""),
    ("read_lag_p50_ms", "Read after it had arrived, p50", "ms", "read_lag_p50_ms"),
    ("read_lag_p99_ms", "Read after it had arrived, p99", "ms", "read_lag_p99_ms"),
    ("send_lag_p99_ms", "Handing a request to the kernel, p99", "ms", "send_lag_p99_ms"),
    ("queued_p99_ms", "Sent after it was due, p99", "ms", "queued_p99_ms"),
    ("coalesced_share", "Chunks that came in one read with another", "share", "coalesced_share"),
)


def health(result: Mapping[str, Any]) -> list[Health]:
    """Return what the client says of itself; what it does not say is left out."""
    client, bounds = result["client"], result["bounds"]
    rows = []
    for key, name, unit, bound in _CLIENT:
        value = client.get(key)
        if value is None:
            continue
        shown = share if unit == "share" else ms
        most = bounds.get(bound) if bound else None
        within = None if most is None else value <= most
        rows.append(Health(name, shown(value), "" if most is None else f"≤ {shown(most)}", within))
    rate = client.get("rate") or {}
    if rate.get("scheduled") and rate.get("delivered") is not None:
        off = abs(rate["delivered"] / rate["scheduled"] - 1)
        most = bounds.get("rate_share")
        words = f"{number(rate['delivered'])} of {number(rate['scheduled'])} requests/s"
        within = None if most is None else off <= most
        rows.append(
            Health(
                "Sent, of what was due", words, "" if most is None else f"± {share(most)}", within
            )
        )
    return rows + _tokens(client.get("tokens") or {}, bounds.get("tokens_share"))


def _tokens(told: Mapping[str, Any], most: float | None) -> list[Health]:
    """Return how many tokens the server counted, beside how many were asked for."""
    rows = []
    for side, name in (("input", "Tokens in a prompt"), ("output", "Tokens in a reply")):
        found = told.get(side)
        if not found:
            continue
        words = f"{number(found['counted'])} counted, {number(found['asked'])} asked"
        off = abs(found["ratio"] - 1) if side == "input" else found["ratio"] - 1
        bound = "" if most is None else f"{'±' if side == 'input' else '+'} {share(most)}"
        rows.append(Health(name, words, bound, None if most is None else off <= most))
    return rows


def calibration(result: Mapping[str, Any]) -> str:
    """Return in words what this client adds to what it measures."""
    found = result.get("calibration") or {}
    first, gap = (found.get(f"{name}_error_ms") or {} for name in ("ttft", "itl"))
    if first.get("p99") is None:
        if problem := found.get("problem"):
            return f"How much this client adds is not known: {wording.short(problem)}."
        asked = result["spec"].get("calibrate", True)
        why = "only streams of tokens are" if asked else "--no-calibration"
        return f"What this client adds was not calibrated: {why}."
    words = f"This client adds at most {ms(abs(first['p99']))} at p99 to a time to first token"
    if gap.get("p99") is not None:
        words += f", and {ms(abs(gap['p99']))} to a gap between tokens"
    if found.get("streams"):
        count = f"{found['streams']:,} stream" + ("s" if found["streams"] > 1 else "")
        words += f" ({count} of a mock server that stamps what it writes)"
    if found.get("busy"):
        words += "; something else used the machine meanwhile, so it is less where nothing does"
    return f"{words}."


def stamps(result: Mapping[str, Any]) -> str:
    """Return in words who took the times of arrival."""
    told = result["client"].get("stamps")
    if told == "kernel":
        return "Arrivals are stamped by the kernel, before the client comes to read them."
    if told == "user":
        return "Arrivals are stamped right after each read: how late it read is part of them."
    return ""


def silence(result: Mapping[str, Any]) -> str | None:
    """Return why there is nothing of the server's own to show; None where there is."""
    told = result.get("server_metrics")
    if not told:
        return "The server's own metrics were not looked at."
    why = told["why"]
    return None if why is None else f"Of the server itself there is nothing: {wording.short(why)}."
