"""Verifying a published artifact: its files, then parity again on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from modelops import registry
from modelops.artifact import Artifact, open_artifact
from modelops.artifact.manifest import Parity, ParityPoint
from modelops.errors import IntegrityError, ParityError
from modelops.parity import read_samples, recheck_samples
from modelops.parity.samples import SAMPLES, TEXT_SAMPLES
from modelops.progress import Progress, silent
from modelops.protocols import Exporter
from modelops.signature import Frozen


class Verification(Frozen):
    """What was checked; it exists only where all of it held."""

    kind: Literal["verification"] = "verification"
    path: Path
    version: int
    name: str
    digest: str
    files: int
    parity: Parity


def verify(
    path: Path, other: Path | None = None, *, pin: str | None = None, progress: Progress = silent
) -> Verification:
    """Check an artifact's files, then its answers on this machine against the golden samples.

    With ``other``, that artifact must answer the same inputs the same, too.

    Raises:
        IntegrityError: the files are not those published.
        UnsafeInputError: it runs code, and is neither trusted nor pinned.
        ParityError: its answers are not eager's.
    """
    artifact = open_artifact(path, pin=pin, progress=progress)
    points = _recheck(artifact, artifact, progress)
    if other is not None:
        against = open_artifact(other, progress=progress)
        points += _recheck(against, artifact, progress)
    manifest = artifact.manifest
    parity = manifest.parity.model_copy(update={"points": points, "checks": ()})
    wrong = [(p, o) for p in points for o in p.outputs if not o.passed]
    if wrong:
        point, output = wrong[0]
        sizes = ", ".join(f"{k}={v}" for k, v in point.dims.items())
        raise ParityError(
            f"{artifact.path} does not answer as eager did: {point.label} ({sizes}), output "
            f"{output.output!r}: {output.why}"
            + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""),
            hint="the runtime or the machine differs from the exporting one: export again here, "
            "or compare modelops doctor on both",
        )
    return Verification(
        path=artifact.path,
        version=artifact.version,
        name=manifest.name,
        digest=manifest.digest,
        files=len(manifest.files),
        parity=parity,
    )


def _recheck(artifact: Artifact, golden: Artifact, progress: Progress) -> tuple[ParityPoint, ...]:
    """Run ``artifact`` on the golden samples of ``golden``."""
    samples = next((n for n in (SAMPLES, TEXT_SAMPLES) if n in golden.manifest.files), None)
    if samples is None:
        raise IntegrityError(f"{golden.path} carries no golden samples")
    ends = [(t.name, t.dtype) for s in _sides(artifact) for t in s]
    if ends != [(t.name, t.dtype) for s in _sides(golden) for t in s]:
        raise ParityError(
            f"{artifact.path} and {golden.path} do not take and give the same tensors"
        )
    progress(f"running {artifact.path} on its golden samples")
    exporter: Exporter = registry.resolve("exporters", artifact.manifest.format)()
    runtime = exporter.load(artifact.path, artifact.manifest)
    return recheck_samples(
        golden.manifest.signature,
        runtime,
        read_samples(golden.file(samples)),
        golden.manifest.parity.tolerance,
    )


def _sides(artifact: Artifact) -> tuple[Any, Any]:
    return artifact.manifest.signature.inputs, artifact.manifest.signature.outputs


def view(found: Verification) -> Any:
    """Return the verification as a rich renderable for a terminal."""
    from rich.console import Group
    from rich.text import Text

    from modelops.report.table import parity_table

    head = Text.assemble(
        ("Right: ", "bold green"),
        f"{found.files} files as published, {len(found.parity.points)} points as eager answered\n",
        f"{found.path}  {found.digest}",
    )
    return Group(head, parity_table(found.parity))
