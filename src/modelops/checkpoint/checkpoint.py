"""What an opened checkpoint is: vetted files, and the tensors in them on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

Format = Literal[
    "huggingface",
    "safetensors",
    "safetensors-sharded",
    "torch",
    "gguf",
    "dcp",
    "deepspeed",
    "pt2",
]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was vetted and may be loaded; nothing of it is in memory yet.

    ``path`` is the local file or folder, ``name`` a short name that is never a path, ``sha256``
    is over ``hashed``, the weights (and a Hugging Face folder's ``config.json``) wherever they
    lie; it is empty where nobody asked for it, since it takes reading all of them.
    ``carried`` maps relative names to the tokenizer and config files that belong to the model:
    data only, no code. ``weights_key`` is the path of keys to the state dict in a torch file.
    """

    path: Path
    name: str
    format: Format
    files: tuple[Path, ...]
    hashed: dict[str, Path]
    sha256: str = ""
    revision: str | None = None
    config: dict[str, Any] | None = None
    carried: dict[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    weights_key: tuple[str, ...] = ()
    read: Callable[[], dict[str, Tensor]] | None = None
    """How its tensors come together, where they do not lie whole in its files."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights on the CPU, memory-mapped, wrapper prefixes stripped.

        Raises:
            CheckpointError: a file changed since it was opened, or two keys become one.
        """
        from modelops.checkpoint.keys import strip_wrappers

        raw = self.raw_tensors()
        return {new: raw[old] for old, new in strip_wrappers(list(raw)).renamed.items()}

    def raw_tensors(self) -> dict[str, Tensor]:
        """Return the weights under the very keys of the file; see ``tensors``."""
        if self.read is not None:
            return self.read()
        from modelops.checkpoint.loading import load_files

        return load_files(self.files, self.weights_key)
