"""A folder's tokenizer: carried along as one ``tokenizer.json``, and used for realistic inputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from modelops.errors import InputError
from modelops.parity.inputs import Arrays
from modelops.signature import Padding
from modelops_exporters.sentences import texts

_NO_LIMIT = 1_000_000
_NOT_TOKENS = {"attention_mask", "token_type_ids"}


@dataclass(frozen=True)
class Tokens:
    """A tokenizer, its inputs' names, and the files that it adds to an artifact."""

    tokenizer: Any
    input_names: tuple[str, ...]
    pad_id: int
    max_tokens: int | None
    files: dict[str, Path | bytes] = field(default_factory=dict)

    def padding_value(self, name: str) -> int:
        """What a padded position of the input ``name`` holds."""
        return 0 if name in _NOT_TOKENS else self.pad_id

    def encoder(self, longest: int) -> Callable[[str], Arrays]:
        """Return a function from a text to the inputs of one item, cut to ``longest`` tokens."""

        def encode(text: str) -> Arrays:
            ids = np.asarray(self.tokenizer.encode(text).ids[:longest], dtype=np.int64)
            fixed = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            return {n: fixed.get(n, ids) for n in self.input_names}

        return encode

    def maker(
        self, names: tuple[str, ...], padding: Padding
    ) -> Callable[[dict[str, int]], Arrays | None]:
        """Return a function that tokenises sentences to about the sizes asked."""

        def realistic(dims: dict[str, int]) -> Arrays:
            batch, longest = dims["batch"], dims["sequence"]
            ids = [self.tokenizer.encode(t).ids[:longest] for t in texts(batch)]
            width = max(max(map(len, ids)), 2)
            arrays = {n: np.full((batch, width), padding.values[n], dtype=np.int64) for n in names}
            for row, item in enumerate(ids):
                arrays["input_ids"][row, : len(item)] = item
                arrays[padding.mask][row, : len(item)] = 1
            return arrays

        return realistic


def read_tokens(folder: Path, carried: Mapping[str, Path]) -> Tokens:
    """Read the folder's tokenizer; one without ``tokenizer.json`` is converted to it.

    Raises:
        InputError: there is no tokenizer, or it cannot be read.
    """
    import transformers

    try:
        slow = transformers.AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True, use_fast=True
        )
    except Exception as error:
        raise InputError(
            f"the tokenizer of {folder.name} cannot be read: {str(error).splitlines()[0]}",
            hint="put tokenizer.json beside config.json, or export by --model without a tokenizer",
        ) from error
    backend = getattr(slow, "backend_tokenizer", None)
    if backend is None:
        raise InputError(
            f"the tokenizer of {folder.name} has no fast form", hint="save it as tokenizer.json"
        )
    files: dict[str, Path | bytes] = {}
    if "tokenizer.json" not in carried:
        files["tokenizer.json"] = json.dumps(
            json.loads(backend.to_str()), ensure_ascii=False, indent=2
        ).encode()
    backend.no_padding()
    backend.no_truncation()
    limit = slow.model_max_length
    return Tokens(
        tokenizer=backend,
        input_names=tuple(slow.model_input_names),
        pad_id=slow.pad_token_id or 0,
        max_tokens=int(limit) if limit and limit < _NO_LIMIT else None,
        files=files,
    )
