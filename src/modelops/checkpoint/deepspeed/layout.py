"""Which files of a DeepSpeed folder are one checkpoint's, and which rank wrote each."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from modelops.checkpoint.paths import folder_inside, inside, open_regular
from modelops.errors import CheckpointError, InputError, UnsafeInputError

# All that an *_optim_states.pt names beyond plain weights: two settings and where slices lie.
INERT = frozenset(
    {
        "deepspeed.runtime.zero.config.ZeroStageEnum",
        "deepspeed.runtime.fp16.loss_scaler.LossScaler",
        "deepspeed.utils.tensor_fragment.fragment_address",
    }
)
POINTER = "latest"
_MAX_POINTER = 4096
_OPTIM = re.compile(
    r"(?:bf16_|fp16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_(?P<mp>\d+)_optim_states\.pt"
)
_MODEL = re.compile(r"(?:zero_pp_rank_(?P<rank>\d+)_)?mp_rank_(?P<mp>\d+)_model_states\.pt")
_SAVE_FULL = (
    "save it in full where it was trained: engine.save_16bit_model(DIR), with "
    "stage3_gather_16bit_weights_on_model_save for ZeRO-3"
)


@dataclass(frozen=True)
class Layout:
    """The files of one saved step, those of each sort by rank."""

    folder: Path
    model: dict[int, Path]
    optim: dict[int, Path]

    def missing(self, like: Path, rank: int) -> str:
        """Return what the file of another rank would be called."""
        return re.sub(r"zero_pp_rank_\d+", f"zero_pp_rank_{rank}", like.name)


def is_deepspeed(folder: Path) -> bool:
    """Whether a folder is one of DeepSpeed's: it points to a saved step, or is one."""
    pointer = folder / POINTER
    return pointer.is_symlink() or pointer.is_file() or bool(state_files(folder))


def state_files(folder: Path) -> list[Path]:
    """Return the files that DeepSpeed's processes wrote into a saved step."""
    return sorted([*folder.glob("*optim_states.pt"), *folder.glob("*model_states.pt")])


def refuse_share(path: Path) -> None:
    """Refuse a file that is one rank's share of the weights, by the name that DeepSpeed gave it.

    Raises:
        CheckpointError: it is.
    """
    model = _MODEL.fullmatch(path.name)
    if _OPTIM.fullmatch(path.name) or (model is not None and model["rank"]):
        raise CheckpointError(
            f"{path} is one rank's share of a DeepSpeed checkpoint",
            hint=f"give its folder, with the files of all ranks: {path.parent}",
        )


def files_in(folder: Path) -> list[Path]:
    """Return the files of states of the step, safe to look into; none where there is no step."""
    found = []
    with suppress(InputError):
        step = _pointed(folder)
        for path in state_files(step):
            with suppress(InputError):
                found.append(inside(step, path.name))
    return found


def find_layout(folder: Path) -> Layout:
    """Return the files of the step that ``latest`` names, or of ``folder`` where it is one.

    Raises:
        UnsafeInputError: ``latest``, or a link, leads out of the folder.
        CheckpointError: no such step, or one whose tensors were divided in a way not read here.
    """
    step = _pointed(folder)
    model: dict[int, Path] = {}
    optim: dict[int, Path] = {}
    for path in state_files(step):
        held, match = optim, _OPTIM.fullmatch(path.name)
        if match is None:
            held, match = model, _MODEL.fullmatch(path.name)
        if match is None:
            raise _divided(path)
        if int(match["mp"]):
            raise CheckpointError(
                f"{path} is of a tensor-parallel run: it holds slices of layers, and how they "
                "belong together is known to the model's code alone",
                hint=_SAVE_FULL + ", or let the trainer's own converter merge the ranks",
            )
        rank = int(match["rank"] or 0)
        if rank in held:
            raise CheckpointError(f"{path} and {held[rank].name} are both of rank {rank}")
        held[rank] = inside(step, path.name)
    if not model:
        raise CheckpointError(
            f"{step} holds no *_model_states.pt, which says what the partitions are",
            hint="copy the whole folder of the step, with the files of all ranks",
        )
    return Layout(step, model, optim)


def _pointed(folder: Path) -> Path:
    pointer = folder / POINTER
    if state_files(folder):
        return folder
    with open_regular(pointer) as file:
        data = file.read(_MAX_POINTER + 1)
    tag = data.decode("utf-8", "replace").strip()
    if not tag or len(data) > _MAX_POINTER or not tag.isprintable():
        raise CheckpointError(f"{pointer} does not name a step that DeepSpeed saved")
    try:
        step = folder_inside(folder, tag)
    except UnsafeInputError as error:
        raise UnsafeInputError(
            f"{pointer} names {tag!r}: {error.message}", hint="give the step's own folder"
        ) from error
    except CheckpointError as error:
        raise CheckpointError(
            f"{pointer} names the step {tag!r} of a DeepSpeed run: {error.message}",
            hint="copy that step as well, or give another step's own folder",
        ) from error
    if (step / "zero").is_dir() and not state_files(step):
        raise CheckpointError(
            f"{step} is a universal checkpoint of DeepSpeed, converted for training on",
            hint="give the checkpoint that it was converted from",
        )
    return step


def _divided(path: Path) -> CheckpointError:
    if "expert" in path.name or path.name.startswith("expp_"):
        what = "a mixture of experts divided over the ranks"
    elif path.name.startswith("layer_"):
        what = "a pipeline-parallel run, a file for each layer"
    else:
        what = "a layout not known here"
    return CheckpointError(f"{path} is of {what}, which is not read", hint=_SAVE_FULL)
