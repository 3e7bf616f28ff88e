"""The process that holds locust: runs one RunSpec and tells its parent how it goes.

``python -m modelops_loadtests.child SPEC SAMPLES``: SPEC is a JSON file, SAMPLES is written. On
stdout one JSON object a line: ``{"progress": …}`` twice a second, then ``{"done": …}`` or
``{"failed": …}``. A line ``stop`` on stdin, or its end, ends the run early. Whatever locust prints
goes to stderr.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import gevent
import orjson
from gevent.event import Event
from gevent.os import tp_read
from locust import events  # first: it patches the standard library
from locust.env import Environment

from modelops import registry
from modelops.errors import ModelopsError
from modelops_loadtests.health import HealthMonitor
from modelops_loadtests.preflight import http_get, key_headers
from modelops_loadtests.samples import SampleLog
from modelops_loadtests.scenarios.scenario import Settings
from modelops_loadtests.spec import RunSpec
from modelops_loadtests.users import ScenarioUser

_STOPPED_DRAIN = 1.0


def main(spec_path: str, samples_path: str) -> None:
    """Run the spec; every outcome is told on stdout, and the exit code is 0 when it was told."""
    channel = os.dup(1)
    os.dup2(2, 1)
    spec = RunSpec.model_validate_json(Path(spec_path).read_bytes())
    try:
        with Path(samples_path).open("wb") as stream:
            done = _run(spec, SampleLog(stream), channel)
        _tell(channel, {"done": done})
    except ModelopsError as error:
        kind, code = type(error).__name__, error.exit_code
        body = {"type": kind, "message": error.message, "hint": error.hint, "exit_code": code}
        _tell(channel, {"failed": body})


def _tell(channel: int, message: dict[str, Any]) -> None:
    os.write(channel, orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))


def _run(spec: RunSpec, log: SampleLog, channel: int) -> dict[str, Any]:
    key = os.environ.get("MODELOPS_API_KEY") or None
    settings = Settings(
        model=spec.model or "",
        data=spec.data,
        encoding=spec.encoding,
        batch=spec.batch,
        dims=spec.dims,
        seed=spec.seed,
    )
    scenario_class = registry.resolve("scenarios", spec.scenario)
    get = http_get(spec.url, key_headers(key), timeout=spec.timeout_s)
    scenario = scenario_class.prepare(settings, get)

    class LoadtestUser(ScenarioUser):
        pass

    user = LoadtestUser
    user.scenario_class, user.prepared, user.settings = scenario_class, scenario, settings
    user.timeout, user.sink, user.api_key = spec.timeout_s, log, key
    environment = Environment(user_classes=[user], events=events, host=spec.url)
    broken: list[str] = []

    def on_user_error(exception: BaseException, **_: Any) -> None:
        broken.append(f"{type(exception).__name__}: {exception}")

    environment.events.user_error.add_listener(on_user_error)  # type: ignore[no-untyped-call]
    runner = environment.create_local_runner()
    stop = Event()
    gevent.spawn(_listen, stop)

    started = time.time()
    user.clock_start = zero = time.perf_counter()
    health = HealthMonitor(zero)
    watch = gevent.spawn(health.run)
    runner.start(spec.concurrency, spawn_rate=spec.concurrency)
    until = spec.warmup_s + spec.duration_s
    while (now := time.perf_counter() - zero) < until and not broken:
        phase = "warming up" if now < spec.warmup_s else "measuring"
        _tell(channel, {"progress": {"t": now, "phase": phase, **log.counts}})
        log.flush()
        if stop.wait(min(0.5, until - now)):
            break
    ended = min(time.perf_counter() - zero, until)
    _tell(channel, {"progress": {"t": ended, "phase": "waiting for replies", **log.counts}})
    interrupted = stop.is_set() and ended < until
    # Not locust's own stop: it holds the loop for tens of milliseconds, and the replies that are
    # still to come would be stamped late. It is left what to do with those that never came.
    user.finished = True
    patience = _STOPPED_DRAIN if interrupted else spec.drain
    while runner.user_count and time.perf_counter() - zero < ended + patience:
        gevent.sleep(0.01)
    drained = time.perf_counter() - zero
    runner.stop()
    watch.kill()
    log.flush()
    if broken:
        raise ModelopsError(f"the scenario {spec.scenario!r} broke: {broken[0]}")
    return {
        "started_at": started,
        "ended_s": ended,
        "drained_s": drained,
        "interrupted": interrupted,
        "client": health.summary(spec.warmup_s, ended),
    }


def _listen(stop: Event) -> None:
    """Set ``stop`` when the parent says so, or is gone."""
    tp_read(0, 16)
    stop.set()


if __name__ == "__main__":
    main(*sys.argv[1:3])
