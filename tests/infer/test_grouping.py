from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.arrays import Floats
from cloudcoll.infer.grouping import bottom, complete, flatten, grow, naming


def nested(*levels: tuple[int, float]) -> Floats:
    """Return distances of hosts that share blocks: sizes, largest first, and 1 apart.

    Parameters
    ----------
    levels : sequence of (int, float)
        Hosts in a block, and how far apart they are.
    """
    hosts = np.arange(2 * levels[0][0])
    apart = np.ones((len(hosts), len(hosts)))
    for size, distance in levels:
        block = hosts // size
        apart[block[:, None] == block] = distance
    np.fill_diagonal(apart, 0.0)
    return apart


@pytest.mark.parametrize(
    ("within", "grouped"), [(0.1, True), (0.55, True), (0.74, True), (0.76, False)]
)
def test_groups_have_to_stand_out(within: float, grouped: bool) -> None:
    """Tests the silhouette, here one less the distance within a group, against 0.25.

    Below that there is no structure (Kaufman and Rousseeuw 1990, table 4 of chapter 2).
    """
    tree = grow(nested((4, within)), list(range(8)))
    assert (tree == [[0, 1, 2, 3], [4, 5, 6, 7]]) == grouped
    assert (tree == list(range(8))) == (not grouped)


@pytest.mark.parametrize(
    ("sizes", "grouped"), [([3, 3], False), ([4, 2], False), ([4, 3], True)]
)
def test_few_hosts_may_be_apart_by_chance(sizes: list[int], grouped: bool) -> None:
    """Tests distances that scatter by more than the gap between near and far ones.

    How likely they are the nearest ones by chance, by hand: 60 of C(15, 6) for 3 + 3
    hosts, 45 of C(15, 7) for 4 + 2, 123 of C(21, 9) for 4 + 3. Only the last is less
    than one in a thousand.
    """
    near, far = itertools.cycle([0.1, 0.4]), itertools.cycle([0.7, 1.3])
    label = np.repeat([0, 1], sizes)
    apart = np.zeros((len(label), len(label)))
    for a, b in itertools.combinations(range(len(label)), 2):
        apart[a, b] = apart[b, a] = next(near if label[a] == label[b] else far)
    hosts = list(range(len(label)))
    parts = [sorted(flatten(part)) for part in grow(apart, hosts)]
    groups = [hosts[: sizes[0]], hosts[sizes[0] :]]
    assert parts == (groups if grouped else [[host] for host in hosts])


@pytest.mark.parametrize(
    ("sizes", "ways"), [([4], 1), ([2, 2], 3 * 4), ([3, 3], 10 * 6), ([2] * 3, 15 * 36)]
)
def test_what_it_takes_to_name_groups(sizes: list[int], ways: int) -> None:
    """Tests partitions into groups of a size, times the sizes there may be."""
    assert naming(np.array(sizes)) == pytest.approx(math.log(ways))


def test_groups_of_groups() -> None:
    """Tests that two levels come out of one matrix, and their hosts in order."""
    tree = grow(nested((4, 0.3), (2, 0.05)), list(range(8)))
    assert tree == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert flatten(tree) == list(range(8))
    assert bottom(tree) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_a_host_beside_groups_is_alone() -> None:
    """Tests that it is no group of one, and that the bottom has it by itself."""
    apart = np.ones((5, 5))
    apart[:2, :2] = apart[2:4, 2:4] = 0.1
    np.fill_diagonal(apart, 0.0)
    tree = grow(apart, list(range(5)))
    assert tree == [[0, 1], [2, 3], 4]
    assert bottom(tree) == [[0, 1], [2, 3], [4]]


def test_two_hosts_are_no_groups() -> None:
    """Tests that it takes a third host to say that two are near each other."""
    assert grow(np.array([[0.0, 1.0], [1.0, 0.0]]), [0, 1]) == [0, 1]


def test_where_distances_show_nothing_others_are_asked() -> None:
    """Tests that the answer is split further, and given in its own order."""
    asked: list[list[int]] = []

    def otherwise(items: list[int], likely: object) -> list[list[int]] | None:
        asked.append(items)
        return [[0, 1], [2, 3]] if len(items) == 4 else None

    assert grow(np.full((4, 4), np.nan), [0, 1, 2, 3], otherwise) == [[0, 1], [2, 3]]
    assert asked == [[0, 1, 2, 3], [0, 1], [2, 3]]


@given(st.lists(st.integers(1, 3), min_size=2, max_size=4))
def test_missing_pairs_of_a_tree_are_filled_in(sizes: list[int]) -> None:
    """Tests racks of which each pair was measured by way of other hosts alone."""
    rack = np.repeat(np.arange(len(sizes)), np.array(sizes) + 1)
    true = np.where(rack[:, None] == rack, 1.0, 5.0)
    np.fill_diagonal(true, 0.0)
    seen = true.copy()
    # The first hosts of two racks never met: others of theirs did.
    first = np.searchsorted(rack, [0, 1])
    seen[first[0], first[1]] = seen[first[1], first[0]] = np.nan
    assert (complete(seen) == true).all()


def test_what_nothing_joins_is_as_far_as_the_farthest() -> None:
    """Tests two hosts that met each other and nobody else."""
    apart = np.full((4, 4), np.nan)
    apart[0, 1] = apart[1, 0] = 1.0
    apart[2, 3] = apart[3, 2] = 3.0
    filled = complete(apart)
    assert filled[0, 1] == 1.0
    assert (filled[:2, 2:] == 3.0).all()
    assert (np.diag(filled) == 0.0).all()


def test_where_nothing_was_measured_nothing_is_made_up() -> None:
    """Tests that an empty matrix stays one, with zeros on its diagonal."""
    empty = complete(np.full((3, 3), np.nan))
    assert (np.diag(empty) == 0.0).all()
    assert np.isnan(empty[np.triu_indices(3, 1)]).all()
