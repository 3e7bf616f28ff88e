"""Files made to be misread, to hide, to take memory or to take for ever."""

from __future__ import annotations

import io
import pickle
import re
import struct
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from modelops.checkpoint import inspect_checkpoint, open_checkpoint
from modelops.errors import CheckpointError, InputError, UnsafeInputError


def text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def long1(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return b"\x8a" + bytes([len(data)]) + data


def archive(path: Path, data: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("archive/data.pkl", data)
        out.writestr("archive/version", "3\n")
    return path


def weights() -> dict[str, torch.Tensor]:
    return {"weight": torch.ones(2), "bias": torch.zeros(2)}


@pytest.mark.parametrize("container", ["zip", "bare", "legacy"])
@pytest.mark.parametrize("tail", [b"", b"\xff", b"R"])
def test_c1_a_pickle_that_breaks_after_its_call_is_unsafe_and_not_only_damaged(
    tmp_path: Path, container: str, tail: bytes
) -> None:
    marker = tmp_path / "marker"
    data = b"\x80\x02cos\nsystem\n" + text(f"touch {marker}") + b"\x85R" + tail
    path = tmp_path / "w.pt"
    if container == "zip":
        archive(path, data)
    else:
        head = [torch.serialization.MAGIC_NUMBER, 1001, {}] if container == "legacy" else []
        path.write_bytes(b"".join(pickle.dumps(part, 2) for part in head) + data)
    with pytest.raises(UnsafeInputError, match=r"os\.system"):
        open_checkpoint(str(path))
    assert inspect_checkpoint(str(path)).would_run == ("os.system",)
    assert not marker.exists()


def test_dicts_that_share_their_children_do_not_multiply(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"leaf": 1}
    for _ in range(3):
        shared = {str(i): shared for i in range(1500)}
    path = archive(tmp_path / "w.pt", pickle.dumps(shared, 2))
    start = time.perf_counter()
    with pytest.raises(CheckpointError, match="no state dict"):
        open_checkpoint(str(path))
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize(
    "call",
    [
        b"cbuiltins\nbytearray\n" + long1(10**12) + b"\x85R",
        b"c_codecs\nencode\n" + text("a" * 1000) + text("idna") + b"\x86R",
        b"ccollections\nCounter\n](K\x01K\x02e\x85\x85R",
    ],
    ids=["a terabyte of zeros", "a codec of its choice", "a counter of lists"],
)
def test_allowed_constructors_take_only_what_torch_save_writes(tmp_path: Path, call: bytes) -> None:
    path = archive(tmp_path / "w.pt", b"\x80\x02}" + text("x") + call + b"s.")
    with pytest.raises(UnsafeInputError, match=r"bytearray|encode|Counter"):
        open_checkpoint(str(path))


@pytest.mark.parametrize(
    "key", [long1(10**600), b"\x8b" + struct.pack("<I", 4001) + b"\x01" * 4001], ids=["600", "9600"]
)
def test_numbers_too_long_to_print_are_no_keys(tmp_path: Path, key: bytes) -> None:
    path = archive(tmp_path / "w.pt", b"\x80\x02}" + key + b"}s.")
    with pytest.raises(CheckpointError):
        open_checkpoint(str(path))
    assert inspect_checkpoint(str(path)).model_dump_json()


def test_a_step_beyond_any_float_is_left_out_of_the_inspection(tmp_path: Path) -> None:
    torch.save({"model": weights(), "step": 10**500, "epoch": float("nan")}, tmp_path / "w.pt")
    seen = inspect_checkpoint(str(tmp_path / "w.pt"))
    assert seen.progress == {}
    assert seen.refused is None


def test_half_characters_in_names_are_escaped_and_refused(tmp_path: Path) -> None:
    torch.save({"\ud800": torch.ones(1)}, tmp_path / "w.pt")
    header = b'{"\\ud800": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
    (tmp_path / "w.st").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    for name in ("w.pt", "w.st"):
        with pytest.raises(InputError, match="no Unicode"):
            open_checkpoint(str(tmp_path / name))
        assert "ud800" in inspect_checkpoint(str(tmp_path / name)).model_dump_json()


def test_a_global_with_half_characters_is_shown_escaped(tmp_path: Path) -> None:
    path = archive(tmp_path / "w.pt", b"\x80\x04" + text("m\udfff") + text("f") + b"\x93.")
    assert inspect_checkpoint(str(path)).would_run == ("m\\udfff.f",)


def legacy(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def test_a_legacy_storage_of_absurd_size_is_a_truncated_file(tmp_path: Path) -> None:
    size = 1 << 62
    raw = legacy({"weight": torch.ones(2)})
    raw, count = re.subn(rb"(cpuq.)K\x02", lambda m: m[1] + long1(size), raw)
    assert count == 1
    (tmp_path / "w.pt").write_bytes(raw[:-16] + size.to_bytes(8, "little") + raw[-8:])
    with pytest.raises(CheckpointError, match="truncated"):
        open_checkpoint(str(tmp_path / "w.pt"))


def test_a_legacy_file_of_a_newer_dtype_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    # torch writes such files and fails to read them
    (tmp_path / "w.pt").write_bytes(legacy({"w": torch.ones(2, dtype=torch.uint16)}))
    with pytest.raises(CheckpointError, match="newer than that") as caught:
        open_checkpoint(str(tmp_path / "w.pt"))
    assert "default format" in (caught.value.hint or "")


@pytest.mark.parametrize("change", ["number", "missing", "order"])
def test_legacy_storages_are_those_that_the_file_lists(tmp_path: Path, change: str) -> None:
    raw = bytearray(legacy({"weight": torch.ones(2)}))
    if change == "number":
        raw[-16:-8] = (3).to_bytes(8, "little")
    elif change == "missing":
        raw = raw[:-16]
    else:
        at = raw.rfind(b"X", 0, len(raw) - 20)
        raw[at + 5] ^= 1
    (tmp_path / "w.pt").write_bytes(bytes(raw))
    with pytest.raises(CheckpointError, match=r"damaged|truncated"):
        open_checkpoint(str(tmp_path / "w.pt"))


@pytest.mark.parametrize(("at", "spelling"), [(257, b"ustar"), (300, b"PK\x03\x04".hex().encode())])
def test_c6_a_header_that_spells_another_formats_mark_is_still_safetensors(
    tmp_path: Path, at: int, spelling: bytes
) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.ones(1)}, path, metadata={"note": "y" * 400})
    raw = bytearray(path.read_bytes())
    assert raw[at : at + len(spelling)] == b"y" * len(spelling)
    raw[at : at + len(spelling)] = spelling
    path.write_bytes(bytes(raw))
    opened = open_checkpoint(str(path))
    assert opened.format == "safetensors"
    assert torch.equal(opened.tensors()["w"], torch.ones(1))


def test_a_pickle_with_a_zip_behind_it_is_read_as_neither(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    good = io.BytesIO()
    torch.save(weights(), good)
    evil = b"\x80\x02cos\nsystem\n" + text(f"touch {marker}") + b"\x85R."
    (tmp_path / "w.pt").write_bytes(evil + good.getvalue())
    with pytest.raises(UnsafeInputError, match=r"os\.system"):
        open_checkpoint(str(tmp_path / "w.pt"))
    assert not marker.exists()


@pytest.mark.parametrize("legacy_format", [False, True])
def test_what_trainers_keep_beside_the_weights_does_not_stand_in_the_way(
    tmp_path: Path, legacy_format: bool
) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 60])
    kept = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "lr_scheduler": schedule.state_dict(),  # holds a Counter
        "rng_state": torch.get_rng_state(),
        "seen": {1, 2},
        "counts": Counter("aab"),
        "blob": b"abc",
        "buffer": bytearray(b"abc"),
        "dtype": torch.float16,
        "size": torch.Size([2]),
        "device": torch.device("cpu"),
    }
    torch.save(kept, tmp_path / "w.pt", _use_new_zipfile_serialization=not legacy_format)
    opened = open_checkpoint(str(tmp_path / "w.pt"))
    assert opened.weights_key == ("model",)
    assert torch.equal(opened.tensors()["weight"], model.weight)
