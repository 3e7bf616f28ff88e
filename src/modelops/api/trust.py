"""Deciding which artifacts' code may run on this machine."""

from __future__ import annotations

from pathlib import Path

from modelops.artifact import (
    TrustedDigest,
    distrust,
    is_trusted,
    open_artifact,
    runs_code,
    trust,
    trusted,
)
from modelops.errors import InputError
from modelops.progress import Progress, silent
from modelops.signature import Frozen


class TrustDecision(Frozen):
    """What was trusted; ``needed`` is false for formats that are data and never ask for it."""

    path: str
    name: str
    digest: str
    format: str
    source: str
    needed: bool
    already: bool


def trust_artifact(path: Path, progress: Progress = silent) -> TrustDecision:
    """Trust the artifact at ``path`` by its digest, once its files are found to be whole.

    Raises:
        InputError: there is no artifact.
        IntegrityError: its files are not those that were published.
        UnsafeInputError: the trust store could have been written by somebody else.
    """
    artifact = open_artifact(path, require_trust=False, progress=progress)
    manifest = artifact.manifest
    already = is_trusted(manifest.digest)
    trust(manifest.digest, manifest.name, "decision")
    return TrustDecision(
        path=str(artifact.path),
        name=manifest.name,
        digest=manifest.digest,
        format=manifest.format,
        source=f"{manifest.source.name} ({manifest.source.format})",
        needed=runs_code(manifest),
        already=already,
    )


def list_trusted() -> list[TrustedDigest]:
    """Return every trusted digest, oldest first."""
    return trusted()


def remove_trust(what: str) -> str:
    """Stop trusting a digest, or the artifact in a folder; return the digest.

    Raises:
        InputError: it is neither, or was not trusted.
    """
    folder = Path(what)
    if what.startswith("sha256:"):
        digest = what
    elif folder.exists():
        digest = open_artifact(folder, require_trust=False).manifest.digest
    else:
        raise InputError(
            f"{what} is neither a digest nor a folder", hint="modelops trust --list shows both"
        )
    if not distrust(digest):
        raise InputError(f"{digest} was not trusted", hint="modelops trust --list shows what is")
    return digest
