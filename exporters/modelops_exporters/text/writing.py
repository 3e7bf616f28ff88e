"""Writes a language model as a Hugging Face folder of data: safetensors, JSON, a template."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from modelops.checkpoint.safetensors_file import dtype_name, read_header
from modelops_exporters.text.model import build, quiet
from modelops_exporters.text.source import TextSource

ENTRY = "config.json"
_SHARD = "4GB"
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


def write(source: TextSource, folder: Path) -> None:
    """Write the source's model, tokenizer and documents into ``folder``.

    Raises:
        CheckpointError: the weights do not fit the model, or hold NaN.
        OSError: the disk is full.
    """
    from safetensors import SafetensorError

    model = build(source.config, source.tensors(), source.dtype, source.source.name)
    try:
        with quiet():
            model.save_pretrained(folder, max_shard_size=_SHARD)
    except SafetensorError as error:
        if found := _OS_ERROR.search(str(error)):
            code = int(found[1])
            raise OSError(code, os.strerror(code), str(folder)) from error
        raise
    for name, content in source.documents.items():
        target = folder / name
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copyfile(content, target)


def dtypes_in(folder: Path) -> set[str]:
    """Return the float dtypes that the written weights are in, by their own headers.

    Raises:
        CheckpointError: a header is not right.
    """
    found = {
        dtype_name(entry.dtype)
        for path in sorted(folder.glob("*.safetensors"))
        for entry in read_header(path)[0].values()
    }
    return {d for d in found if "float" in d}
