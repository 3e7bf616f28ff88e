"""One stage in a process that sends: begin together, hold the load, end, wait for replies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import gevent
from gevent.event import Event
from locust.env import Environment

from modelops.errors import ModelopsError
from modelops_loadtests.client.connection import Connection
from modelops_loadtests.client.target import Target
from modelops_loadtests.health import HealthMonitor
from modelops_loadtests.load.alarm import Alarm
from modelops_loadtests.load.closed_loop import StageUser
from modelops_loadtests.load.dispatch import Dispatcher
from modelops_loadtests.load.open_loop import OpenLoop
from modelops_loadtests.load.pool import Pool
from modelops_loadtests.load.stage import Stage
from modelops_loadtests.preflight import settings_of
from modelops_loadtests.schedules import schedule_of
from modelops_loadtests.sending import Sender
from modelops_loadtests.spec import RunSpec
from modelops_loadtests.watching import WatchedLog

_STOPPED_DRAIN = 1.0
_TELL_SECONDS = 0.5
Tell = Callable[[dict[str, Any]], None]


class Load(Protocol):
    """What sends during a stage."""

    @property
    def in_flight(self) -> int:
        """Requests that are not over."""

    def start(self) -> None:
        """Begin; returns at once."""

    def finish(self) -> None:
        """Send nothing more."""

    def kill(self) -> None:
        """End what is in flight; it records itself as cut."""

    def health(self, start: float, end: float) -> dict[str, Any]:
        """Return what it says of itself between two moments of the run."""


class StageRunner:
    """Runs stages one after another; connections and locust's environment are kept."""

    def __init__(
        self,
        spec: RunSpec,
        process: int,
        environment: Environment,
        target: Target,
        sender: Sender,
        log: WatchedLog,
    ) -> None:
        self._spec, self._process = spec, process
        self._environment, self._target, self._sender, self._log = environment, target, sender, log
        self._pool: Pool[Connection] = Pool(
            lambda: Connection(target, timeout=spec.timeout_s),
            spec.connections and _share(spec.connections, process, spec.processes),
        )
        self._broken: list[str] = []
        environment.events.user_error.add_listener(self._on_user_error)  # type: ignore[no-untyped-call]
        self._until = 0.0
        self._held = False

    def lasts(self, until: float, *, held: bool) -> None:
        """Set until when the stage lasts; ``held``: at least."""
        self._until, self._held = until, held

    def run(self, stage: Stage, zero: float, stop: Event, tell: Tell) -> dict[str, Any]:
        """Run a stage; return how it went, in seconds of the run."""
        self._sender.zero = zero
        self.lasts(stage.until, held=stage.held)
        load = self._load(stage, zero)
        health = HealthMonitor(zero)
        alarm = Alarm()
        alarm.wait_until(zero + stage.start)
        alarm.close()
        watch = gevent.spawn(health.run)
        load.start()
        ended, interrupted = self._hold(stage, zero, load, health, stop, tell)
        load.finish()
        tell(self._progress(ended, "waiting for replies", load, health))
        patience = _STOPPED_DRAIN if interrupted else self._spec.drain
        while load.in_flight and time.perf_counter() - zero < ended + patience:
            gevent.sleep(0.01)
        drained = time.perf_counter() - zero
        load.kill()
        watch.kill()
        self._log.told()
        if self._broken:
            raise ModelopsError(f"the scenario {self._spec.scenario!r} broke: {self._broken[0]}")
        return {
            "stage": stage.number,
            "ended_s": ended,
            "drained_s": drained,
            "client": {
                **health.summary(stage.window_start, ended),
                **load.health(stage.window_start, ended),
            },
        }

    def _load(self, stage: Stage, zero: float) -> Load:
        spec = self._spec
        schedule = schedule_of(spec, stage)
        if schedule is None:
            users = _share(int(stage.load), self._process, spec.processes)
            StageUser.stage = stage.number
            return _Users(self._locust_runner(), users, stage.ramp)
        loop = OpenLoop(
            self._sender, self._pool, stage=stage.number, turns=spec.turns, think_s=spec.think_s
        )
        dispatcher = Dispatcher(
            schedule.part(self._process, spec.processes),
            zero + stage.start,
            # Of the stage, too: a prompt that comes again would be found in the server's cache.
            f"{spec.seed}/{stage.number}",
            loop.arrive,
            self._on_error,
        )
        return _Arrivals(dispatcher, loop, self._pool, stage)

    def _locust_runner(self) -> Any:
        """Return the one runner of this process; a second would count every request twice."""
        if self._environment.runner is None:
            spec = self._spec
            StageUser.settings = settings_of(spec, next(iter(spec.weights)))
            StageUser.turns, StageUser.think_s = spec.turns, spec.think_s
            StageUser.timeout = spec.timeout_s
            StageUser.share(self._target, self._sender, self._process)
            self._environment.user_classes = [StageUser]
            self._environment.create_local_runner()
        return self._environment.runner

    def _hold(
        self,
        stage: Stage,
        zero: float,
        load: Load,
        health: HealthMonitor,
        stop: Event,
        tell: Tell,
    ) -> tuple[float, bool]:
        """Wait for the stage's end; return when it was, and whether it was stopped before."""
        while True:
            now = time.perf_counter() - zero
            if self._broken or (now >= self._until and not self._held) or now >= stage.limit:
                return min(now, self._until), False
            phase = "measuring" if now >= stage.window_start else "warming up"
            if stage.ramp and now < stage.start + stage.ramp:
                phase = "ramping up"
            tell(self._progress(now, phase, load, health))
            left = self._until - now
            if stop.wait(min(_TELL_SECONDS, left) if left > 0 else _TELL_SECONDS / 10):
                return min(time.perf_counter() - zero, self._until), True

    def _progress(
        self, now: float, phase: str, load: Load, health: HealthMonitor
    ) -> dict[str, Any]:
        lately = [lag for at, lag in health.lags[-100:] if at > now - _TELL_SECONDS]
        return {
            "progress": {
                "t": now,
                "phase": phase,
                "in_flight": load.in_flight,
                "lag_ms": round(max(lately, default=0.0) * 1000, 3),
                **self._log.told(),
            }
        }

    def _on_user_error(self, exception: BaseException, **_: Any) -> None:
        self._on_error(exception)

    def _on_error(self, error: BaseException) -> None:
        self._broken.append(f"{type(error).__name__}: {error}")


class _Users:
    """A closed loop: locust's runner with so many users."""

    def __init__(self, runner: Any, users: int, ramp: float) -> None:
        self._runner, self._users, self._ramp = runner, users, ramp

    @property
    def in_flight(self) -> int:
        return int(self._runner.user_count)

    def start(self) -> None:
        StageUser.finished = False
        rate = self._users / self._ramp if self._ramp else self._users
        self._runner.start(self._users, spawn_rate=rate)

    def finish(self) -> None:
        # Not locust's own stop: it holds the loop for tens of milliseconds, and the replies that
        # are still to come would be read late. It is left what to do with those that never came.
        StageUser.finished = True

    def kill(self) -> None:
        self._runner.stop()

    def health(self, start: float, end: float) -> dict[str, Any]:  # noqa: ARG002
        return {}


class _Arrivals:
    """An open loop: a dispatcher and the greenlets that it started."""

    def __init__(
        self, dispatcher: Dispatcher, loop: OpenLoop, pool: Pool[Connection], stage: Stage
    ) -> None:
        self._dispatcher, self._loop, self._pool, self._stage = dispatcher, loop, pool, stage
        self._greenlet: gevent.Greenlet | None = None

    @property
    def in_flight(self) -> int:
        return self._dispatcher.in_flight

    def start(self) -> None:
        self._greenlet = gevent.spawn(self._dispatcher.run)

    def finish(self) -> None:
        self._loop.finished = self._dispatcher.finished = True

    def kill(self) -> None:
        if self._greenlet is not None:
            self._greenlet.kill()
        self._dispatcher.kill()

    def health(self, start: float, end: float) -> dict[str, Any]:
        begun = self._stage.start
        return {
            **self._dispatcher.health(start - begun, end - begun),
            "connections": self._pool.opened,
        }


def _share(whole: int, process: int, processes: int) -> int:
    """Return one process's share of a number."""
    return whole // processes + (process < whole % processes)
