"""Frames: what one end writes the other reads, however the bytes arrive; damage is an error."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelops import errors
from modelops.dtypes import DTYPES, numpy_dtype
from modelops.errors import DeadlineError, EngineError, MissingEnvironmentError, RequestError
from modelops.signature import TensorSpec
from modelops_servers.dataplane import wire
from modelops_servers.dataplane.arena import Arena
from modelops_servers.dataplane.failure import heard, told
from modelops_servers.dataplane.packed_strings import PackedStrings, opened, packed
from modelops_servers.dataplane.wire import (
    BY_ARENA_BYTES,
    HEAD_BYTES,
    Frame,
    FrameReader,
    Kind,
    Tensors,
)

SIZE = 2**24


class Ends:
    """A writer's arena and the reader's map of the same memory."""

    def __init__(self) -> None:
        self.ours = Arena.create(SIZE)
        self.theirs = Arena(os.dup(self.ours.fd), SIZE)
        self.taken: list[int] = []

    def carry(
        self, tensors: Tensors, values: dict[str, Any], kind: Kind = Kind.REQUEST
    ) -> tuple[dict[str, Any], bool]:
        """Write ``values``, feed the frame through a reader, return what is read."""
        data = tensors.write(kind, 7, values, self.ours, self.taken, 1.5, None)
        [frame] = FrameReader().feed(data)
        assert (frame.kind, frame.id, frame.first) == (kind, 7, 1.5)
        assert wire.when(frame.second) is None
        return tensors.read(frame, self.theirs)

    def give_back(self) -> None:
        for offset in self.taken:
            self.ours.free(offset)
        self.taken.clear()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.ours.close()
    made.theirs.close()


def spec(name: str, dtype: str = "float32", rank: int = 1) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=tuple(f"d{i}" for i in range(rank)))


def sample(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if dtype == "string":
        array = np.empty(count, dtype=object)
        array[:] = [rng.bytes(int(rng.integers(0, 40))) for _ in range(count)]
        return array.reshape(shape)
    raw = rng.bytes(count * numpy_dtype(dtype).itemsize)
    if dtype == "bool":
        return (np.frombuffer(raw, np.uint8) % 2).astype(bool).reshape(shape)
    return np.frombuffer(raw, numpy_dtype(dtype)).reshape(shape)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Bit for bit, NaN included."""
    if a.dtype == object:
        return a.shape == b.shape and opened(a).tolist() == b.tolist()
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5), (0,), (3, 0, 2), (1, 1, 1, 1, 7)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape_arrives_bit_for_bit(
    ends: Ends, dtype: str, shape: tuple[int, ...]
) -> None:
    tensors = Tensors([spec("a", dtype, len(shape)), spec("b", "int8")])
    values = {"a": sample(dtype, shape), "b": sample("int8", (3,))}
    got, shared = ends.carry(tensors, values)
    assert not shared
    assert not ends.taken
    assert same(got["a"], values["a"])
    assert same(got["b"], values["b"])
    assert list(got) == ["a", "b"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_tensors_go_through_the_arena(ends: Ends, dtype: str) -> None:
    tensors = Tensors([spec("a", dtype), spec("small", "int64")])
    values = {"a": sample(dtype, (100_000,)), "small": sample("int64", (2,))}
    got, shared = ends.carry(tensors, values)
    assert shared
    assert ends.ours.taken == len(ends.taken) == 1
    assert same(got["a"], values["a"])
    assert same(got["small"], values["small"])
    ends.give_back()
    assert ends.ours.taken == 0


def test_the_frame_of_a_large_tensor_is_small_and_the_reader_does_not_copy(ends: Ends) -> None:
    tensors = Tensors([spec("a")])
    values = {"a": np.ones(BY_ARENA_BYTES // 4, "f4")}
    data = tensors.write(Kind.RESULT, 1, values, ends.ours, ends.taken)
    assert len(data) < 200
    got, _ = tensors.read(FrameReader().feed(data)[0], ends.theirs)
    ends.ours.view(ends.taken[0], 4).view("f4")[0] = 5
    assert got["a"][0] == 5


def test_a_byte_less_than_the_limit_travels_in_the_frame(ends: Ends) -> None:
    tensors = Tensors([spec("a", "uint8")])
    tensors.write(Kind.RESULT, 1, {"a": np.ones(BY_ARENA_BYTES - 1, "u1")}, ends.ours, ends.taken)
    assert not ends.taken
    tensors.write(Kind.RESULT, 1, {"a": np.ones(BY_ARENA_BYTES, "u1")}, ends.ours, ends.taken)
    assert len(ends.taken) == 1


def test_what_lies_in_the_arena_already_is_not_copied_again(ends: Ends) -> None:
    tensors = Tensors([spec("a")])
    offset = ends.ours.allocate(2**20)
    assert offset is not None
    array = ends.ours.view(offset, 2**20).view("f4")
    array[:] = 3
    got, shared = ends.carry(tensors, {"a": array})
    assert shared
    assert not ends.taken
    assert ends.ours.taken == 1
    assert got["a"].sum() == 3 * 2**18


def test_what_lies_in_it_in_another_order_is(ends: Ends) -> None:
    tensors = Tensors([spec("a", rank=2)])
    offset = ends.ours.allocate(2**20)
    assert offset is not None
    array = ends.ours.view(offset, 2**20).view("f4").reshape(512, 512)
    array[:] = np.arange(2**18, dtype="f4").reshape(512, 512)
    got, _ = ends.carry(tensors, {"a": array.T})
    assert len(ends.taken) == 1
    assert same(got["a"], np.ascontiguousarray(array.T))


@pytest.mark.parametrize("count", [12, 100_000])
def test_arrays_of_any_layout_arrive_in_order(ends: Ends, count: int) -> None:
    tensors = Tensors([spec("a", rank=2), spec("b")])
    a = np.arange(count * 2, dtype="f4").reshape(count, 2)
    values = {"a": np.asfortranarray(a), "b": np.arange(count * 3, dtype="f4")[::-3]}
    got, _ = ends.carry(tensors, values)
    assert same(got["a"], a)
    assert same(got["b"], values["b"].copy())


def test_where_the_arena_is_full_tensors_travel_in_the_frame(ends: Ends) -> None:
    tensors = Tensors([spec("a", "uint8")])
    assert ends.ours.allocate(SIZE) == 0
    values = {"a": sample("uint8", (5_000_000,))}
    got, shared = ends.carry(tensors, values)
    assert not shared
    assert not ends.taken
    assert same(got["a"], values["a"])


def test_what_is_read_is_aligned_and_so_is_every_frame(ends: Ends) -> None:
    tensors = Tensors([spec("a", "uint8"), spec("b", "float64", 3), spec("c", "string")])
    frames = []
    for n in range(20):
        values = {
            "a": np.ones(n, "u1"),
            "b": np.ones((n, 1, 1)),
            "c": np.array([b"x" * n], dtype=object),
        }
        frames.append(tensors.write(Kind.REQUEST, n, values, ends.ours, ends.taken))
    frames.append(wire.failure(1, EngineError("é" * 3), 0.0))
    frames.append(wire.short(Kind.FREE, 1))
    assert all(len(f) % 16 == 0 for f in frames)
    for frame in FrameReader().feed(b"".join(frames))[:20]:
        got, _ = tensors.read(frame, ends.theirs)
        assert got["b"].flags.aligned
        assert got["b"].sum() == frame.id


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_however_the_bytes_are_cut_the_same_frames_come_out(data: st.DataObject) -> None:
    arena = Arena.create(SIZE)
    tensors = Tensors([spec("a", "uint8"), spec("b", "string", 0)])
    stream = b""
    sizes = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=8))
    for number, size in enumerate(sizes):
        values = {
            "a": np.full(size, number, "u1"),
            "b": np.array(b"s" * size, dtype=object),
        }
        stream += tensors.write(Kind.RESULT, number, values, arena, [], 0.5, float(number))
        stream += wire.short(Kind.CANCEL, number)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    reader, got = FrameReader(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += [_kept(tensors, frame, arena) for frame in reader.feed(stream[start:stop])]
    expected = [
        entry
        for number, size in enumerate(sizes)
        for entry in ((Kind.RESULT, number, float(number), size), (Kind.CANCEL, number, 0.0, None))
    ]
    assert got == expected
    arena.close()


def _kept(tensors: Tensors, frame: Frame, arena: Arena) -> tuple[int, int, float, int | None]:
    if frame.kind != Kind.RESULT:
        return frame.kind, frame.id, frame.second, None
    got, _ = tensors.read(frame, arena)
    assert (got["a"] == frame.id).all()
    assert opened(got["b"]).item() == b"s" * got["a"].size
    return frame.kind, frame.id, frame.second, got["a"].size


def test_one_byte_at_a_time(ends: Ends) -> None:
    tensors = Tensors([spec("a", "int64")])
    data = tensors.write(Kind.REQUEST, 3, {"a": np.arange(5)}, ends.ours, ends.taken) * 2
    reader = FrameReader()
    frames = [f for i in range(len(data)) for f in reader.feed(data[i : i + 1])]
    assert [f.id for f in frames] == [3, 3]
    assert tensors.read(frames[1], ends.theirs)[0]["a"].tolist() == list(range(5))


def test_views_of_one_frame_outlive_the_next_ones(ends: Ends) -> None:
    tensors = Tensors([spec("a", "int64")])
    data = [tensors.write(Kind.REQUEST, n, {"a": np.full(50, n)}, ends.ours, []) for n in range(20)]
    stream, reader, kept = b"".join(data), FrameReader(), []
    for at in range(0, len(stream), 333):
        kept += [tensors.read(f, ends.theirs)[0]["a"] for f in reader.feed(stream[at : at + 333])]
    assert [a.tolist() for a in kept] == [[n] * 50 for n in range(20)]


def damaged(data: bytes, at: int, layout: str, *values: int) -> Frame:
    raw = bytearray(data)
    struct.pack_into(layout, raw, at, *values)
    return FrameReader().feed(bytes(raw))[0]


@pytest.mark.parametrize(
    ("at", "layout", "value"),
    [
        pytest.param(HEAD_BYTES, "<B", 40, id="a rank beyond the frame"),
        pytest.param(HEAD_BYTES, "<B", 0, id="another rank"),
        pytest.param(HEAD_BYTES + 8, "<Q", 2**40, id="more bytes than there are"),
        pytest.param(HEAD_BYTES + 8, "<Q", 7, id="a count that is no multiple"),
        pytest.param(HEAD_BYTES + 24, "<Q", 9, id="another size"),
        pytest.param(HEAD_BYTES + 24, "<Q", 2**63, id="a size without end"),
        pytest.param(HEAD_BYTES + 24, "<Q", 2**64 - 1, id="a size that is no size"),
    ],
)
def test_a_damaged_record_is_an_error(ends: Ends, at: int, layout: str, value: int) -> None:
    tensors = Tensors([spec("a", "int64"), spec("b", "int64")])
    values = {"a": np.arange(4), "b": np.arange(2)}
    data = tensors.write(Kind.REQUEST, 1, values, ends.ours, ends.taken)
    with pytest.raises(EngineError, match="damaged"):
        tensors.read(damaged(data, at, layout, value), ends.theirs)


@pytest.mark.parametrize("offset", [SIZE, SIZE - 8, 2**63, 2**64 - 1])
def test_a_place_beyond_the_arena_is_an_error(ends: Ends, offset: int) -> None:
    tensors = Tensors([spec("a")])
    values = {"a": np.ones(BY_ARENA_BYTES // 4, "f4")}
    data = tensors.write(Kind.REQUEST, 1, values, ends.ours, ends.taken)
    with pytest.raises(EngineError, match="damaged"):
        tensors.read(damaged(data, HEAD_BYTES + 16, "<Q", offset), ends.theirs)


@pytest.mark.parametrize("length", [0, 1, HEAD_BYTES - 1])
def test_a_frame_shorter_than_its_head_is_an_error(length: int) -> None:
    data = bytearray(wire.short(Kind.CANCEL, 1))
    struct.pack_into("<I", data, 0, length)
    with pytest.raises(EngineError, match="damaged"):
        FrameReader().feed(bytes(data))


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_an_error_or_wait_for_more(data: bytes) -> None:
    arena = Arena.create(SIZE)
    tensors = Tensors([spec("a"), spec("b", "string")])
    head = bytearray(wire.short(Kind.REQUEST, 1))
    struct.pack_into("<I", head, 0, HEAD_BYTES + len(data))
    # Nothing but this error: whoever reads drops the connection on it and lives on.
    with contextlib.suppress(EngineError):
        tensors.read(FrameReader().feed(bytes(head) + data)[0], arena)
    with contextlib.suppress(EngineError):
        FrameReader().feed(data)
    arena.close()


@pytest.mark.parametrize(
    "error",
    [
        RequestError("input 'x' is off", hint="send another"),
        EngineError("onnxruntime failed: 日本語 \ud800"),
        DeadlineError(""),
        MissingEnvironmentError("x" * 5000),
    ],
)
def test_errors_of_the_tree_arrive_as_what_they_are(error: errors.ModelopsError) -> None:
    [frame] = FrameReader().feed(wire.failure(9, error, 0.25))
    assert (frame.kind, frame.id, frame.first) == (Kind.ERROR, 9, 0.25)
    got = wire.error_of(frame)
    assert type(got) is type(error)
    assert got.message == error.message.encode("utf-8", "backslashreplace").decode()
    assert got.hint == error.hint


@pytest.mark.parametrize("kind", ["NoSuchError", "annotations", "ClassVar", "__name__"])
def test_an_error_that_the_tree_lacks_is_the_engines(kind: str) -> None:
    got = heard({**told(EngineError("it broke")), "type": kind})
    assert type(got) is EngineError
    assert got.message == "it broke"


@pytest.mark.parametrize("count", [4, 20_000])
def test_strings_of_a_result_stay_packed_where_they_lie(ends: Ends, count: int) -> None:
    tensors = Tensors([spec("a", "string", 2), spec("b")])
    values = {"a": sample("string", (2, count)), "b": np.ones(3, "f4")}
    got, shared = ends.carry(tensors, values, Kind.RESULT)
    assert shared == (count > 4)
    assert isinstance(got["a"], PackedStrings)
    assert same(got["a"], values["a"])
    if shared:
        assert ends.theirs.offset_of(np.frombuffer(got["a"].packed, np.uint8)) == ends.taken[0]
    assert same(got["b"], values["b"])


def test_packed_strings_that_lie_in_the_arena_are_not_copied(ends: Ends) -> None:
    tensors = Tensors([spec("a", "string")])
    blob = packed(sample("string", (20_000,)))
    offset = ends.ours.allocate(len(blob))
    assert offset is not None
    memory = ends.ours.view(offset, len(blob))
    memory[:] = np.frombuffer(blob, np.uint8)
    got, shared = ends.carry(tensors, {"a": PackedStrings.of(memory.data, (20_000,))})
    assert shared
    assert ends.ours.taken == 1
    assert packed(got["a"]) == blob


@pytest.mark.parametrize("count", [4, 100_000])
def test_a_tensor_of_another_dtype_is_refused_and_takes_nothing(ends: Ends, count: int) -> None:
    tensors = Tensors([spec("fine"), spec("wrong")])
    values = {"fine": np.zeros(count, "f4"), "wrong": np.zeros(count, "f8")}
    with pytest.raises(EngineError, match=r"'wrong' is float64 .* float32"):
        tensors.write(Kind.RESULT, 1, values, ends.ours, ends.taken)
    assert not ends.taken
    assert ends.ours.taken == 0


def test_bfloat16_is_no_float16(ends: Ends) -> None:
    tensors = Tensors([spec("a", "bfloat16")])
    got, _ = ends.carry(tensors, {"a": np.array([1.5, -2], ml_dtypes.bfloat16)})
    assert got["a"].astype("f4").tolist() == [1.5, -2]
    with pytest.raises(EngineError):
        tensors.write(Kind.RESULT, 1, {"a": np.zeros(2, "f2")}, ends.ours, ends.taken)


def test_what_fails_in_the_middle_gives_back_only_its_own(ends: Ends) -> None:
    tensors = Tensors([spec("a"), spec("b", "string")])
    before = ends.ours.allocate(1)
    assert before is not None
    ends.taken.append(before)
    values = {"a": np.zeros(100_000, "f4"), "b": np.array([None, "text"], dtype=object)}
    with pytest.raises(TypeError):
        tensors.write(Kind.REQUEST, 1, values, ends.ours, ends.taken)
    assert ends.taken == [before]
    assert ends.ours.taken == 1
