"""The stages of a run, one after another: one load, a sweep of them, or a trace."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from modelops.errors import InputError
from modelops.progress import Progress
from modelops_loadtests import gates
from modelops_loadtests.generator import Extend, Generator
from modelops_loadtests.judged import Asked, Judged, judge_stage
from modelops_loadtests.load.arrivals import arrivals
from modelops_loadtests.load.stage import Axis, Stage
from modelops_loadtests.load.sweep import StageSeen, next_load
from modelops_loadtests.load.trace import read_trace
from modelops_loadtests.measure import Window, measure
from modelops_loadtests.samples import SampleTable
from modelops_loadtests.schedules import schedule_of
from modelops_loadtests.spans import Span
from modelops_loadtests.spec import RunSpec

_LEAST_LONGER = 1.5
_MOST_LONGER = 3.0
_SPARE = 1.1


def looks(spec: RunSpec) -> int:
    """Return how often a run may be judged: at its planned end, and after each extension."""
    if spec.max_duration_s is None:
        return 1
    return 1 + math.ceil(math.log(spec.max_duration_s / spec.duration_s, _LEAST_LONGER))


@dataclass
class Stages:
    """Runs them all; ``done`` are those that were, ``extensions`` how and why one went on."""

    asked: Asked
    generator: Generator
    progress: Progress
    done: list[Judged] = field(default_factory=list)
    extensions: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> None:
        """Run until all is measured, or one ended early."""
        spec = self.asked.spec
        if spec.sweep is not None:
            while (load := next_load(spec.sweep, self.seen)) is not None:
                if self._run(spec.sweep.axis, load):
                    return
        elif spec.trace is not None:
            self._run("trace", len(read_trace(spec.trace)))
        elif spec.rate is not None:
            self._run("rate", spec.rate)
        else:
            self._run("users", spec.concurrency)

    @property
    def seen(self) -> list[StageSeen]:
        """What a sweep decides by."""
        found = []
        for judged in self.done:
            figures, rate = judged.summary, judged.client["rate"]
            found.append(
                StageSeen(
                    load=judged.end.stage.load,
                    throughput=figures["qps"] or 0.0,
                    seconds=judged.measurement.window.seconds,
                    offered=None if rate is None else rate["scheduled"],
                    verdict=gates.overall(judged.gates),
                    valid=not judged.invalid,
                )
            )
        return found

    def _run(self, axis: Axis, load: float) -> bool:
        """Run one stage; return whether it was ended before its time."""
        stage = self._stage(axis, load)
        schedule = schedule_of(self.asked.spec, stage)
        end = self.generator.run(stage, self.progress, self._extend(stage))
        samples = SampleTable.read(*self.generator.samples)
        self.done.append(judge_stage(self.asked, end, samples, schedule))
        return bool(end.interrupted or end.died)

    def _stage(self, axis: Axis, load: float) -> Stage:
        spec = self.asked.spec
        start = self.generator.begin()
        measured_from = start + spec.ramp_s + spec.warmup_s
        until = measured_from + spec.duration_s
        return Stage(
            number=len(self.done),
            axis=axis,
            load=load,
            start=start,
            ramp=spec.ramp_s,
            warmup=spec.warmup_s,
            until=until,
            limit=measured_from + spec.longest_s,
            held=spec.longest_s > spec.duration_s,
        )

    def _extend(self, stage: Stage) -> Extend | None:
        if not stage.held:
            return None

        def extend(until: float) -> float | None:
            self.progress("judging what there is so far")
            samples = SampleTable.read(*self.generator.samples)
            window = Window(stage.window_start, _settled(samples, stage, until))
            open_yet = gates.undecided(self.asked.results(measure(samples, window)))
            if open_yet is None or until >= stage.limit:
                return None
            factor = min(_MOST_LONGER, max(_SPARE * open_yet.factor, _LEAST_LONGER))
            longer = stage.window_start + (until - stage.window_start) * factor
            longer = min(longer, stage.limit)
            self.extensions.append({"at_s": until, "until_s": longer, "because": open_yet.because})
            self.progress(f"going on until {longer:.0f} s: {open_yet.because}")
            return longer

        return extend


def _settled(samples: SampleTable, stage: Stage, until: float) -> float:
    """Return until when requests that were due have mostly been answered.

    Of those due just before now only the fast ones have ended: to judge by them would flatter.
    """
    ok = samples.having("ok")
    slowest = float((samples["end"] - samples.due)[ok].max(initial=0.0))
    half = (stage.window_start + until) / 2
    return max(half, until - slowest)


def resolved(spec: RunSpec) -> RunSpec:
    """Return the spec with a trace's own duration and no warm-up, where none were given.

    Raises:
        InputError: the trace cannot be used.
        UsageError: more arrivals are asked for than can be planned.
    """
    if spec.trace is not None:
        trace = read_trace(spec.trace)
        warmup = spec.warmup_s if "warmup_s" in spec.model_fields_set else 0.0
        whole = float(trace.at[-1]) + 0.001
        if whole <= warmup:
            raise InputError(
                f"the trace lasts {whole:.1f} s, and {warmup:g} s of it are the warm-up",
                hint="a shorter --warmup",
            )
        asked = spec.duration_s if "duration_s" in spec.model_fields_set else whole
        found: dict[str, Any] = {"duration_s": min(asked, whole - warmup), "warmup_s": warmup}
        # So that scenarios prepare for lengths, and refuse where they cannot keep to them.
        for name in ("input_tokens", "output_tokens"):
            column = getattr(trace, name)
            if column is not None and column.any():
                lengths = column[column > 0]
                found[name] = Span(low=int(lengths.min()), high=int(lengths.max()))
        return spec.model_copy(update=found)
    loads = spec.sweep.loads if spec.sweep is not None and spec.is_open else ()
    if highest := max((*loads, spec.rate or 0.0)):
        # Refused here rather than by every process: a schedule that does not fit.
        longest = spec.ramp_s + spec.warmup_s + spec.longest_s
        arrivals(highest, longest, ramp=spec.ramp_s, kind="constant")
    return spec
