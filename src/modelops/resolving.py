"""From a model as it was asked for to the version on disk and the engine that serve it."""

from __future__ import annotations

import difflib
from pathlib import Path

from pydantic import ValidationError

from modelops import registry
from modelops.artifact import (
    MANIFEST,
    TEXT_FORMAT,
    Manifest,
    locate,
    read_manifest,
    version_of,
    versions,
)
from modelops.config import ELSEWHERE, ModelConfig, ModelEntry
from modelops.errors import InputError

# Importing an engine imports its runtime, which the process that only plans must not hold: what
# the built-in ones serve is known without. A test keeps this equal to what they say themselves.
FORMATS: dict[str, tuple[str, ...]] = {
    "onnxruntime": ("onnx",),
    "tensorrt": ("tensorrt",),
    "torch": ("torch-export", "aoti"),
    "vllm": (TEXT_FORMAT,),
    ELSEWHERE: (),
}

_HF_CONFIG = "config.json"


def resolve_model(entry: ModelEntry, *, import_engine: bool = False) -> ModelConfig:
    """Find the newest version that ``entry.source`` means now, and the engine for its format.

    With ``import_engine`` an engine from another package is also asked which formats it serves;
    otherwise its host finds out.

    Raises:
        InputError: there is no artifact, no such engine, none for the artifact's format, or one
            that an option is not for.
        IntegrityError: the manifest cannot be read or was changed.
        MissingEnvironmentError: what the engine imports is not installed.
    """
    if entry.source is None:  # it runs elsewhere
        return ModelConfig(**dict(entry))
    folder, manifest = find_source(entry.source)
    found = TEXT_FORMAT if manifest is None else manifest.format
    engine = entry.engine or default_engine(found)
    if engine is None:
        raise InputError(
            f"no engine here serves {found}, the format of {folder}",
            hint="export it again with --to onnx",
        )
    check_engine(engine)
    formats = FORMATS.get(engine)
    if formats is None and import_engine:
        formats = tuple(registry.resolve("engines", engine).formats)
    if formats is not None and found not in formats:
        raise InputError(
            f"the engine {engine!r} serves {', '.join(formats)}, and {folder} is {found}",
            hint="leave the engine out to take the one that serves it",
        )
    # Found now, so that what is loaded is what was said, whatever is published meanwhile.
    fields = {name: getattr(entry, name) for name in ModelEntry.model_fields}
    fields |= {"source": folder, "engine": engine, "asked": entry.source}
    try:
        return ModelConfig(**fields)
    except ValidationError as error:  # what was asked for does not fit the engine just found
        said = "; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors())
        raise InputError(said) from error


def find_source(source: Path) -> tuple[Path, Manifest | None]:
    """Return the folder that ``source`` means: an artifact's version, with its manifest.

    A Hugging Face folder, which text engines also serve, has none.

    Raises:
        InputError: there is neither.
        IntegrityError: the manifest cannot be read or was changed.
    """
    artifact = (source / MANIFEST).exists() or versions(source)
    if not artifact and (source / _HF_CONFIG).is_file():
        return source, None
    folder = locate(source)
    return folder, read_manifest(folder)


def resolve_again(model: ModelConfig) -> ModelConfig:
    """Look again for the newest version of what was asked for; the engine stays.

    Raises:
        InputError, IntegrityError: as ``resolve_model``.
    """
    source = model.source if model.asked is None else model.asked
    return resolve_model(model.model_copy(update={"source": source}))


def version(model: ModelConfig) -> int:
    """Return the version that a resolved model serves: its folder's number, or 1."""
    return 1 if model.source is None else version_of(model.source.absolute().name) or 1


def default_engine(artifact_format: str) -> str | None:
    """Return the engine that serves a format where none was asked for."""
    return next((name for name, formats in FORMATS.items() if artifact_format in formats), None)


def check_engine(name: str) -> None:
    """Check that an engine is registered under ``name``.

    Raises:
        InputError: none is; the nearest is named.
    """
    known = registry.names("engines")
    if name in known:
        return
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    suggestion = f"; did you mean {near[0]}?" if near else ""
    raise InputError(
        f"no engine is registered as {name[:64]!r}{suggestion}", hint="one of: " + ", ".join(known)
    )
