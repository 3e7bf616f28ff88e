"""How wrong the client's own stamps are on this machine: a short run against the mock's clock.

The very client of the run, in processes of its own, reads about as many streams as the run will
from a mock that stamps what it really wrote when. What it then measured, less what was written,
is its error. It holds for a machine, the installed versions and the client's code, and is kept
for them in the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import platformdirs
import psutil

from modelops import __version__
from modelops.errors import ModelopsError
from modelops.progress import Progress, silent
from modelops_loadtests.accuracy import errors, spread
from modelops_loadtests.generator import Generator, StageEnd
from modelops_loadtests.load.stage import Stage
from modelops_loadtests.mock import MockServer, Script
from modelops_loadtests.preflight import look
from modelops_loadtests.samples import SampleTable
from modelops_loadtests.spec import RunSpec

CLASSES = (1, 4, 16, 64, 256)
"""Numbers of streams that are calibrated: a run has the error of the next one up."""

_SCRIPT = Script(ttft_ms="20..60", interval_ms=20)
_TOKENS = 30
_WARMUP_S = 0.6
_SECONDS = 1.8
_BUSY_CORES = 0.25
_SCHEMA = 1
_CODE = ("client", "load", "mock", "scenarios")


def bound(
    streams: int, *, processes: int = 1, fresh: bool = False, progress: Progress = silent
) -> dict[str, Any]:
    """Return the client's error with about so many streams at once, measured or from the cache.

    ``ttft_error_ms`` and ``itl_error_ms`` have ``p50`` and ``p99`` of the errors' sizes,
    ``streams`` is how many there were, ``measured_at`` when, ``machine`` on what. ``busy`` says
    that something else used the machine meanwhile: the errors are then no smaller than on a
    machine at rest, and are not kept. Where nothing could be measured the errors are None and
    ``problem`` says why.
    """
    count = next((n for n in CLASSES if n >= streams), CLASSES[-1])
    count = max(count, processes)
    about = {"schema": _SCHEMA, "streams": count, "processes": processes, **_identity()}
    kept = _cache_path(about)
    if not fresh and (found := _read(kept, about)) is not None:
        return {**found, "cached": True}
    progress(f"calibrating the client against the built-in mock: {count} streams")
    before = _others_seconds()
    try:
        measured = _measure(count, processes)
    except (ModelopsError, RuntimeError, OSError, ValueError) as error:
        # What was to be calibrated has been measured all the same.
        measured = {"ttft_error_ms": None, "itl_error_ms": None, "problem": str(error)}
    after = _others_seconds()
    result = {
        **measured,
        "streams": count,
        "processes": processes,
        "measured_at": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds"),
        "machine": about["machine"],
        "busy": (after[1] - before[1]) / (after[0] - before[0]) > _BUSY_CORES,
    }
    if not result["busy"] and result["problem"] is None:
        _write(kept, about, result)
    return {**result, "cached": False}


def _measure(streams: int, processes: int) -> dict[str, Any]:
    with MockServer(_SCRIPT) as mock, tempfile.TemporaryDirectory(prefix="modelops-") as private:
        spec = RunSpec(
            url=mock.url,
            scenario="chat",
            model="mock",
            users=streams,
            processes=processes,
            duration_s=_SECONDS,
            warmup_s=_WARMUP_S,
            output_tokens=_TOKENS,
            trace_ids=True,
            calibrate=False,
            server_metrics=False,
        )
        spec = look(spec, silent)
        folder = Path(private)
        with Generator(spec, folder, folder) as generator:
            end = generator.run(_stage(generator, streams), silent)
        samples = SampleTable.read(*generator.samples)
        stamps = mock.stamps()
    return {**_figures(samples, stamps), "problem": _problem(end, samples)}


def _stage(generator: Generator, streams: int) -> Stage:
    start = generator.begin()
    until = start + _WARMUP_S + _SECONDS
    return Stage(0, "users", streams, start, 0.0, _WARMUP_S, until, until)


def _figures(samples: SampleTable, stamps: Mapping[str, Any]) -> dict[str, Any]:
    # What began in the warm-up is left out: connections are made then, all at once.
    found = errors(samples.where(samples["sent"] >= _WARMUP_S), stamps["requests"])
    return {
        "ttft_error_ms": spread(found.ttft),
        "itl_error_ms": spread(found.itl),
        "requests": len(found.ttft),
        "gaps": len(found.itl),
        "mock_late_ms": stamps["late_ms"],
    }


def _problem(end: StageEnd, samples: SampleTable) -> str | None:
    if end.interrupted or end.died:
        return "; ".join(end.died) or "it was interrupted"
    failed = [kind for kind in samples.error if kind]
    return f"{len(failed)} requests failed, the first with {failed[0]}" if failed else None


def _others_seconds() -> tuple[float, float]:
    """Return a moment, and the CPU seconds that others than this process and its children used.

    Not the load average: that still remembers the run for which this calibrates.
    """
    whole = psutil.cpu_times()
    idle = whole.idle + getattr(whole, "iowait", 0.0)
    # On Linux a guest's time is part of user and nice already.
    guests = getattr(whole, "guest", 0.0) + getattr(whole, "guest_nice", 0.0)
    own = os.times()
    used = own.user + own.system + own.children_user + own.children_system
    return time.perf_counter(), sum(whole) - guests - idle - used


def _identity() -> dict[str, Any]:
    """Return what an error holds for: this machine, these versions, this code."""
    return {
        "machine": {
            "name": hashlib.sha256(platform.node().encode()).hexdigest()[:12],
            "cpu": _cpu(),
            "cpus": len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "versions": {
            "modelops": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("gevent", "httptools", "locust")},
        },
        "code": _code(),
    }


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _code() -> str:
    """Return a digest of the code that sends, reads and stamps."""
    here = Path(__file__).parent
    files = [*here.glob("*.py"), *(f for folder in _CODE for f in (here / folder).rglob("*.py"))]
    whole = hashlib.sha256()
    for file in sorted(files):
        whole.update(file.read_bytes())
    return whole.hexdigest()[:16]


def _cache_path(about: Mapping[str, Any]) -> Path:
    key = hashlib.sha256(orjson.dumps(dict(about), option=orjson.OPT_SORT_KEYS)).hexdigest()[:24]
    return Path(platformdirs.user_cache_dir("modelops")) / "calibration" / f"{key}.json"


def _read(path: Path, about: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what was kept; None where there is nothing, or it is not what it should be."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = orjson.loads(path.read_bytes())
        if kept["about"] == orjson.loads(orjson.dumps(dict(about))):
            result: dict[str, Any] = kept["result"]
            return result
    return None


def _write(path: Path, about: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    # A cache that cannot be written costs the next run three seconds, and no more.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}.tmp")
        written.write_bytes(orjson.dumps({"about": dict(about), "result": dict(result)}))
        written.replace(path)
