"""The parent's side of the load generator: start it, follow it, stop it, never outlive it."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson

from modelops import errors
from modelops.errors import MeasurementError, ModelopsError
from modelops.progress import Progress
from modelops_loadtests.spec import RunSpec

_START_SECONDS = 60.0
_TELL_SECONDS = 2.0


def generate(spec: RunSpec, folder: Path, progress: Progress) -> dict[str, Any]:
    """Run the spec in a process of its own; return what it tells of itself at the end.

    Leaves ``samples.jsonl`` and ``loadgenerator.log`` in ``folder``. Ctrl-C ends the run early and
    keeps what was measured; a second one gives it up.

    Raises:
        MeasurementError: the generator died, or did not end in time.
        ModelopsError: the error that the generator itself ended with.
    """
    environment = {k: v for k, v in os.environ.items() if k != "MODELOPS_API_KEY"}
    if spec.api_key is not None:
        environment["MODELOPS_API_KEY"] = spec.api_key.get_secret_value()
    log = folder / "loadgenerator.log"
    with tempfile.TemporaryDirectory(prefix="modelops-loadtest-") as private, log.open("wb") as err:
        written = Path(private) / "spec.json"
        written.write_text(spec.model_dump_json())
        process = subprocess.Popen(
            # -P: the working folder must not shadow what the generator imports.
            [
                *(sys.executable, "-P", "-m", "modelops_loadtests.child"),
                *(str(written), str(folder / "samples.jsonl")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            env=environment,
            start_new_session=True,  # the terminal's Ctrl-C is the parent's to handle
        )
        try:
            told = _follow(process, spec, progress)
        finally:
            _end(process)
    if told is None:
        raise MeasurementError(
            f"the load generator ended without a result (exit {process.returncode}): {_tail(log)}",
            hint=f"its log is {log}",
        )
    if "failed" in told:
        raise _as_error(told["failed"])
    result: dict[str, Any] = told["done"]
    return result


def _follow(
    process: subprocess.Popen[bytes], spec: RunSpec, progress: Progress
) -> dict[str, Any] | None:
    """Read what the child tells until its result; None where its output ends without one."""
    assert process.stdout is not None  # noqa: S101
    deadline = time.monotonic() + _START_SECONDS + spec.warmup_s + spec.duration_s + spec.drain
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        stopping, told_at, phase = False, 0.0, ""
        while True:
            try:
                if time.monotonic() > deadline:
                    raise MeasurementError("the load generator did not end in time; it was killed")
                if not selector.select(timeout=0.5):
                    continue
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    return None
                *lines, buffer = (buffer + chunk).split(b"\n")
                for told in map(orjson.loads, lines):
                    if "progress" not in told:
                        return dict(told)
                    now, step = time.monotonic(), told["progress"]
                    if step["phase"] != phase or now - told_at >= _TELL_SECONDS:
                        told_at, phase = now, step["phase"]
                        progress(_phrase(step, spec))
            except KeyboardInterrupt:
                if stopping:
                    raise
                stopping = True
                progress("stopping; what was measured is kept (Ctrl-C again to give it up)")
                _ask_to_stop(process)


def _phrase(told: dict[str, Any], spec: RunSpec) -> str:
    whole = spec.warmup_s + spec.duration_s
    return f"{told['phase']} {told['t']:.1f}/{whole:g} s: {told['ok']} ok, {told['error']} failed"


def _ask_to_stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None  # noqa: S101
    with contextlib.suppress(OSError):
        process.stdin.write(b"stop\n")
        process.stdin.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it wrote nothing"


def _as_error(told: dict[str, Any]) -> ModelopsError:
    kind = getattr(errors, told["type"], ModelopsError)
    error: ModelopsError = kind(told["message"], hint=told["hint"])
    return error
