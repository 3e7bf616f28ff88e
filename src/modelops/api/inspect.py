"""Looking into a checkpoint or an artifact, without running anything in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from modelops.artifact import MANIFEST, Manifest, locate, open_artifact, versions
from modelops.progress import Progress, silent
from modelops.signature import Frozen


class ArtifactInspection(Frozen):
    """What an artifact's manifest says, its files checked."""

    kind: Literal["artifact"] = "artifact"
    path: Path
    version: int
    manifest: Manifest


def inspect(path: str, progress: Progress = silent) -> Any:
    """Return an ArtifactInspection, or the checkpoint's Inspection.

    Raises:
        InputError: there is nothing that can be read.
        IntegrityError: the artifact's files are not those published.
    """
    folder = Path(path)
    if is_artifact(folder):
        artifact = open_artifact(folder, require_trust=False, progress=progress)
        return ArtifactInspection(
            path=artifact.path, version=artifact.version, manifest=artifact.manifest
        )
    from modelops.checkpoint import inspect_checkpoint

    return inspect_checkpoint(path)


def is_artifact(folder: Path) -> bool:
    """Whether ``folder`` is an artifact, or one version of it."""
    if not folder.is_dir():
        return False
    return (folder / MANIFEST).exists() or (
        bool(versions(folder)) and (locate(folder) / MANIFEST).exists()
    )


def view(found: Any) -> Any:
    """Return what ``inspect`` found as a rich renderable for a terminal."""
    from modelops.report.inspection import artifact_view, checkpoint_view

    if isinstance(found, ArtifactInspection):
        return artifact_view(found.manifest, found.version, found.path)
    return checkpoint_view(found)
