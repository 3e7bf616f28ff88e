"""The report of one export: ``report.json`` for machines, ``report.html`` for a person."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Literal, Self

from pydantic import Field, model_validator

from modelops.artifact.manifest import Parity, Precision, Source, Task, TextOptions
from modelops.report.conversion import ConversionReport
from modelops.report.page import render
from modelops.report.parity_picture import picture
from modelops.report.units import nbytes, number, seconds
from modelops.report.verdict import (
    Verdict,
    dims_text,
    error_of,
    judge,
    shared_dims,
    sizes_text,
    worst,
)
from modelops.signature import Frozen, Signature


class Step(Frozen):
    """One step of the export: wall-clock seconds, and peak resident memory in MB if measured."""

    name: str
    seconds: float = Field(ge=0)
    peak_mb: float | None = Field(default=None, ge=0)


class PromptEvidence(Frozen):
    """One prompt of a language model's proof, in words, and how it was continued.

    ``prompt`` is None where it is made of random tokens; ``max_difference`` is the largest of any
    log-probability from the source's, in nats.
    """

    label: str
    prompt: str | None
    prompt_tokens: int
    answer: str
    tokens: tuple[int, ...]
    max_difference: float | None
    passed: bool


class ExportReport(Frozen):
    """All that one export did and found.

    ``sizes`` are the bytes of each written file, ``source_bytes`` those of the weights read.
    ``command`` and ``location`` are as the caller typed them, without absolute paths: a report
    is part of an artifact and tells nothing of the machine that made it. ``passed`` is False
    where parity did not hold or ``failures`` (of other checks, in words) is not empty.
    """

    schema_version: Literal[1] = 1
    name: str
    format: str
    task: Task
    source: Source
    signature: Signature
    precision: Precision
    opset: int | None = None
    text: TextOptions | None = None
    parity: Parity
    prompts: tuple[PromptEvidence, ...] = ()
    conversion: ConversionReport | None = None
    notes: tuple[str, ...] = ()
    chain: tuple[Step, ...]
    sizes: dict[str, int]
    source_bytes: int = Field(ge=0)
    toolchain: dict[str, str]
    command: str
    location: str | None = None
    digest: str | None = None
    passed: bool
    failures: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _honest(self) -> Self:
        if self.passed and (self.failures or not self.parity.passed):
            raise ValueError("a report cannot pass while parity or another check failed")
        return self

    @property
    def total_seconds(self) -> float:
        """Seconds of all steps together."""
        return sum(step.seconds for step in self.chain)

    @property
    def parity_share(self) -> float | None:
        """Parity's share, 0 to 1, of the total time; None where no time was measured."""
        total = self.total_seconds
        spent = sum(step.seconds for step in self.chain if "parity" in step.name)
        return spent / total if total else None

    @property
    def verdict(self) -> Verdict:
        """The outcome in words."""
        found = judge(self.parity, passed=self.passed, failures=self.failures)
        if self.passed:
            return found
        return replace(found, details=(*found.details, "Nothing was published."))


def to_json(report: ExportReport) -> str:
    """Return ``report`` as JSON text; numbers that are not finite become null."""
    return report.model_dump_json(indent=2) + "\n"


def to_html(report: ExportReport) -> str:
    """Return ``report`` as one HTML page that fetches nothing and runs nothing."""
    return render(
        "export.html.j2",
        report=report,
        verdict=report.verdict,
        facts=_facts(report),
        picture=picture(report.parity),
        stack=_stack(report),
        scale=_scale(report),
        dims=shared_dims(report.parity),
        sizes_text=sizes_text,
        dims_text=dims_text,
        several=any(len(point.outputs) > 1 for point in report.parity.points),
        provenance=_provenance(report),
        next_commands=next_commands(report),
    )


def next_commands(report: ExportReport) -> list[tuple[str, str]]:
    """Return (command, what it does) pairs to type after this export; none where it failed."""
    if not report.passed:
        return []
    place = shlex.quote(report.location or f"artifacts/{report.name}")
    if report.task == "text-generation":
        return [
            (f"modelops verify {place}", "Check every file, and the answers again here"),
            (f"modelops serve {place} --engine vllm", "Serve it to any client of the OpenAI API"),
        ]
    scenario = "embeddings" if report.task == "embedding" else "tensors"
    return [
        (f"modelops verify {place}", "Check every file, and parity again on your machine"),
        (f"modelops serve {place}", "Serve it; a curl to copy is printed when it is ready"),
        (
            f"modelops loadtest http://127.0.0.1:8080 --scenario {scenario} "
            "--duration 20s --slo e2e_p95_ms=200 --slo error_rate=0",
            "Measure what is served, and gate the deploy on it",
        ),
    ]


def _facts(report: ExportReport) -> list[tuple[str, str, str | None]]:
    after = sum(report.sizes.values())
    share = report.parity_share
    asked, found = report.precision.asked, report.precision.found
    largest = worst(report.parity)
    facts: list[tuple[str, str, str | None]] = [
        ("Checked", _points(len(report.parity.points)), "sizes and inputs, against eager"),
    ]
    if largest is not None:
        point, output = largest
        facts.append(
            (
                "Largest error",
                number(error_of(output)),
                f"relative, at {dims_text(point.dims)}",
            )
        )
    facts.append(("Precision", found, "as asked" if asked == found else f"asked: {asked}"))
    if report.opset is not None:
        facts.append(("Opset", str(report.opset), None))
    facts.append(("Size", nbytes(after), f"source: {nbytes(report.source_bytes)}"))
    facts.append(
        (
            "Time",
            seconds(report.total_seconds),
            None if share is None else f"parity: {share:.0%} of it",
        )
    )
    return facts


def _provenance(report: ExportReport) -> list[tuple[str, str]]:
    source = report.source
    pairs = {
        "source SHA-256": source.sha256,
        "model factory": source.factory,
        "hub revision": source.revision,
        "artifact digest": report.digest,
        **report.toolchain,
    }
    return [(term, value) for term, value in pairs.items() if value is not None]


def _points(count: int) -> str:
    return "1 point" if count == 1 else f"{count} points"


def _stack(report: ExportReport) -> list[tuple[str, float, str]]:
    total = report.total_seconds
    return [
        (step.name, step.seconds / total, f"{seconds(step.seconds)}, {_percent(step, total)}")
        for step in report.chain
        if total
    ]


def _percent(step: Step, total: float) -> str:
    share = step.seconds / total
    return f"{share:.0%}" if share >= 0.005 else "under 1%"


def _scale(report: ExportReport) -> list[tuple[str, int, float]]:
    after = sum(report.sizes.values())
    largest = max(after, report.source_bytes, 1)
    return [
        (label, size, size / largest)
        for label, size in (("source weights", report.source_bytes), ("artifact", after))
    ]


__all__ = ["ExportReport", "PromptEvidence", "Step", "next_commands", "to_html", "to_json"]
