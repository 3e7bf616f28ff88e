"""A user's own inputs: what is read, what is refused, and how items become calls."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelops.errors import InputError, UnsafeInputError
from modelops.parity.batches import batches
from modelops.parity.user_data import inputs_of, read_user_data
from modelops.signature import DimRange, Padding, Signature, TensorSpec

FRAMES = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", "frames", 2)),),
    outputs=(),
    dims={"batch": DimRange(min=1, max=4), "frames": DimRange(min=2, max=9)},
)
TOKENS = Signature(
    inputs=tuple(
        TensorSpec(name=n, dtype="int64", shape=("batch", "sequence"), bounds=(0, top))
        for n, top in (("input_ids", 99), ("attention_mask", 1))
    ),
    outputs=(),
    dims={"batch": DimRange(min=1, max=8), "sequence": DimRange(min=2, max=16)},
    padding=Padding(
        dim="sequence", mask="attention_mask", values={"input_ids": 7, "attention_mask": 0}
    ),
)
FIXED = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=(1, 3)),), outputs=(), dims={}
)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def lines(path: Path, *items: Any) -> Path:
    path.write_text("\n".join(json.dumps(i) for i in items))
    return path


def test_a_stack_becomes_items_and_labels_stay_beside_them(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((5, 3, 2)).astype(np.float32)
    data = read_user_data(saved(tmp_path / "d.npz", x=x, label=np.arange(5)), FRAMES)
    assert [i["x"].shape for i in data.items] == [(1, 3, 2)] * 5
    np.testing.assert_array_equal(inputs_of(data, FRAMES)["x"], x)
    np.testing.assert_array_equal(data.extras["label"], np.arange(5))
    calls = batches(data, FRAMES, nbytes=lambda d: d["batch"], budget=100)
    assert [c.items for c in calls] == [(0, 1, 2, 3), (4,)]  # the dim's range is 1..4
    tight = batches(data, FRAMES, nbytes=lambda d: d["batch"], budget=2)
    assert [len(c.items) for c in tight] == [2, 2, 1]
    with pytest.raises(InputError, match="item 0 alone needs"):
        batches(data, FRAMES, nbytes=lambda d: 2**30, budget=2)


def test_a_folder_holds_stacks_of_several_lengths(tmp_path: Path) -> None:
    for n, frames in enumerate((3, 5)):
        saved(tmp_path / f"{n}.npz", x=np.full((2, frames, 2), n, np.float32))
    data = read_user_data(tmp_path, FRAMES)
    calls = batches(data, FRAMES, nbytes=lambda d: 0, budget=1)
    # Without a rule for padding, lengths never mix.
    assert [c.inputs["x"].shape for c in calls] == [(2, 3, 2), (2, 5, 2)]


def test_lines_of_many_lengths_are_padded_as_the_signature_says(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "d.jsonl",
        {"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1], "label": 1},
        {"text": "hi", "label": 0},
    )

    def encode(text: str) -> dict[str, Any]:
        return {"input_ids": np.array([4, 5]), "attention_mask": np.array([1, 1])}

    data = read_user_data(path, TOKENS, encode=encode)
    (call,) = batches(data, TOKENS, nbytes=lambda d: 0, budget=1)
    assert call.items == (1, 0)
    assert call.inputs["input_ids"].tolist() == [[4, 5, 7], [1, 2, 3]]
    assert call.inputs["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert data.extras["label"].tolist() == [1, 0]
    assert inputs_of(data, TOKENS)["input_ids"].dtype == object  # ragged
    with pytest.raises(InputError, match="line 2 is a text, and the model has no tokenizer"):
        read_user_data(path, TOKENS)


def test_a_model_without_a_batch_takes_one_call_or_a_stack_of_them(tmp_path: Path) -> None:
    one = read_user_data(saved(tmp_path / "a.npz", x=np.zeros((1, 3), np.float32)), FIXED)
    two = read_user_data(saved(tmp_path / "b.npz", x=np.zeros((2, 1, 3), np.float32)), FIXED)
    assert [len(one.items), len(two.items)] == [1, 2]
    assert batches(two, FIXED, nbytes=lambda d: 0, budget=1)[1].inputs["x"].shape == (1, 3)


def zipped(path: Path, name: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)
    return path


def header(shape: str, descr: str = "<f4") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_hostile_archives(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UnsafeInputError, match="pickled objects"):
        read_user_data(path, FRAMES)
    # 4 TiB announced, four bytes there: nothing is allocated for it.
    zipped(path, "x.npy", header("(1048576, 1048576)") + b"1234")
    with pytest.raises(InputError, match="and holds 4 bytes"):
        read_user_data(path, FRAMES)
    zipped(path, "x.npy", header("(-1, 3, 2)"))
    with pytest.raises(InputError):
        read_user_data(path, FRAMES)
    for content in (b"", b"PK\x03\x04", b"\x93NUMPY", b"x" * 99):
        path.write_bytes(content)
        with pytest.raises(InputError):
            read_user_data(path, FRAMES)
    zipped(path, "../x.txt", b"")
    with pytest.raises(InputError, match="no array"):
        read_user_data(path, FRAMES)


def test_a_bomb_is_refused_by_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelops.parity.user_data.MOST_BYTES", 2**20)
    path = tmp_path / "d.npz"
    np.savez_compressed(path, x=np.zeros((2**18, 2, 2), np.float32))
    with pytest.raises(InputError, match="unpacks to"):
        read_user_data(path, FRAMES)


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"y": np.zeros(2)}, "input 'x' is missing; it holds y"),
        ({"x": np.zeros((2, 3, 2))}, "item 0, input 'x': dtype float64"),
        ({"x": np.zeros((2, 3, 5), np.float32)}, r"item 0: input 'x' has shape \[1, 3, 5\]"),
        ({"x": np.zeros((2, 99, 2), np.float32)}, "frames=99 is outside 2..9"),
        ({"x": np.float32([[[1, 2]] * 3, [[1, np.nan]] * 3])}, "item 1, input 'x': holds NaN"),
        ({"x": np.zeros((2, 3, 2), np.float32), "label": np.arange(3)}, "'label' is no input"),
        ({"x": np.zeros((0, 3, 2), np.float32)}, "holds no item"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, arrays: Any, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        read_user_data(saved(tmp_path / "d.npz", **arrays), FRAMES)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "line 1 is no JSON"),
        ("[" * 100_000, "line 1 is no JSON"),
        ("[1]", "line 1 is no object"),
        ('{"input_ids": [1, 200], "attention_mask": [1, 1]}', "'input_ids': holds a value outside"),
        ('{"input_ids": [1, 1.5], "attention_mask": [1, 1]}', "its values are no int64"),
        ('{"input_ids": [1, 1e999], "attention_mask": [1, 1]}', "its values are no int64"),
        ('{"input_ids": [1, 99999999999999999999999], "attention_mask": [1, 1]}', "'input_ids'"),
        ('{"input_ids": [[1], [1, 2]], "attention_mask": [1, 1]}', "'input_ids'"),
        ('{"input_ids": [1, 2], "attention_mask": [1]}', "another input has"),
        ('{"input_ids": [1, 2]}', "line 1: input 'attention_mask' is missing"),
        ('{"input_ids": [1, 2], "attention_mask": [1, 1], "k": {"a": 1}}', "line 1: 'k'"),
    ],
)
def test_lines_that_do_not_fit(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=why):
        read_user_data(path, TOKENS)


def test_what_is_there_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file or folder"):
        read_user_data(tmp_path / "none.npz", FRAMES)
    with pytest.raises(InputError, match=r"holds no \.npz"):
        read_user_data(tmp_path, FRAMES)
    (tmp_path / "a.csv").touch()
    with pytest.raises(InputError, match="of no kind"):
        read_user_data(tmp_path / "a.csv", FRAMES)
