"""Parts of a tensor: they are taken only where they fill it exactly."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelops.checkpoint.dcp.index import Part, ShardedTensor, check
from modelops.errors import CheckpointError

FILE_BYTES = 1 << 16


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lend a file in which every part's bytes have room."""
    path = tmp_path_factory.mktemp("parts") / "__0_0.distcp"
    path.write_bytes(bytes(FILE_BYTES))
    return path


def tensor(file: Path, shape: Any, boxes: Any) -> ShardedTensor:
    """Return a tensor of one byte a value, its parts one behind the other in the file."""
    parts, begin = [], 0
    for offsets, sizes in boxes:
        length = math.prod(sizes)
        parts.append(Part(tuple(offsets), tuple(sizes), file, begin, length, saved=False))
        begin += length
    return ShardedTensor("layer.weight", "uint8", tuple(shape), tuple(parts))


def filled_once(shape: Any, boxes: Any) -> bool:
    """Count every value of the whole: the slow way to know."""
    counts = dict.fromkeys(product(*map(range, shape)), 0)
    for offsets, sizes in boxes:
        for place in product(
            *(range(low, low + size) for low, size in zip(offsets, sizes, strict=True))
        ):
            if place not in counts:
                return False
            counts[place] += 1
    return all(count == 1 for count in counts.values())


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[int], list[tuple[list[int], list[int]]]]:
    """A shape cut along every dim, as meshes of ranks cut it, in any order."""
    shape = draw(st.lists(st.integers(1, 6), max_size=3))
    cuts = [sorted(draw(st.sets(st.integers(1, size - 1))) if size > 1 else []) for size in shape]
    spans = [
        list(zip([0, *inner], [*inner, size], strict=True))
        for inner, size in zip(cuts, shape, strict=True)
    ]
    boxes = [([low for low, _ in at], [high - low for low, high in at]) for at in product(*spans)]
    return shape, draw(st.permutations(boxes))


@given(grids())
def test_what_a_mesh_cuts_is_whole(file: Path, grid: Any) -> None:
    check([tensor(file, *grid)])


@given(grids(), st.data())
def test_what_is_not_filled_exactly_once_is_refused(file: Path, grid: Any, data: Any) -> None:
    """One part moved, grown, shrunk, lost or doubled; a slow count says what is right."""
    shape, boxes = grid
    boxes = [(list(offsets), list(sizes)) for offsets, sizes in boxes]
    which = data.draw(st.integers(0, len(boxes) - 1))
    how = data.draw(st.sampled_from(["move", "resize", "lose", "double"]))
    if how == "lose":
        del boxes[which]
    elif how == "double" or not shape:
        boxes.append(boxes[which])
    else:
        dim = data.draw(st.integers(0, len(shape) - 1))
        boxes[which][how == "resize"][dim] += data.draw(st.sampled_from([-2, -1, 1, 2]))
    right = all(size >= 0 for _, sizes in boxes for size in sizes) and filled_once(shape, boxes)
    if right:
        check([tensor(file, shape, boxes)])
        return
    with pytest.raises(CheckpointError) as caught:
        check([tensor(file, shape, boxes)])
    assert "layer.weight" in caught.value.message


def test_empty_parts_and_tensors_are_no_trouble(file: Path) -> None:
    """A rank that got nothing writes nothing, or an empty part."""
    check([tensor(file, [2, 3], [([0, 0], [2, 3]), ([2, 0], [0, 3])])])
    check([tensor(file, [0, 5], [])])
    check([tensor(file, [0, 5], [([0, 0], [0, 5])])])


def test_a_gap_that_an_overlap_makes_up_for_is_seen(file: Path) -> None:
    boxes = [([0, 0], [2, 2]), ([1, 0], [2, 2]), ([3, 0], [1, 2]), ([0, 2], [4, 1])]
    shape = [4, 3]
    extra = math.prod(shape) - sum(math.prod(sizes) for _, sizes in boxes)
    assert extra == -2
    with pytest.raises(CheckpointError, match="the same values"):
        check([tensor(file, shape, boxes)])
    boxes[2] = ([3, 0], [0, 2])
    with pytest.raises(CheckpointError, match="the same values"):
        check([tensor(file, shape, boxes)])


def test_two_tensors_in_the_same_bytes_are_refused(file: Path) -> None:
    one = tensor(file, [4], [([0], [4])])
    with pytest.raises(CheckpointError, match="another tensor's too"):
        check([one, one])


def test_sizes_far_beyond_the_file_are_refused_before_memory_is_asked_for(file: Path) -> None:
    with pytest.raises(CheckpointError, match="truncated"):
        check([tensor(file, [1 << 50], [([0], [1 << 50])])])
