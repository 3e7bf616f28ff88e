"""A model's folder is looked at before its engine reads it: whole, and nothing in it is code."""

from __future__ import annotations

from pathlib import Path

from modelops.artifact import open_artifact
from modelops.checkpoint.huggingface import open_documents
from modelops.checkpoint.paths import inside
from modelops.checkpoint.sharded import names_in, read_index
from modelops.config import ModelConfig
from modelops.errors import CheckpointError, UnsafeInputError
from modelops.resolving import find_source
from modelops_servers.keeper.vllm_command import options_of

_TRUST = "--trust-remote-code"
# vLLM reads all of the first of these that there is one of, but for what trainers left there.
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
_NO_WEIGHTS = (
    "training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt",
)  # fmt: skip


def check_source(config: ModelConfig) -> None:
    """Check an artifact wholly; of a Hugging Face folder, that all that is read of it is data.

    Raises:
        InputError, VerificationError: it is not whole.
        UnsafeInputError: a document names code to be run, which ``engine_args`` do not allow; or
            weights would run some, which nothing allows.
    """
    assert config.source is not None  # noqa: S101 - the config sees to it
    folder, manifest = find_source(config.source)
    if manifest is not None:
        open_artifact(folder)
        return
    if not any(a.replace("_", "-") == _TRUST for a in options_of(config).engine_args):
        _check_documents(folder)
    _check_weights(folder)


def _check_documents(folder: Path) -> None:
    try:
        open_documents(folder)
    except UnsafeInputError as error:
        hint = f"if you know that code: engine_args: [{_TRUST}]"
        raise UnsafeInputError(error.message, hint=hint) from error


def _check_weights(folder: Path) -> None:
    looked_at: set[str] = set()
    for index in sorted(folder.glob("*.safetensors.index.json")):
        looked_at |= read_index(folder, index.name).keys()
    for pattern in _WEIGHTS:
        names = {p.name for p in folder.glob(pattern)}.difference(_NO_WEIGHTS)
        for name in sorted(names - looked_at):
            names_in(inside(folder, name))
        if names:
            return
    raise CheckpointError(f"{folder} has no weights: looked for {', '.join(_WEIGHTS)}")
