"""Shared memory: what is given out never overlaps, and comes back whole."""

from __future__ import annotations

import os
import random

import numpy as np
import psutil
import pytest

from modelops_servers.dataplane.arena import ARENA_BYTES, Arena

PAGE = 4096
SMALL = 64 * PAGE


def resident(arena: Arena) -> int:
    """Bytes of the memory file that are really there."""
    return os.fstat(arena.fd).st_blocks * 512


def take(arena: Arena, count: int) -> int:
    offset = arena.allocate(count)
    assert offset is not None
    return offset


def test_two_maps_of_it_show_the_same_bytes() -> None:
    mine = Arena.create(SMALL)
    theirs = Arena(os.dup(mine.fd), SMALL)
    offset = take(mine, 100)
    mine.view(offset, 100)[:] = np.arange(100)
    assert theirs.view(offset, 100).tolist() == list(range(100))
    mine.close()
    theirs.close()
    theirs.view(offset, 100)[0] = 9
    assert mine.view(offset, 1)[0] == 9


def test_allocations_are_page_aligned_and_apart() -> None:
    arena = Arena.create(SMALL)
    offsets = [take(arena, size) for size in (1, PAGE, PAGE + 1, 0)]
    assert offsets == [0, PAGE, 2 * PAGE, 4 * PAGE]
    assert arena.taken == 4
    arena.close()


def test_the_lowest_place_that_fits_is_used_again() -> None:
    arena = Arena.create(SMALL)
    first, second, third = (take(arena, 2 * PAGE) for _ in range(3))
    arena.free(first)
    assert take(arena, PAGE) == first
    arena.free(second)
    assert take(arena, 3 * PAGE) == first + PAGE
    assert third == 4 * PAGE
    arena.close()


def test_it_says_when_it_is_full_and_has_room_again_afterwards() -> None:
    arena = Arena.create(SMALL)
    assert arena.allocate(SMALL + 1) is None
    whole = take(arena, SMALL)
    assert arena.allocate(1) is None
    arena.free(whole)
    assert take(arena, SMALL) == whole
    arena.close()


def test_nothing_is_freed_twice_or_unasked() -> None:
    arena = Arena.create(SMALL)
    offset = take(arena, 1)
    with pytest.raises(KeyError):
        arena.free(offset + 1)
    arena.free(offset)
    with pytest.raises(KeyError):
        arena.free(offset)
    assert arena.taken == 0
    assert take(arena, SMALL) == 0
    arena.close()


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_order_allocations_never_overlap_and_all_room_returns(seed: int) -> None:
    rng = random.Random(seed)
    arena = Arena.create(SMALL)
    owner = np.zeros(SMALL, np.int32)
    held: dict[int, tuple[int, int]] = {}
    for number in range(1, 800):
        if held and rng.random() < 0.5:
            offset = rng.choice(list(held))
            count, name = held.pop(offset)
            assert (owner[offset : offset + count] == name).all()
            owner[offset : offset + count] = 0
            arena.free(offset)
        count = rng.choice([1, 100, PAGE, PAGE + 1, 5 * PAGE, 20 * PAGE])
        got = arena.allocate(count)
        if got is not None:
            assert got % PAGE == 0
            assert not owner[got : got + count].any()
            owner[got : got + count] = number
            held[got] = (count, number)
        assert arena.taken == len(held)
    for offset in held:
        arena.free(offset)
    assert take(arena, SMALL) == 0
    arena.close()


def test_an_array_in_it_is_known_by_its_place_and_others_are_not() -> None:
    arena = Arena.create(SMALL)
    other = Arena.create(SMALL)
    offset = take(arena, 3 * PAGE)
    inside = arena.view(offset + 64, 128)
    assert arena.offset_of(inside) == offset + 64
    assert arena.offset_of(inside.view(np.float32).reshape(2, 16)) == offset + 64
    assert other.offset_of(inside) is None
    assert arena.offset_of(np.zeros(128, np.uint8)) is None
    assert arena.offset_of(arena.view(SMALL - 16, 16)) == SMALL - 16
    arena.close()
    other.close()


@pytest.mark.parametrize(
    ("offset", "count"), [(0, SMALL + 1), (SMALL, 1), (-1, 2), (2**63, 1), (PAGE, SMALL)]
)
def test_a_view_never_reaches_beyond_it(offset: int, count: int) -> None:
    arena = Arena.create(SMALL)
    with pytest.raises(ValueError, match="outside the arena"):
        arena.view(offset, count)
    assert arena.view(SMALL, 0).size == 0
    arena.close()


def test_memory_beyond_what_is_kept_goes_back_when_all_is_free() -> None:
    arena = Arena.create()
    size = 160 * 2**20
    small, large = take(arena, PAGE), take(arena, size)
    arena.view(large, size)[::PAGE] = 1
    assert resident(arena) >= size
    arena.free(large)
    arena.free(small)
    assert 0 < resident(arena) <= 65 * 2**20
    # And it is there again, as zeros or old bytes, when it is needed again.
    again = take(arena, size)
    assert again == small
    arena.view(again, size)[-1] = 7
    assert arena.view(again, size)[-1] == 7
    arena.close()


def test_a_new_one_costs_no_memory() -> None:
    arena = Arena.create()
    assert arena.size == ARENA_BYTES
    assert resident(arena) == 0
    arena.close()


def test_its_descriptor_is_not_inherited_and_goes_with_it() -> None:
    before = psutil.Process().num_fds()
    for _ in range(20):
        arena = Arena.create(SMALL)
        assert not os.get_inheritable(arena.fd)
        arena.close()
        arena.close()
        arena.view(0, 8)[:] = 1
    del arena
    # The map itself keeps one too, until it goes.
    assert psutil.Process().num_fds() == before


def test_what_cannot_be_mapped_does_not_keep_its_descriptor() -> None:
    before = psutil.Process().num_fds()
    reading, writing = os.pipe()
    os.close(writing)
    with pytest.raises((OSError, ValueError)):
        Arena(reading, SMALL)
    assert psutil.Process().num_fds() == before
