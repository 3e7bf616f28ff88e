"""The parent's side of the load: several processes that send as one, stage by stage."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from modelops import errors
from modelops.errors import MeasurementError, ModelopsError
from modelops.progress import Progress
from modelops_loadtests.following import Following
from modelops_loadtests.load.stage import Stage
from modelops_loadtests.spec import RunSpec
from modelops_loadtests.worker import Worker

_START_SECONDS = 60.0
_GRACE_SECONDS = 30.0
_TELL_SECONDS = 2.0
_TOGETHER_SECONDS = 0.25

Extend = Callable[[float], float | None]
"""At a stage's end: how long it goes on (its new end, seconds of the run), or None to end it."""


@dataclass
class StageEnd:
    """How a stage went. Moments are seconds of the run.

    ``died`` says of each process that is gone how it went; ``clients`` has what each other one
    says of its own health.
    """

    stage: Stage
    ended_s: float = 0.0
    drained_s: float = 0.0
    interrupted: bool = False
    died: list[str] = field(default_factory=list)
    clients: list[dict[str, Any]] = field(default_factory=list)


class Generator:
    """The processes that send; a context manager. Each appends its samples to a private file.

    Raises:
        MeasurementError: one died before the first request, or did not end in time.
        ModelopsError: the error that one of them ended with.
    """

    def __init__(self, spec: RunSpec, folder: Path, private: Path, *, watch: Any = None) -> None:
        self._spec, self._folder, self._private = spec, folder, private
        self._watch = watch
        self._workers: list[Worker] = []
        self.zero = 0.0
        """The run's zero, of ``time.perf_counter``: set when the first stage begins."""

    @property
    def samples(self) -> list[Path]:
        """The files that the samples are in."""
        return [worker.samples for worker in self._workers]

    @property
    def log(self) -> Path:
        """Where the processes' output is."""
        return self._folder / "loadgenerator.log"

    def __enter__(self) -> Self:
        environment = {k: v for k, v in os.environ.items() if k != "MODELOPS_API_KEY"}
        if self._spec.api_key is not None:
            environment["MODELOPS_API_KEY"] = self._spec.api_key.get_secret_value()
        written = self._private / "spec.json"
        written.write_text(self._spec.model_dump_json())
        try:
            for number in range(self._spec.processes):
                samples = self._private / f"samples-{number}.jsonl"
                log = self._private / f"log-{number}.txt"
                self._workers.append(Worker(number, written, samples, log, environment))
            self._await_ready()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for worker in self._workers:
            worker.tell({"quit": True})
        for worker in self._workers:
            worker.end()
        with self.log.open("wb") as whole:
            for worker in self._workers:
                whole.write(worker.log.read_bytes())

    def _await_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        waiting = set(self._workers)
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker, selectors.EVENT_READ, worker)
            while waiting:
                if time.monotonic() > deadline:
                    raise MeasurementError("the load generator did not start in time")
                for key, _ in selector.select(timeout=0.5):
                    worker = key.data
                    told = worker.hear()
                    if told is None:
                        raise MeasurementError(
                            f"the load generator ended before it sent anything: "
                            f"{worker.how_it_ended()}",
                            hint=f"its log is {self.log}",
                        )
                    for message in told:
                        if "failed" in message:
                            raise _as_error(message["failed"])
                        waiting.discard(worker)

    def begin(self) -> float:
        """Return when a stage that is told now may start, in seconds of the run: soon."""
        now = time.perf_counter()
        if not self.zero:
            self.zero = now + _TOGETHER_SECONDS
        return max(0.0, now + _TOGETHER_SECONDS - self.zero)

    def run(self, stage: Stage, progress: Progress, extend: Extend | None = None) -> StageEnd:
        """Hold a stage's load until its end; return how it went.

        Ctrl-C ends it early and keeps what was measured; a second one gives it up. A process that
        dies ends it, too: what the others send is not the load that was asked for.
        """
        following = _Stage(self, stage, progress, extend)
        return following.run(self._workers, self._spec.drain, self._watch)


class _Stage:
    """One stage while it runs."""

    def __init__(
        self, generator: Generator, stage: Stage, progress: Progress, extend: Extend | None
    ) -> None:
        self._generator, self._stage = generator, stage
        self._progress, self._extend = progress, extend
        self._until = stage.until
        self._following = Following()
        self._reached: set[int] = set()
        self._end = StageEnd(stage)
        self._told_at, self._phase = 0.0, ""

    def run(self, workers: list[Worker], drain: float, watch: Any) -> StageEnd:
        self._workers, self._watch = workers, watch
        self._left = {worker.number for worker in workers}
        for worker in workers:
            worker.tell({"zero": self._generator.zero, "stage": self._stage.told()})
        latest = self._generator.zero + self._stage.limit + drain + _GRACE_SECONDS
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                selector.register(worker, selectors.EVENT_READ, worker)
            while self._left:
                try:
                    if time.perf_counter() > latest:
                        raise MeasurementError("the load generator did not end in time")
                    for key, _ in selector.select(timeout=0.5):
                        if not self._hear(key.data):
                            selector.unregister(key.fileobj)
                except KeyboardInterrupt:
                    if self._end.interrupted:
                        raise
                    self._end.interrupted = True
                    self._progress(
                        "stopping; what was measured is kept (Ctrl-C again to give it up)"
                    )
                    self._tell({"stop": True})
        return self._end

    def _tell(self, message: dict[str, Any]) -> None:
        for worker in self._workers:
            if worker.number in self._left:
                worker.tell(message)

    def _hear(self, worker: Worker) -> bool:
        """Take what a process tells; False where it is gone."""
        messages = worker.hear()
        if messages is None:
            which = f"process {worker.number + 1} of {len(self._workers)}"
            self._end.died.append(f"{which} of the load generator died: {worker.how_it_ended()}")
            self._left.discard(worker.number)
            self._tell({"stop": True})
            if not self._end.ended_s:
                self._end.ended_s = time.perf_counter() - self._generator.zero
            return False
        for message in messages:
            if "failed" in message:
                raise _as_error(message["failed"])
            if "progress" in message:
                self._on_progress(worker, message["progress"])
            elif "ended" in message:
                self._on_end(worker, message["ended"])
        return True

    def _on_progress(self, worker: Worker, told: dict[str, Any]) -> None:
        self._following.hear(worker.number, told)
        if told["t"] >= self._until:
            self._reached.add(worker.number)
            if self._stage.held and self._left <= self._reached:
                self._decide()
        now = time.monotonic()
        if self._watch is not None:
            self._watch(self._following.figures(self._stage, self._until))
        if told["phase"] != self._phase or now - self._told_at >= _TELL_SECONDS:
            self._told_at, self._phase = now, told["phase"]
            if self._watch is None:
                self._progress(self._following.phrase(self._stage, self._until))

    def _decide(self) -> None:
        """At the planned end: go on, or say that it was the end."""
        if self._end.interrupted or self._end.died:
            return
        longer = self._extend(self._until) if self._extend is not None else None
        self._reached.clear()
        if longer is None or longer <= self._until:
            self._tell({"until": self._until, "held": False})
            return
        self._until = min(longer, self._stage.limit)
        self._tell({"until": self._until, "held": self._until < self._stage.limit})

    def _on_end(self, worker: Worker, told: dict[str, Any]) -> None:
        self._left.discard(worker.number)
        end = self._end
        # Where processes were stopped, what counts is until when all of them were sending.
        end.ended_s = min(end.ended_s or told["ended_s"], told["ended_s"])
        end.drained_s = max(end.drained_s, told["drained_s"])
        end.clients.append({**told["client"], "process": worker.number})


def _as_error(told: dict[str, Any]) -> ModelopsError:
    kind = getattr(errors, told["type"], ModelopsError)
    error: ModelopsError = kind(told["message"], hint=told["hint"])
    return error
