"""A process that holds locust: does the stages that its parent tells it, and says how they go.

``python -m modelops_loadtests.child SPEC SAMPLES PROCESS``: SPEC is a JSON file, samples are
written to SAMPLES, PROCESS is this one's number among ``spec.processes``. It speaks in lines of
JSON. It tells ``{"ready": true}``, then for each stage ``{"progress": …}`` twice a second and
``{"ended": …}``, or ``{"failed": …}`` and it is over. It is told ``{"stage": …, "zero": …}``,
while it runs ``{"until": …, "held": …}`` (how long the stage lasts), ``{"stop": true}`` (to end
the stage now), and ``{"quit": true}``; the end of its stdin is the same. Whatever locust prints
goes to stderr.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any

import gevent
import orjson
from gevent.event import Event
from gevent.os import tp_read
from gevent.queue import Queue
from locust import events  # first: it patches the standard library
from locust.env import Environment

from modelops.errors import ModelopsError
from modelops_loadtests.client.target import Target
from modelops_loadtests.load.stage import Stage
from modelops_loadtests.locust_rows import tell_locust
from modelops_loadtests.preflight import http_get, key_headers, prepare
from modelops_loadtests.samples import SampleLog
from modelops_loadtests.sending import Sender
from modelops_loadtests.spec import RunSpec
from modelops_loadtests.stage_runner import StageRunner
from modelops_loadtests.watching import WatchedLog


def main(spec_path: str, samples_path: str, process: str) -> None:
    """Do what is told; every outcome is told on stdout, and the exit code is 0 when it was."""
    channel = os.dup(1)
    os.dup2(2, 1)
    spec = RunSpec.model_validate_json(Path(spec_path).read_bytes())
    try:
        with Path(samples_path).open("wb") as stream:
            _run(spec, int(process), WatchedLog(SampleLog(stream)), channel)
    except ModelopsError as error:
        kind, code = type(error).__name__, error.exit_code
        body = {"type": kind, "message": error.message, "hint": error.hint, "exit_code": code}
        _tell(channel, {"failed": body})


def _tell(channel: int, message: dict[str, Any]) -> None:
    os.write(channel, orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))


def _run(spec: RunSpec, process: int, log: WatchedLog, channel: int) -> None:
    key = os.environ.get("MODELOPS_API_KEY") or None
    headers = key_headers(key)
    scenario = prepare(spec, http_get(spec.url, headers, timeout=spec.timeout_s))
    environment = Environment(events=events, host=spec.url)
    sender = Sender(
        scenario=scenario,
        sink=log,
        process=process,
        trace=secrets.token_hex(4) if spec.trace_ids else None,
        told=lambda sent: tell_locust(environment, sent),
        secret=key,
    )
    runner = StageRunner(spec, process, environment, Target(spec.url, headers), sender, log)
    stop = Event()
    orders: Queue[dict[str, Any] | None] = Queue()
    gevent.spawn(_listen, orders, runner, stop)
    _tell(channel, {"ready": True})
    while (order := orders.get()) is not None:
        stage = Stage.read(order["stage"])
        ended = runner.run(stage, order["zero"], stop, lambda told: _tell(channel, told))
        _tell(channel, {"ended": ended})


def _listen(orders: Queue[dict[str, Any] | None], runner: StageRunner, stop: Event) -> None:
    """Pass on what the parent says; that it is gone, too."""
    buffer = b""
    while chunk := tp_read(0, 4096):
        *lines, buffer = (buffer + chunk).split(b"\n")
        for told in map(orjson.loads, lines):
            if "stage" in told:
                stop.clear()
                orders.put(told)
            elif "until" in told:
                runner.lasts(told["until"], held=told["held"])
            elif "quit" in told:
                orders.put(None)
            else:
                stop.set()
    stop.set()
    orders.put(None)


if __name__ == "__main__":
    main(*sys.argv[1:4])
    sys.stderr.flush()
    # All is told and written: taking locust and its imports down would cost half a second.
    os._exit(0)
