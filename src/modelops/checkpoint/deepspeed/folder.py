"""Opens a folder of DeepSpeed's: what it is of, its whole weights, and what was said on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelops.checkpoint.deepspeed import layout as layouts
from modelops.checkpoint.deepspeed.join import Joined, plan
from modelops.checkpoint.deepspeed.reading import read
from modelops.checkpoint.deepspeed.states import read_states

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DeepSpeedFolder:
    """A vetted folder; ``files`` are all ranks', by their names within it."""

    files: dict[str, Path]
    weights: dict[str, Joined]
    trainer: str
    state: Mapping[Any, Any]
    """What rank 0 says of the run: step, epoch, versions; tensors as stand-ins."""
    globals: tuple[str, ...]
    """What the pickles name."""
    notes: tuple[str, ...]

    def read(self) -> dict[str, Tensor]:
        """Return the whole weights on the CPU."""
        return read(self.weights)


def is_deepspeed(folder: Path) -> bool:
    """Whether a folder is DeepSpeed's, and holds no whole weights of a model beside."""
    return layouts.is_deepspeed(folder)


def open_deepspeed(folder: Path) -> DeepSpeedFolder:
    """Vet a folder of ZeRO stage 0 to 3, and find every weight in it.

    Raises:
        UnsafeInputError: a file names more than DeepSpeed does, or lies outside the folder.
        CheckpointError: a rank's file is missing or does not fit; names file and parameter.
    """
    found = layouts.find_layout(folder)
    states = read_states(found)
    planned = plan(states)
    paths = [*found.model.values(), *found.optim.values()]
    root = states.models[0].root
    version = root.get("ds_version")
    trainer = "DeepSpeed" + (f" {version[:40]}" if isinstance(version, str) else "")
    if states.stage:
        trainer += f", ZeRO-{states.stage} on {states.world} rank" + "s" * (states.world > 1)
    notes = []
    if found.folder != folder:
        notes.append(f"took the step {found.folder.name}, which {layouts.POINTER} names")
    if states.stage:
        notes.append(
            f"joined the fp32 weights of {states.world} ranks (ZeRO-{states.stage}); the "
            "optimizer's state was left aside"
        )
    return DeepSpeedFolder(
        files={path.relative_to(folder).as_posix(): path for path in paths},
        weights=planned.weights,
        trainer=trainer,
        state=root,
        globals=tuple(states.globals),
        notes=(*notes, *planned.notes),
    )
