"""From requests to one call and back: exact for every dtype, padding never seen in an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelops.dtypes import DTYPES, numpy_dtype
from modelops.signature import DimRange, Padding, Signature, TensorSpec
from modelops_servers.batching import Item, ItemMaker, merge, split


def echo(dtype: str) -> Signature:
    return Signature(
        inputs=(TensorSpec(name="x", dtype=dtype, shape=("batch", "n")),),
        outputs=(TensorSpec(name="y", dtype=dtype, shape=("batch", "n")),),
        dims={"batch": DimRange(min=0, max=64), "n": DimRange(min=0, max=64)},
    )


TOKENS = Signature(
    inputs=(
        TensorSpec(name="ids", dtype="int32", shape=("batch", "sequence")),
        TensorSpec(name="mask", dtype="bool", shape=("batch", "sequence")),
        TensorSpec(name="pairs", dtype="bfloat16", shape=("batch", "sequence", 2, "sequence")),
        TensorSpec(name="scale", dtype="float32", shape=("batch",)),
    ),
    outputs=(
        TensorSpec(name="tags", dtype="int32", shape=("batch", "sequence")),
        TensorSpec(name="pairs_out", dtype="bfloat16", shape=("batch", "sequence", 2, "sequence")),
        TensorSpec(name="score", dtype="float32", shape=("batch",)),
    ),
    dims={"batch": DimRange(min=0, max=64), "sequence": DimRange(min=0, max=64)},
    padding=Padding(dim="sequence", mask="mask", values={"ids": 7, "mask": 0, "pairs": -1.5}),
)


def tensor(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 100, shape)
    if dtype == "string":
        strings = np.empty(values.size, dtype=object)
        strings[:] = [b"\xff\x00" * int(n % 3) + str(n).encode() for n in values.ravel()]
        return strings.reshape(shape)
    return values.astype(numpy_dtype(dtype))


def tokens(rows: int, length: int, seed: int = 0) -> Item:
    shapes = {t.name: t.sized({"batch": rows, "sequence": length}) for t in TOKENS.inputs}
    return ItemMaker(TOKENS).make(
        {t.name: tensor(t.dtype, shapes[t.name], seed) for t in TOKENS.inputs}
    )


@given(
    st.sampled_from(sorted(DTYPES)),
    st.lists(st.integers(0, 3), min_size=2, max_size=5),
    st.integers(0, 3),
)
def test_every_dtype_comes_back_exactly_to_whom_it_belongs(
    dtype: str, rows: list[int], n: int
) -> None:
    signature = echo(dtype)
    sent = [tensor(dtype, (r, n), seed) for seed, r in enumerate(rows)]
    items = [ItemMaker(signature).make({"x": x}) for x in sent]
    assert [item.rows for item in items] == rows
    merged = merge(signature, items)["x"]
    assert merged.shape == (sum(rows), n)
    assert merged.dtype == numpy_dtype(dtype)
    for x, answer in zip(sent, split(signature, items, {"y": merged}), strict=True):
        assert answer["y"].dtype == x.dtype
        np.testing.assert_array_equal(answer["y"], x)
        assert answer["y"].size == 0 or np.shares_memory(answer["y"], merged)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=2, max_size=5))
def test_padding_is_put_in_and_never_comes_out(sizes: list[tuple[int, int]]) -> None:
    items = [tokens(rows, length, seed) for seed, (rows, length) in enumerate(sizes)]
    merged = merge(TOKENS, items)
    rows, longest = sum(r for r, _ in sizes), max(n for _, n in sizes)
    assert merged["ids"].shape == (rows, longest)
    assert merged["pairs"].shape == (rows, longest, 2, longest)
    start = 0
    for item in items:
        own = slice(start, start + item.rows)
        assert (merged["ids"][own, item.length :] == 7).all()
        assert not merged["mask"][own, item.length :].any()
        assert (merged["pairs"][own, item.length :] == -1.5).all()
        assert (merged["pairs"][own, :, :, item.length :] == -1.5).all()
        start += item.rows
    outputs = {"tags": merged["ids"], "pairs_out": merged["pairs"], "score": merged["scale"]}
    for item, answer in zip(items, split(TOKENS, items, outputs), strict=True):
        for name, source in (("tags", "ids"), ("pairs_out", "pairs"), ("score", "scale")):
            np.testing.assert_array_equal(answer[name], item.tensors[source])
            assert answer[name].dtype == item.tensors[source].dtype


def test_a_lone_request_is_not_touched() -> None:
    item = tokens(2, 3)
    assert merge(TOKENS, [item]) is item.tensors
    outputs = {"tags": item.tensors["ids"]}
    assert split(TOKENS, [item], outputs)[0]["tags"] is outputs["tags"]


def test_what_has_no_padding_value_is_never_padded() -> None:
    bare = TOKENS.model_copy(
        update={"padding": Padding(dim="sequence", mask="mask", values={"ids": 0})}
    )
    with pytest.raises(ValueError, match="padding value"):
        merge(bare, [tokens(1, 2), tokens(1, 3)])
    assert merge(bare, [tokens(1, 3), tokens(1, 3)])["pairs"].shape == (2, 3, 2, 3)
