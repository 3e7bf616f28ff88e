"""From what a user typed to a local file or folder."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from modelops.checkpoint.huggingface import CARRIED
from modelops.errors import (
    CheckpointError,
    InputError,
    MissingEnvironmentError,
    UnsafeInputError,
    UsageError,
)
from modelops.progress import Progress, silent

_SCHEME = "hf://"
_HUB_ID = re.compile(r"(?P<repo>[\w][\w.-]*/[\w][\w.-]*)(?:@(?P<revision>[\w./-]+))?\Z", re.ASCII)
# Data that the model needs; code, pickled training state and other frameworks' weights stay there.
_WANTED = (
    *CARRIED,
    "model.safetensors",
    "model-*.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model-*.bin",
    "pytorch_model.bin.index.json",
)
_SAFETENSORS_ONLY = ("pytorch_model*.bin", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class Source:
    """Where a checkpoint lies on this machine, its short name, and its commit on the hub."""

    path: Path
    name: str
    revision: str | None = None


def resolve(source: str, *, cache_dir: Path | None = None, progress: Progress = silent) -> Source:
    """Return the local path of a source, fetching ``hf://org/name@revision`` where it is one.

    A bare ``org/name`` is the hub's where no such path exists.

    Raises:
        UsageError: it is neither a path nor a hub id.
        CheckpointError: no such file; or the hub does not have it, or does not give it.
        MissingEnvironmentError: huggingface_hub is not installed, or the hub cannot be reached.
    """
    if not source.startswith(_SCHEME):
        if "\0" in source or not source:
            raise UsageError(f"{source!r} is no path and no hub id")
        path = Path(source).expanduser()
        if path.exists():
            # not resolve(): a name given by a link is kept
            absolute = Path(os.path.abspath(path))  # noqa: PTH100
            return Source(absolute, _short_name(absolute))
        match = _HUB_ID.match(source)
        if match is None or path.suffix in (".pt", ".pth", ".ckpt", ".bin", ".safetensors"):
            raise CheckpointError(
                f"no file or folder {source!r}",
                hint="give a path, or a hub id such as hf://org/name@revision",
            )
    else:
        match = _HUB_ID.match(source.removeprefix(_SCHEME))
        if match is None:
            raise UsageError(
                f"cannot read {source!r} as a hub id", hint="write it as hf://org/name@revision"
            )
    bare = not source.startswith(_SCHEME)
    progress(f"fetching {match['repo']}" + (", since there is no such path here" if bare else ""))
    try:
        folder = _fetch(match["repo"], match["revision"], cache_dir)
    except (CheckpointError, MissingEnvironmentError) as error:
        if not bare:
            raise
        # Most who type two parts mean a path, and learn nothing from what a hub has to say.
        said = f"no file or folder {source!r} here; taken for a hub id: {error.message}"
        raise type(error)(said, hint=error.hint) from error
    return Source(folder, match["repo"].split("/")[1], revision=folder.name)


def _short_name(path: Path) -> str:
    """Name a path: its last part, or the repository's for a snapshot of the hub's cache."""
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.split("--")[-1]
    if path.is_dir():
        return path.name or "checkpoint"
    return path.stem or path.name


def _fetch(repo: str, revision: str | None, cache_dir: Path | None) -> Path:
    try:
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.errors import HFValidationError
    except ModuleNotFoundError as error:
        raise MissingEnvironmentError(
            f"fetching from the hub needs {error.name!r}, which is not installed here",
            hint='pip install "modelops[export]"',
        ) from error
    # The library reads HF_ENDPOINT when it is imported, which may be long ago.
    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        files: list[str] = []
        if not _offline():
            info = HfApi(endpoint=endpoint).model_info(repo, revision=revision)
            revision = info.sha or revision
            files = [sibling.rfilename for sibling in info.siblings or []]
            _refuse_outside(files, repo)
        safe = not {"model.safetensors", "model.safetensors.index.json"}.isdisjoint(files)
        folder = snapshot_download(
            repo,
            revision=revision,
            cache_dir=cache_dir,
            endpoint=endpoint,
            allow_patterns=list(_WANTED),
            ignore_patterns=["*.py", *(_SAFETENSORS_ONLY if safe else ())],
            local_files_only=_offline(),
        )
    except InputError:
        raise
    except Exception as error:
        # The hub's client has changed its HTTP library more than once; its errors share no base.
        transport = type(error).__module__.startswith(("httpx", "httpcore", "requests"))
        if not transport and not isinstance(error, HFValidationError | OSError | ValueError):
            raise
        raise _translated(error, repo, revision, endpoint) from error
    return Path(str(folder))


def _refuse_outside(files: list[str], repo: str) -> None:
    for name in files:
        if name.startswith("/") or ".." in name.split("/"):
            raise UnsafeInputError(f"{repo} names the file {name!r}, which leads out of its folder")


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _translated(
    error: Exception, repo: str, revision: str | None, endpoint: str | None
) -> InputError | MissingEnvironmentError:
    from huggingface_hub import errors

    where = endpoint or "the Hugging Face hub"
    if isinstance(error, errors.GatedRepoError):
        return CheckpointError(
            f"{repo} is gated: {where} gives it only to accounts that accepted its terms",
            hint="accept them on its page, then run: hf auth login",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return CheckpointError(
            f"{where} has no model {repo!r}, or it is private",
            hint="check the spelling; for a private model run: hf auth login",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return CheckpointError(f"{repo} has no revision {revision!r} on {where}")
    if isinstance(error, errors.HFValidationError):
        return CheckpointError(f"{repo!r} is no hub id: {error}")
    if _offline():
        return MissingEnvironmentError(
            f"{repo} is not in the local cache, and HF_HUB_OFFLINE forbids fetching it",
            hint="unset HF_HUB_OFFLINE, or give a local folder",
        )
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    return MissingEnvironmentError(
        f"cannot fetch {repo} from {where}: {reason}",
        hint="check the network and HF_ENDPOINT, or give a local folder",
    )
