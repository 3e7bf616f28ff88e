"""Hugging Face folders, hub ids, and safetensors beside a config: vetted, copied, never run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from modelops.checkpoint import Checkpoint
from modelops.checkpoint.finite import count_bad
from modelops.checkpoint.huggingface import open_documents
from modelops.errors import CheckpointError, ExportError, InputError
from modelops.progress import Progress
from modelops_exporters.carried import carried_files, json_bytes
from modelops_exporters.huggingface import read_config
from modelops_exporters.prepared import source_of
from modelops_exporters.text.model import architecture_of, build, quiet
from modelops_exporters.text.source import Tensors, TextSource

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
_DOCUMENTS = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def prepare(checkpoint: Checkpoint, progress: Progress) -> TextSource:
    """Read what a folder describes; its tensors stay on disk.

    Raises:
        ExportError: it is no language model, or one whose weights are quantised already.
        InputError: it has no tokenizer or config, or one that transformers does not read.
        UnsafeInputError: a document asks for code.
    """
    folder = checkpoint.path
    if not folder.is_dir():
        folder = folder.parent
        checkpoint = _with_documents(checkpoint, folder)
    if checkpoint.config is None:
        raise CheckpointError(
            f"there is no config.json beside the weights of {checkpoint.name}, to say which model "
            "they are",
            hint="put config.json and the tokenizer's files into their folder",
        )
    config = read_config(folder)
    architecture_of(config)
    quantised = checkpoint.config.get("quantization_config")
    if quantised:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
        raise ExportError(
            f"the weights of {checkpoint.name} are quantised already ({str(method)[:40]}), and "
            "cannot be compared with eager PyTorch in float32",
            hint="export the model that they were made from",
        )
    tokenizer = _tokenizer(folder, checkpoint)
    progress("looking at the weights")
    dtype, notes = _dtype(checkpoint)
    return TextSource(
        config=config,
        tokenizer=tokenizer,
        source=source_of(checkpoint),
        source_bytes=sum(p.stat().st_size for p in checkpoint.files),
        default_name=checkpoint.name,
        dtype=dtype,
        tensors=lambda: _tensors(checkpoint),
        reference=lambda: build(config, _tensors(checkpoint), torch.float32, checkpoint.name),
        documents={**_documents(checkpoint), "config.json": _config(checkpoint.config, dtype)},
        notes=[*checkpoint.notes, *notes],
    )


def _with_documents(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    carried, config = open_documents(folder)
    return replace(checkpoint, carried=carried, config=config)


def _tokenizer(folder: Path, checkpoint: Checkpoint) -> Any:
    import transformers

    if not any(name in checkpoint.carried for name in _TOKENIZERS):
        raise InputError(
            f"{checkpoint.name} has no tokenizer: looked for {', '.join(_TOKENIZERS)}",
            hint="put the tokenizer's files beside config.json",
        )
    try:
        with quiet():
            return transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        raise InputError(
            f"the tokenizer of {checkpoint.name} does not load: {str(error).splitlines()[0][:300]}",
            hint="fetch the checkpoint again, with its tokenizer",
        ) from error


def _documents(checkpoint: Checkpoint) -> dict[str, Path | bytes]:
    chosen = {
        name: path
        for name, path in checkpoint.carried.items()
        if name in _DOCUMENTS or ("/" not in name and name.endswith(".model"))
    }
    return carried_files(chosen)


def _config(config: dict[str, Any], dtype: torch.dtype) -> bytes:
    """Return the source's own config, which any release of transformers reads that read it."""
    left_out = {"_name_or_path", "auto_map", "torch_dtype", "dtype"}
    kept = {k: v for k, v in config.items() if k not in left_out}
    # The old name of the key, which old and new readers know.
    kept["torch_dtype"] = str(dtype).removeprefix("torch.")
    return json_bytes(json.loads(json.dumps(kept)))


def _dtype(checkpoint: Checkpoint) -> tuple[torch.dtype, list[str]]:
    found: dict[torch.dtype, int] = {}
    for name, tensor in checkpoint.tensors().items():
        if not tensor.is_floating_point():
            continue
        if tensor.dtype not in (*_FLOATS, torch.float64):
            raise ExportError(
                f"{checkpoint.name}: {name} is stored as {tensor.dtype}, which is quantised",
                hint="export the model that it was made from",
            )
        if bad := count_bad(tensor):
            raise CheckpointError(
                f"{checkpoint.name}: {name} holds {bad} NaN or infinite values",
                hint="take an earlier checkpoint: training had diverged, or the file is damaged",
            )
        found[tensor.dtype] = found.get(tensor.dtype, 0) + 1
    if len(found) == 1 and (only := next(iter(found))) in _FLOATS:
        return only, []
    stored = ", ".join(str(d).removeprefix("torch.") for d in found) or "no floats"
    return torch.float32, [f"weights are stored as {stored}; written as float32"]


def _tensors(checkpoint: Checkpoint) -> Tensors:
    return dict(checkpoint.tensors())
