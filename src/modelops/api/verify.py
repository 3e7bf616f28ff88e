"""Verifying a published artifact: its files, then parity again on this machine."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any, Literal

from modelops import registry
from modelops.artifact import Artifact, open_artifact
from modelops.artifact.manifest import Parity, ParityPoint, Tolerance
from modelops.errors import IntegrityError, ParityError
from modelops.parity import read_samples, recheck_samples
from modelops.parity.between import compare_afresh, differences, looser
from modelops.parity.samples import SAMPLES, TEXT_SAMPLES
from modelops.progress import Progress, silent
from modelops.protocols import Exporter, Runtime
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
    path: Path,
    other: Path | None = None,
    *,
    pin: str | None = None,
    points: int = 4,
    seed: int = 0,
    progress: Progress = silent,
) -> Verification:
    """Check an artifact's files, then its answers on this machine against the golden samples.

    With ``other``, that artifact must answer the same inputs the same, too, and ``points`` fresh
    random ones; by the looser of the two tolerances.

    Raises:
        IntegrityError: the files are not those published.
        UnsafeInputError: it runs code, and is neither trusted nor pinned.
        ParityError: its answers are not eager's.
    """
    artifact = open_artifact(path, pin=pin, progress=progress)
    checked = _recheck(artifact, artifact, progress)
    tolerance = artifact.manifest.parity.tolerance
    if other is not None:
        against = open_artifact(other, progress=progress)
        tolerance = looser(tolerance, against.manifest.parity.tolerance)
        checked += _recheck(against, artifact, progress, tolerance)
        if artifact.manifest.task != "text-generation":
            checked += _afresh(artifact, against, tolerance, points, seed, progress)
    manifest = artifact.manifest
    parity = manifest.parity.model_copy(
        update={"points": checked, "checks": (), "tolerance": tolerance}
    )
    wrong = [(p, o) for p in checked for o in p.outputs if not o.passed]
    if wrong:
        # Without a distance it is no number at all, and so the worst.
        point, output = max(wrong, key=lambda w: inf if w[1].max_rel is None else w[1].max_rel)
        sizes = ", ".join(f"{k}={v}" for k, v in point.dims.items())
        pair = f"{artifact.path} and {other}" if other is not None else f"{artifact.path}"
        does = "do not answer alike" if other is not None else "does not answer as eager did"
        raise ParityError(
            f"{pair} {does}: {point.label} ({sizes}), output {output.output!r}: {output.why}"
            + (f" (and {len(wrong) - 1} more; this is the worst)" if len(wrong) > 1 else ""),
            hint="the runtime or the machine differs from the exporting one: export again here, "
            "or compare modelops doctor on both"
            if other is None
            else None,
        )
    return Verification(
        path=artifact.path,
        version=artifact.version,
        name=manifest.name,
        digest=manifest.digest,
        files=len(manifest.files),
        parity=parity,
    )


def _recheck(
    artifact: Artifact, golden: Artifact, progress: Progress, tolerance: Tolerance | None = None
) -> tuple[ParityPoint, ...]:
    """Run ``artifact`` on the golden samples of ``golden``."""
    samples = next((n for n in (SAMPLES, TEXT_SAMPLES) if n in golden.manifest.files), None)
    if samples is None:
        raise IntegrityError(f"{golden.path} carries no golden samples")
    if apart := differences(golden.manifest.signature, artifact.manifest.signature):
        raise ParityError(
            f"{golden.path} and {artifact.path} do not take and give the same tensors: "
            + "; ".join(apart)
        )
    progress(f"running {artifact.path} on its golden samples")
    return recheck_samples(
        golden.manifest.signature,
        _loaded(artifact),
        read_samples(golden.file(samples)),
        tolerance or golden.manifest.parity.tolerance,
    )


def _afresh(
    first: Artifact,
    second: Artifact,
    tolerance: Tolerance,
    points: int,
    seed: int,
    progress: Progress,
) -> tuple[ParityPoint, ...]:
    proven = [p.dims for p in first.manifest.parity.points]
    return compare_afresh(
        first.manifest.signature,
        _loaded(first),
        _loaded(second),
        proven=proven,
        points=points,
        tolerance=tolerance,
        seed=seed,
        progress=progress,
    )


def _loaded(artifact: Artifact) -> Runtime:
    exporter: Exporter = registry.resolve("exporters", artifact.manifest.format)()
    return exporter.load(artifact.path, artifact.manifest)


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
