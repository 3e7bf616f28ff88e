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
    """Trust the artifact or the .pt2 file at ``path`` by its digest, once found to be whole.

    Raises:
        InputError: there is no artifact.
        IntegrityError: its files are not those that were published.
        UnsafeInputError: the trust store could have been written by somebody else.
    """
    if path.is_file():
        return _trust_file(path, progress)
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


def _trust_file(path: Path, progress: Progress) -> TrustDecision:
    """Trust a ``.pt2`` that is no artifact's, by the hash of its bytes."""
    from modelops.checkpoint.digest import sha256_file
    from modelops.checkpoint.pt2_file import is_pt2

    if not is_pt2(path):
        raise InputError(
            f"{path} is no torch.export archive: only code needs trust",
            hint="give an artifact's folder, or a .pt2 file",
        )
    progress("hashing the file")
    digest = f"sha256:{sha256_file(path)}"
    already = is_trusted(digest)
    trust(digest, path.stem, "decision")
    return TrustDecision(
        path=str(path),
        name=path.stem,
        digest=digest,
        format="pt2",
        source=path.name,
        needed=True,
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
    elif folder.is_file():
        from modelops.checkpoint.digest import sha256_file

        digest = f"sha256:{sha256_file(folder)}"
    elif folder.exists():
        digest = open_artifact(folder, require_trust=False).manifest.digest
    else:
        raise InputError(
            f"{what} is neither a digest nor a folder", hint="modelops trust --list shows both"
        )
    if not distrust(digest):
        raise InputError(f"{digest} was not trusted", hint="modelops trust --list shows what is")
    return digest
