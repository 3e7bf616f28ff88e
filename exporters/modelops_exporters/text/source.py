"""A language model that is ready to be written: all that is known of it, and nothing loaded yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from modelops.artifact.manifest import Source

Tensors = dict[str, torch.Tensor]
Proof = Callable[[Path], list[str]]


@dataclass
class TextSource:
    """What every kind of source becomes before it is written.

    ``config`` and ``tokenizer`` are transformers' own. ``documents`` maps names inside the
    artifact to the source's files, written as they are; what is not among them is made from
    config and tokenizer. ``tensors`` returns the weights under the names of a Hugging Face
    folder, in ``dtype``, and ``reference`` the model as its source has it, in float32, loaded by
    another way than that. ``proofs`` look at the written folder and return what is wrong with it.
    """

    config: Any
    tokenizer: Any
    source: Source
    source_bytes: int
    default_name: str
    dtype: torch.dtype
    tensors: Callable[[], Tensors]
    reference: Callable[[], Any]
    documents: dict[str, Path | bytes] = field(default_factory=dict)
    exact_text: bool = False
    proofs: dict[str, Proof] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    toolchain: tuple[str, ...] = ()

    @property
    def max_tokens(self) -> int:
        """The longest sequence that the model takes, in tokens."""
        for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
            found = getattr(self.config, name, None)
            if isinstance(found, int) and found > 0:
                return found
        found = self.tokenizer.model_max_length
        return int(found) if 0 < found < 1 << 24 else 8192
