"""Folders: which files of one are the weights, which are carried, and which are never touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelops.checkpoint.documents import (
    read_any_json,
    read_json,
    refuse_code,
    refuse_foreign_modules,
)
from modelops.checkpoint.megatron import refuse_megatron
from modelops.checkpoint.paths import inside
from modelops.checkpoint.sharded import read_index
from modelops.errors import CheckpointError

# The first of these that is there is the weights; nothing else is ever opened, so neither is an
# rng_state.pth, optimizer.pt, scheduler.pt or training_args.bin beside it.
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
CARRIED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "*.model",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "sentence_*_config.json",
    "config_sentence_transformers.json",
    "[0-9]_*/config.json",
    "[0-9]_*/model.safetensors",
)
_OTHERS = {
    "adapter_config.json": (
        "a LoRA adapter, not a whole model",
        "merge it into its base model first: model.merge_and_unload().save_pretrained(…)",
    ),
    ".metadata": (
        "a checkpoint of torch.distributed",
        "convert it: python -m torch.distributed.checkpoint.format_utils dcp_to_torch DIR out.pt",
    ),
    "saved_model.pb": (
        "a SavedModel of TensorFlow",
        "convert it to PyTorch first, and save it as safetensors",
    ),
    "*.index": (
        "a TensorFlow checkpoint",
        "convert it to PyTorch first, and save it as safetensors",
    ),
    "tf_model.h5": ("a TensorFlow checkpoint", "convert it with save_pretrained from TensorFlow"),
    "flax_model.msgpack": ("a Flax checkpoint", "load it with from_flax=True and save it again"),
}


@dataclass(frozen=True)
class Folder:
    """A vetted folder: its weight files and carried files by name, its config if it has one."""

    weights: dict[str, Path]
    carried: dict[str, Path]
    config: dict[str, Any] | None
    notes: tuple[str, ...]


def open_folder(folder: Path) -> Folder:
    """Find and vet what belongs to the model in a folder.

    Raises:
        UnsafeInputError: a document asks for code, or a file lies outside the folder.
        CheckpointError: there are no weights, or they are damaged or incomplete.
    """
    carried, config = open_documents(folder)
    weights, notes = _weights(folder, config)
    return Folder(weights, carried, config, notes)


def holds_weights(folder: Path) -> bool:
    """Whether whole weights lie in a folder under the names that Hugging Face gives them."""
    return any(_exists(folder / name) for name in _WEIGHTS)


def open_documents(folder: Path) -> tuple[dict[str, Path], dict[str, Any] | None]:
    """Return a folder's vetted files beside the weights, by relative name, and its config.

    Raises:
        UnsafeInputError: a document asks for code, or lies outside the folder.
        CheckpointError: one is damaged.
    """
    carried = carried_files(folder)
    config: dict[str, Any] | None = None
    for name, path in carried.items():
        if name.endswith(".json"):
            value = read_any_json(path)
            refuse_code(path, value)
            if name == "modules.json":
                refuse_foreign_modules(path, value)
    if "config.json" in carried:
        config = read_json(carried["config.json"])
    return carried, config


def carried_files(folder: Path) -> dict[str, Path]:
    """Return the tokenizer and config files that belong to the model, by relative name."""
    found: dict[str, Path] = {}
    for pattern in CARRIED:
        for path in sorted(folder.glob(pattern)):
            name = path.relative_to(folder).as_posix()
            found[name] = inside(folder, name)
    return found


def _weights(
    folder: Path, config: dict[str, Any] | None
) -> tuple[dict[str, Path], tuple[str, ...]]:
    there = [name for name in _WEIGHTS if _exists(folder / name)]
    if there:
        chosen, *others = there
        notes = (f"used {chosen}; not opened: {', '.join(others)}",) if others else ()
        if chosen.endswith(".index.json"):
            return read_index(folder, chosen), notes
        return {chosen: inside(folder, chosen)}, notes
    if config is None:
        return _bare_weights(folder), ()
    _explain(folder)
    raise CheckpointError(
        f"{folder} has a config.json but no weights: looked for {', '.join(_WEIGHTS)}",
        hint="fetch the checkpoint again, with its weights",
    )


def _bare_weights(folder: Path) -> dict[str, Path]:
    """Return the weights of a folder that is no Hugging Face folder: its safetensors files."""
    indexes = sorted(p.name for p in folder.glob("*.safetensors.index.json"))
    if len(indexes) == 1:
        return read_index(folder, indexes[0])
    files = sorted(p.name for p in folder.glob("*.safetensors"))
    if len(files) == 1:
        return {files[0]: inside(folder, files[0])}
    _explain(folder)
    if len(files) > 1:
        raise CheckpointError(
            f"{folder} holds {len(files)} safetensors files and no index that says how they "
            f"belong together: {', '.join(files[:5])}",
            hint="give one file, or add its *.safetensors.index.json",
        )
    raise CheckpointError(
        f"{folder} is no checkpoint: looked for config.json, {', '.join(_WEIGHTS)} and "
        "*.safetensors",
        hint="give the folder that holds config.json and the weights, or one weights file",
    )


def _explain(folder: Path) -> None:
    refuse_megatron(folder)
    for pattern, (what, hint) in _OTHERS.items():
        for name in sorted(path.name for path in folder.glob(pattern)):
            raise CheckpointError(f"{folder} is {what} (it holds {name})", hint=hint)


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()
