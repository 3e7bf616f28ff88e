"""C6, C7: safetensors whose header lies, and files whose name does."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file

from modelops.checkpoint import open_checkpoint
from modelops.errors import CheckpointError, ModelopsError

GOOD = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3)}


def written(
    path: Path, header: Any, data: bytes = b"\0" * 24, *, length: int | None = None
) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: str = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"w": entry(shape=(2, 4))}, "'w'"),
        ({"w": entry(shape=(2, 2))}, "'w'"),
        ({"w": entry(offsets=(0, 20))}, "'w'"),
        ({"w": entry(offsets=(24, 0))}, "'w'"),
        ({"w": entry(offsets=(-8, 16))}, "'w'"),
        ({"w": entry(offsets=(0, 2**63))}, "'w'"),
        ({"w": entry(shape=(2**40, 2**40))}, "'w'"),
        ({"w": entry(shape=(-2, -3))}, "'w'"),
        ({"w": entry(shape=(2.0, 3))}, "'w'"),
        ({"w": entry(dtype="F33")}, "F33"),
        ({"w": {"dtype": "F32"}}, "'w'"),
        ({"a": entry(shape=(4,), offsets=(0, 16)), "b": entry(shape=(4,), offsets=(8, 24))}, "'b'"),
        ({"a": entry(shape=(2,), offsets=(0, 8)), "b": entry(shape=(2,), offsets=(16, 24))}, "'b'"),
        ({"w": entry(shape=(2,), offsets=(0, 8))}, "belong to no tensor"),
        (b'{"w":1,"w":2}', "twice"),
        (b'{"w": NaN}', "JSON"),
        (b"{" * 5000, "JSON"),
        ({"__metadata__": {"a": 1}, "w": entry()}, "__metadata__"),
    ],
)
def test_c7_a_header_that_lies_is_refused_by_name(
    tmp_path: Path, header: Any, message: str
) -> None:
    path = written(tmp_path / "model.safetensors", header)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(str(path))
    assert "model" in str(caught.value)
    assert caught.value.exit_code == 3


def test_c7_a_file_without_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no tensors"):
        open_checkpoint(str(written(tmp_path / "m.safetensors", {}, b"")))


@pytest.mark.parametrize("length", [0, 2**31, 2**62, 2**64 - 1])
def test_c7_a_huge_or_empty_header_is_bounded(tmp_path: Path, length: int) -> None:
    path = written(tmp_path / "m.safetensors", {"w": entry()}, length=length)
    with pytest.raises(CheckpointError):
        open_checkpoint(str(path))


def test_c7_truncation_anywhere_is_an_error(tmp_path: Path) -> None:
    whole = save(GOOD)
    path = tmp_path / "model.safetensors"
    for size in [0, 1, 7, 8, 9, 60, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            open_checkpoint(str(path))


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_c7_flipped_bytes_load_whole_or_not_at_all(tmp_path: Path, data: st.DataObject) -> None:
    whole = bytearray(save(GOOD))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(whole))
    try:
        tensors = open_checkpoint(str(path)).tensors()
    except ModelopsError:
        return
    assert sum(t.numel() for t in tensors.values()) <= 64


def test_c6_a_pickle_named_safetensors_is_read_as_a_pickle(tmp_path: Path) -> None:
    torch.save(GOOD, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(str(tmp_path / "model.safetensors"))
    assert checkpoint.format == "torch"
    assert torch.equal(checkpoint.tensors()["w"], GOOD["w"])


def test_c6_safetensors_named_pt_are_safetensors(tmp_path: Path) -> None:
    save_file(GOOD, tmp_path / "model.pt")
    checkpoint = open_checkpoint(str(tmp_path / "model.pt"))
    assert checkpoint.format == "safetensors"
    assert torch.equal(checkpoint.tensors()["w"], GOOD["w"])


def test_every_dtype_comes_back_exactly(tmp_path: Path) -> None:
    kinds = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64, torch.bool,
             torch.float8_e4m3fn]  # fmt: skip
    tensors = {str(k): torch.tensor([0.0, 1.0, 2.0]).to(k) for k in kinds}
    save_file(tensors, tmp_path / "m.safetensors")
    found = open_checkpoint(str(tmp_path / "m.safetensors")).tensors()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name].float(), tensor.float())
