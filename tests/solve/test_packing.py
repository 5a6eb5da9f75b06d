from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcoll.solve.rules import pack


def packed(
    sizes: Sequence[int], space: Sequence[int], liked: object = 0
) -> list[int] | None:
    """Return the racks of groups, checked: none holds more than it has."""
    wishes = np.broadcast_to(np.array(liked), (len(sizes), len(space)))
    found = pack(np.array(sizes, np.int64), np.array(space), wishes)
    if found is None:
        return None
    used = np.bincount(found, sizes, minlength=len(space))
    assert (used <= space).all()
    return [int(rack) for rack in found]


def fits(sizes: Sequence[int], space: Sequence[int]) -> bool:
    """Try every way."""
    ways = itertools.product(range(len(space)), repeat=len(sizes))
    return any(
        all(
            sum(size for size, at in zip(sizes, way, strict=True) if at == rack) <= room
            for rack, room in enumerate(space)
        )
        for way in ways
    )


@settings(max_examples=150)
@given(
    st.lists(st.integers(1, 6), max_size=6),
    st.lists(st.integers(0, 12), min_size=1, max_size=3),
)
def test_a_way_is_found_where_there_is_one(sizes: list[int], space: list[int]) -> None:
    """Tests any groups and racks against all ways."""
    assert (packed(sizes, space) is not None) == fits(sizes, space)


def test_where_the_largest_first_fail_a_program_finds_the_way() -> None:
    """Tests two fives, fours and threes: one of each goes into each twelve."""
    found = packed([5, 5, 4, 4, 3, 3], [12, 12])
    assert found is not None
    assert sorted(found[0:2]) == sorted(found[2:4]) == sorted(found[4:6]) == [0, 1]


def test_groups_get_what_they_like() -> None:
    """Tests wishes, the larger group's first."""
    assert packed([2, 2], [4, 4], [[0, 9], [9, 0]]) == [1, 0]
    assert packed([2, 3], [3, 4], [[0, 9], [0, 9]]) == [0, 1]
