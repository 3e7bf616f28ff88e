"""The command line that repeats a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

_DURATIONS = ("duration", "max_duration", "warmup", "ramp", "drain", "timeout", "think")
_PLAIN = (
    *("users", "rate", "arrivals", "burstiness", "trace", "connections", "processes"),
    *("input_tokens", "output_tokens", "shared_prefix", "turns", "data", "tokenizer"),
    *("temperature", "encoding", "batch", "baseline", "metrics_url", "seed"),
)
_ALWAYS = frozenset({"seed", "duration", "warmup", "timeout"})
_LEFT_OUT: Mapping[str, Any] = {
    "processes": 1,
    "shared_prefix": 0,
    "turns": 1,
    "encoding": "json",
    "batch": 1,
    "arrivals": "poisson",
    "burstiness": 1,
    "ramp": 0,
    "think": 0,
}
"""Options that say no more than their default does."""
_FLAGS = {
    ("stream", False): "--no-stream",
    ("ignore_eos", True): "--ignore-eos",
    ("ignore_eos", False): "--stop-at-eos",
    ("calibrate", False): "--no-calibration",
    ("server_metrics", False): "--no-server-metrics",
}


def command(spec: Mapping[str, Any]) -> str:
    """Return the command that repeats the run of ``spec``; the key is never part of it."""
    words = ["modelops", "loadtest", spec["url"], "--scenario", spec["scenario"]]
    models = spec.get("models") or {}
    if spec["model"] is not None:
        words += ["--model", spec["model"]]
    for scenario, name in models.items():
        words += ["--model", f"{scenario}={name}"]
    if sweep := spec.get("sweep"):
        words += ["--sweep", _sweep(sweep)]
    for name in _PLAIN:
        if _told(name, value := spec.get(name)):
            words += [_option(name), _text(value)]
    for name in _DURATIONS:
        if _told(name, value := spec.get(f"{name}_s")):
            words += [_option(name), f"{value:g}s"]
    for name, size in spec["dims"].items():
        words += ["--dim", f"{name}={size}"]
    for objective in spec["slo"]:
        words += ["--slo", objective]
    for regression in spec.get("max_regression", ()):
        words += ["--max-regression", regression]
    words += [flag for (name, said), flag in _FLAGS.items() if spec.get(name) is said]
    return shlex.join(map(str, words))


def _told(name: str, value: object) -> bool:
    return value is not None and (name in _ALWAYS or _LEFT_OUT.get(name) != value)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):  # a span of tokens
        low, high = value["low"], value["high"]
        return str(low) if low == high else f"{low}..{high}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sweep(sweep: Mapping[str, Any]) -> str:
    loads = [f"{load:g}" for load in sweep["loads"]]
    written = f"{loads[0]}..{loads[-1]}" if sweep["refine"] else ",".join(loads)
    return f"{sweep['axis']}={written}"
