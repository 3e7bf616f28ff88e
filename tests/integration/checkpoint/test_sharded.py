"""What torch's own trainers write on two ranks: FSDP2, parts as safetensors, DDP and compile."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sharded_trainer
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

from modelops.checkpoint import inspect_checkpoint, open_checkpoint
from modelops.errors import CheckpointError, InputError, UnsafeInputError

# torch says so where one process alone saves or loads.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on two ranks and save in every way, once."""
    folder = tmp_path_factory.mktemp("trained")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    command = [sys.executable, sharded_trainer.__file__, str(folder)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(port)], env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        for rank in range(2)
    ]
    assert [rank.wait(240) for rank in ranks] == [0, 0]
    return folder


@pytest.fixture
def fsdp(trained: Path, tmp_path: Path) -> Path:
    """Lend a copy of FSDP2's folder to a test that harms it."""
    return Path(shutil.copytree(trained / "fsdp", tmp_path / "fsdp"))


def change(folder: Path, edit: Any) -> None:
    """Write ``.metadata`` anew with what ``edit`` makes of it, as torch itself would."""
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps(edit(metadata) or metadata))


@pytest.mark.parametrize(
    ("saved", "truth"),
    [
        ("fsdp", "full"),
        ("parts", "full"),
        ("columns", "columns"),
        ("ddp.pt", "ddp"),
        ("compiled.pt", "ddp"),
    ],
)
def test_every_bit_is_the_trainers(trained: Path, saved: str, truth: str) -> None:
    wanted = load_file(trained / f"{truth}.safetensors")
    found = open_checkpoint(str(trained / saved)).tensors()
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


def test_a_person_sees_what_it_holds(trained: Path) -> None:
    shown = inspect_checkpoint(str(trained / "fsdp"))
    assert (shown.format, shown.refused, shown.would_run) == ("dcp", None, ())
    assert shown.trainer == "torch.distributed.checkpoint (FSDP and others), 2 ranks"
    assert shown.containers == {"model": 6}
    assert shown.progress == {"step": 12}
    assert shown.dtypes == {"float32": 4, "bfloat16": 1, "int64": 1}
    assert shown.parameters == 7 * 13 + 13 + 13 * 5 + 5 + 9 + 1
    assert any("note.by" in note for note in shown.notes)
    parts = inspect_checkpoint(str(trained / "parts"))
    assert (parts.format, parts.parameters) == ("dcp", shown.parameters)


def test_it_is_as_torch_reads_it(fsdp: Path) -> None:
    """Torch's own reader agrees, where the parts lie otherwise in the files."""
    state = {"model": {"body.0.weight": torch.zeros(13, 7)}}
    dcp.load(state, checkpoint_id=fsdp, no_dist=True)
    found = open_checkpoint(str(fsdp)).tensors()
    assert torch.equal(found["body.0.weight"], state["model"]["body.0.weight"])


def test_the_optimizers_state_can_be_named_and_is_never_taken(fsdp: Path) -> None:
    found = open_checkpoint(str(fsdp))
    assert found.weights_key == ("model",)
    with pytest.raises(CheckpointError, match="no state dict under 'ema'"):
        open_checkpoint(str(fsdp), weights_key="ema")


class Touches:
    """What runs code where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._marker}",)


def test_c1_code_in_the_index_is_never_run(fsdp: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    def edit(metadata: Any) -> None:
        metadata.planner_data["x"] = Touches(marker)

    change(fsdp, edit)
    with pytest.raises(UnsafeInputError, match=r"posix\.system|os\.system") as caught:
        open_checkpoint(str(fsdp))
    assert caught.value.exit_code == 3
    shown = inspect_checkpoint(str(fsdp))
    assert shown.would_run in (("posix.system",), ("os.system",))
    assert shown.refused
    assert not marker.exists()


def test_values_that_are_no_tensors_are_never_unpickled(trained: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    state = {"model": {"w": torch.ones(3)}, "step": Touches(marker)}
    dcp.save(state, checkpoint_id=tmp_path / "evil", no_dist=True)
    assert not marker.exists()
    assert torch.equal(open_checkpoint(str(tmp_path / "evil")).tensors()["w"], torch.ones(3))
    shown = inspect_checkpoint(str(tmp_path / "evil"))
    assert (shown.progress, shown.refused) == ({}, None)
    assert shown.would_run in (("posix.system",), ("os.system",))
    assert not marker.exists()


def test_megatrons_folder_is_known_and_its_pickle_left_closed(
    trained: Path, tmp_path: Path
) -> None:
    """Layers in one tensor, an optimizer's beside it, and what Megatron-Core writes around them."""
    marker, folder = tmp_path / "marker", tmp_path / "iter_0000010"
    layers = torch.rand(4, 6, 5)
    state = {"decoder.layers.mlp.weight": layers, "optimizer.state.exp_avg.x": torch.ones(4, 2)}
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    (folder / "metadata.json").write_text('{"sharded_backend": "torch_dist"}')
    (folder / "common.pt").write_bytes(pickle.dumps(Touches(marker)))
    found = open_checkpoint(str(folder))
    assert found.tensors().keys() == {"decoder.layers.mlp.weight"}
    assert torch.equal(found.tensors()["decoder.layers.mlp.weight"], layers)
    assert any("common.pt" in note for note in found.notes)
    assert inspect_checkpoint(str(folder)).trainer == "Megatron-Core (torch_dist), 1 rank"
    assert not marker.exists()


def _first(metadata: Any, name: str = "model.body.0.weight") -> Any:
    return next(key for key in metadata.storage_data if key.fqn == name)


def _place(metadata: Any, **changes: Any) -> None:
    for name, value in changes.items():
        setattr(metadata.storage_data[_first(metadata)], name, value)


def _outside(metadata: Any) -> None:
    _place(metadata, relative_path="../../etc/passwd")


def _past_the_end(metadata: Any) -> None:
    _place(metadata, offset=1 << 40)


def _another_tensors_bytes(metadata: Any) -> None:
    other = metadata.storage_data[_first(metadata, "model.body.2.weight")]
    _place(metadata, relative_path=other.relative_path, offset=other.offset, length=other.length)


def _huge(metadata: Any) -> None:
    told = metadata.state_dict_metadata["model.body.0.weight"]
    told.size = torch.Size((1 << 40, 7))
    told.chunks[1].sizes = torch.Size(((1 << 40) - 7, 7))


def _a_hole(metadata: Any) -> None:
    metadata.state_dict_metadata["model.body.0.weight"].chunks.pop()


def _twice(metadata: Any) -> None:
    chunks = metadata.state_dict_metadata["model.body.0.weight"].chunks
    chunks[1] = chunks[0]


def _out_of_bounds(metadata: Any) -> None:
    metadata.state_dict_metadata["model.body.0.weight"].size = torch.Size((9, 7))


def _nowhere(metadata: Any) -> None:
    del metadata.storage_data[_first(metadata)]


def _another_dtype(metadata: Any) -> None:
    metadata.state_dict_metadata["model.body.0.weight"].properties.dtype = torch.float16


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (_outside, "leads? out of the folder|would lead out"),
        (_past_the_end, "truncated"),
        (_another_tensors_bytes, "another tensor's too|the index says"),
        (_huge, "bytes, .* are needed"),
        (_a_hole, "is not whole"),
        (_twice, "not whole|the same values"),
        (_out_of_bounds, "reaches outside the whole"),
        (_nowhere, "says of no file"),
        (_another_dtype, "the index says float16"),
    ],
)
def test_an_index_that_lies_is_refused_and_the_tensor_named(
    fsdp: Path, edit: Any, says: str
) -> None:
    change(fsdp, edit)
    with pytest.raises(InputError, match=says) as caught:
        open_checkpoint(str(fsdp)).tensors()
    assert "body" in caught.value.message or "passwd" in caught.value.message


def test_a_missing_or_short_file_of_one_rank_is_named(fsdp: Path) -> None:
    victim = fsdp / "__1_0.distcp"
    data = victim.read_bytes()
    victim.write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match="__1_0"):
        open_checkpoint(str(fsdp))
    victim.unlink()
    with pytest.raises(CheckpointError, match=r"__1_0.*missing"):
        open_checkpoint(str(fsdp))
    victim.symlink_to("/etc/passwd")
    with pytest.raises(UnsafeInputError, match="__1_0"):
        open_checkpoint(str(fsdp))


def test_the_index_in_part_is_no_checkpoint(fsdp: Path) -> None:
    path = fsdp / ".metadata"
    data = path.read_bytes()
    for size in (0, 1, len(data) // 3, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(CheckpointError, match="damaged"):
            open_checkpoint(str(fsdp))


def test_it_is_exported_as_any_other(trained: Path, tmp_path: Path) -> None:
    from modelops.api.export import ExportRequest, export
    from modelops.signature import parse_tensor

    result = export(
        ExportRequest(
            source=str(trained / "fsdp"),
            model="sharded_trainer:Trained",
            inputs=(parse_tensor("x=float32[batch,7]"),),
            output=tmp_path / "out",
        )
    )
    assert result.parity.passed
    assert any("from 11 parts in 2 files" in note for note in result.notes)
