"""What DeepSpeed itself wrote on two ranks: joined bit for bit, or refused by file and parameter.

``scripts/make_checkpoints.py`` writes the folders; see decision 17.
"""

from __future__ import annotations

import enum
import json
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from modelops.checkpoint import inspect_checkpoint, load_weights, open_checkpoint
from modelops.errors import CheckpointError, UnsafeInputError

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "checkpoints"
FOLDERS = ("deepspeed-zero1", "deepspeed-zero2", "deepspeed-zero3")
RANK_1 = "global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt"
STEP = "global_step2"


def must_be(name: str, folder: Path = GOLDEN) -> None:
    """Compare what is read with what the trainer had in memory when it saved."""
    expected = load_file(folder / f"{name}.safetensors")
    found = open_checkpoint(str(folder / name)).tensors()
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key].dtype == value.dtype, key
        assert torch.equal(found[key], value), key


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], Path]:
    """Lend a copy of a folder to a test that harms it."""
    return lambda name: Path(shutil.copytree(GOLDEN / name, tmp_path / name))


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Callable[[Any], Any]], None]:
    """Return what loads a file of states, lets a test change it, and saves it as DeepSpeed does."""
    known = {
        "deepspeed.runtime.zero.config": enum.IntEnum("ZeroStageEnum", {"a": 1, "b": 2, "c": 3}),
        "deepspeed.runtime.fp16.loss_scaler": type("LossScaler", (), {}),
        "deepspeed.utils.tensor_fragment": type("fragment_address", (), {}),
    }
    for module, cls in known.items():
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name not in sys.modules:
                monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        cls.__module__ = module
        setattr(sys.modules[module], cls.__name__, cls)

    def apply(path: Path, change: Callable[[Any], Any]) -> None:
        state = torch.load(path, weights_only=False)
        change(state)
        torch.save(state, path)

    return apply


@pytest.mark.parametrize("name", FOLDERS)
def test_the_ranks_partitions_become_the_weights_bit_for_bit(name: str) -> None:
    must_be(name)
    weights = open_checkpoint(str(GOLDEN / name)).tensors()
    assert weights["head.weight"] is weights["embed.weight"]
    # DeepSpeed's own converter leaves these out of ZeRO-1, and shared weights out of ZeRO-3.
    assert {"frozen.weight", "head.weight"} <= weights.keys()


@pytest.mark.parametrize("name", FOLDERS)
def test_inspect_tells_trainer_step_and_what_a_careless_load_would_run(name: str) -> None:
    seen = inspect_checkpoint(str(GOLDEN / name))
    assert (seen.format, seen.refused) == ("deepspeed", None)
    assert seen.trainer == f"DeepSpeed 0.19.8, ZeRO-{name[-1]} on 2 ranks"
    assert seen.progress == {"global_steps": 2, "epoch": 1}
    assert {t.name: (t.dtype, t.shape) for t in seen.tensors} == {
        key: (str(value.dtype).removeprefix("torch."), tuple(value.shape))
        for key, value in load_file(GOLDEN / f"{name}.safetensors").items()
    }
    assert "deepspeed.runtime.fp16.loss_scaler.LossScaler" in seen.would_run
    assert all(path.startswith("deepspeed.") for path in seen.would_run)
    assert len(seen.files) == (4 if name.endswith("3") else 3)


def test_a_model_takes_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "trainers")
    import net

    model = net.Net()
    checkpoint = open_checkpoint(str(GOLDEN / "deepspeed-zero3"))
    load_weights(model, checkpoint)
    assert model.head.weight is model.embed.weight
    expected = load_file(GOLDEN / "deepspeed-zero3.safetensors")
    assert all(torch.equal(value, expected[key]) for key, value in model.state_dict().items())


def test_a_step_by_itself_is_a_checkpoint(copy: Callable[[str], Path]) -> None:
    step = copy("deepspeed-zero3") / STEP
    whole = open_checkpoint(str(GOLDEN / "deepspeed-zero3")).tensors()
    assert open_checkpoint(str(step)).tensors().keys() == whole.keys()


def test_beside_a_config_its_model_is_known(copy: Callable[[str], Path]) -> None:
    folder = copy("deepspeed-zero2")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    opened = open_checkpoint(str(folder))
    assert (opened.format, opened.config) == ("deepspeed", {"model_type": "bert"})
    (folder / "config.json").write_text('{"auto_map": {"AutoModel": "x.Y"}}')
    with pytest.raises(UnsafeInputError, match="auto_map"):
        open_checkpoint(str(folder))


@pytest.mark.parametrize("tag", ["../elsewhere", "/etc", "a/../../x", "link"])
def test_latest_must_not_lead_out_of_the_folder(copy: Callable[[str], Path], tag: str) -> None:
    folder = copy("deepspeed-zero2")
    shutil.copytree(folder / STEP, folder.parent / "elsewhere")
    (folder / "link").symlink_to(folder.parent / "elsewhere")
    (folder / "latest").write_text(tag)
    with pytest.raises(UnsafeInputError, match="lead") as caught:
        open_checkpoint(str(folder))
    assert caught.value.exit_code == 3
    assert inspect_checkpoint(str(folder)).refused == caught.value.message


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("deepspeed-zero1", f"{STEP}/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        ("deepspeed-zero2", RANK_1),
        ("deepspeed-zero3", f"{STEP}/zero_pp_rank_1_mp_rank_00_model_states.pt"),
    ],
)
def test_a_rank_that_is_missing_is_named(copy: Callable[[str], Path], name: str, gone: str) -> None:
    folder = copy(name)
    (folder / gone).unlink()
    with pytest.raises(CheckpointError, match=f"{Path(gone).name} is missing"):
        open_checkpoint(str(folder))
    assert len(inspect_checkpoint(str(folder)).files) == (3 if name.endswith("3") else 2)


def shortened(group: int) -> Callable[[Any], None]:
    def change(state: Any) -> None:
        state = state["optimizer_state_dict"]
        key = next(k for k in ("single_partition_of_fp32_groups", "fp32_flat_groups") if k in state)
        state[key][group] = state[key][group][:-2].clone()

    return change


@pytest.mark.parametrize(
    ("name", "group", "parameter"),
    [("deepspeed-zero2", 0, "out.weight"), ("deepspeed-zero3", 2, "out.bias")],
)
def test_a_partition_of_another_size_is_named_with_its_parameter(
    copy: Callable[[str], Path], edit: Any, name: str, group: int, parameter: str
) -> None:
    folder = copy(name)
    edit(folder / RANK_1, shortened(group))
    with pytest.raises(CheckpointError, match=f"rank_1.*'{parameter}'"):
        open_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [("partition_count", [4, 4], "number of ranks: .*2 in .*4 in"), ("zero_stage", 1, "stage")],
)
def test_files_of_different_runs_are_refused(
    copy: Callable[[str], Path], edit: Any, key: str, value: Any, told: str
) -> None:
    folder = copy("deepspeed-zero2")
    edit(folder / RANK_1, lambda state: state["optimizer_state_dict"].update({key: value}))
    with pytest.raises(CheckpointError, match=told):
        open_checkpoint(str(folder))


def test_another_global_in_an_optimizers_file_is_refused(
    copy: Callable[[str], Path], edit: Any, tmp_path: Path
) -> None:
    class Touch:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'marker'}",)

    folder = copy("deepspeed-zero2")
    edit(folder / RANK_1, lambda state: state.update(extra=Touch()))
    with pytest.raises(UnsafeInputError, match=r"1 thing .*posix\.system"):
        open_checkpoint(str(folder))
    seen = inspect_checkpoint(str(folder))
    assert {"posix.system", "deepspeed.utils.tensor_fragment.fragment_address"} <= {*seen.would_run}
    assert not (tmp_path / "marker").exists()


def test_what_deepspeed_names_is_refused_elsewhere(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "deepspeed-zero2" / RANK_1, tmp_path / "weights.pt")
    with pytest.raises(UnsafeInputError, match=r"3 things .*deepspeed\.runtime"):
        open_checkpoint(str(tmp_path / "weights.pt"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mp_rank_01_model_states.pt", "tensor-parallel"),
        ("layer_00-model_00-model_states.pt", "pipeline-parallel"),
        ("layer_0_expert_0_mp_rank_00_model_states.pt", "mixture of experts"),
        ("expp_rank_0_mp_rank_00_optim_states.pt", "mixture of experts"),
    ],
)
def test_other_ways_to_divide_a_model_are_refused_with_how_to_save(
    copy: Callable[[str], Path], name: str, told: str
) -> None:
    folder = copy("deepspeed-zero2")
    shutil.copy(folder / STEP / "mp_rank_00_model_states.pt", folder / STEP / name)
    with pytest.raises(CheckpointError, match=told) as caught:
        open_checkpoint(str(folder))
    assert "save_16bit_model" in (caught.value.hint or "")


def test_the_optimizers_state_is_never_in_memory(copy: Callable[[str], Path], edit: Any) -> None:
    folder = copy("deepspeed-zero2")
    big = torch.zeros(64 << 18)  # 64 MiB

    def grow(state: Any) -> None:
        state["optimizer_state_dict"]["base_optimizer_state"]["state"][0]["exp_avg"] = big

    edit(folder / RANK_1, grow)
    program = (
        "import resource, sys, torch\n"
        "from modelops.checkpoint import open_checkpoint\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        f"open_checkpoint({str(GOLDEN / 'deepspeed-zero2')!r}).tensors()\n"
        "before = peak()\n"
        "weights = open_checkpoint(sys.argv[1]).tensors()\n"
        "print(peak() - before, len(weights))\n"
    )
    grown, count = subprocess.check_output(
        [sys.executable, "-c", program, str(folder)], text=True
    ).split()
    assert int(count) == len(load_file(GOLDEN / "deepspeed-zero2.safetensors"))
    assert int(grown) < 16


@pytest.mark.trainers
@pytest.mark.timeout(1500)
def test_the_trainers_still_write_what_is_kept_here(tmp_path: Path) -> None:
    made = tmp_path / "made"
    script = ROOT / "scripts" / "make_checkpoints.py"
    subprocess.run([sys.executable, str(script), "-o", str(made)], check=True)
    for name in FOLDERS:
        must_be(name, made)
        again = {p.name for p in (made / name / STEP).iterdir()}
        assert again == {p.name for p in (GOLDEN / name / STEP).iterdir()}
    kept = json.loads((GOLDEN / "versions.json").read_text())
    assert json.loads((made / "versions.json").read_text()).keys() == kept.keys()
