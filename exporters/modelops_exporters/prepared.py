"""A model that is ready to trace: in eval mode, flat, with all that is known of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from modelops.artifact.manifest import Source, Task, TextOptions, Tolerance
from modelops.checkpoint import Checkpoint
from modelops.parity.inputs import Arrays
from modelops.parity.user_data import Encode
from modelops.signature import DimRange, Padding, TensorSpec

Realistic = Callable[[dict[str, int]], Arrays | None]
Random = Callable[[dict[str, int], bool], Arrays]


def no_realistic(_dims: dict[str, int]) -> Arrays | None:
    """Know of no inputs such as users send."""
    return None


def source_of(checkpoint: Checkpoint, factory: str | None = None) -> Source:
    """Return the manifest's account of a checkpoint, and of the user's code that made its model."""
    return Source(
        format=checkpoint.format,
        name=checkpoint.name,
        sha256=checkpoint.sha256,
        factory=factory,
        revision=checkpoint.revision,
    )


@dataclass
class Prepared:
    """What every kind of source becomes before it is traced.

    ``carried`` maps names inside the artifact to the bytes or files to be written there.
    ``random`` makes inputs at given sizes, padded or not, where the source knows better than the
    signature which values its model takes; ``encode`` is the source's tokenizer, where it has one.
    """

    model: torch.nn.Module
    inputs: tuple[TensorSpec, ...]
    dims: dict[str, DimRange]
    source: Source
    source_bytes: int
    default_name: str
    task: Task = "tensor"
    padding: Padding | None = None
    text: TextOptions | None = None
    output_names: tuple[str, ...] = ()
    tolerance: Tolerance | None = None
    precision_asked: str | None = None
    carried: dict[str, Path | bytes] = field(default_factory=dict)
    random: Random | None = None
    realistic: Realistic = no_realistic
    encode: Encode | None = None
    notes: list[str] = field(default_factory=list)
    fixed: dict[str, int] = field(default_factory=dict)

    def settle_dims(self) -> None:
        """Make static every dim whose range holds one size; ``fixed`` remembers them."""
        fixed = self.fixed = {d: r.min for d, r in self.dims.items() if r.min == r.max}
        self.dims = {d: r for d, r in self.dims.items() if d not in fixed}
        self.inputs = tuple(
            t.model_copy(
                update={
                    "shape": tuple(fixed.get(d, d) if isinstance(d, str) else d for d in t.shape)
                }
            )
            for t in self.inputs
        )
        if self.padding is not None and self.padding.dim in fixed:
            self.padding = None
