from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.arrays import Ints
from cloudcoll.collectives import trees
from cloudcoll.collectives.steps import Flow

RANKS = st.integers(2, 200)


def children(parent: Ints) -> dict[int, list[int]]:
    """Return the children of each position that has some."""
    edges = [(int(p), v) for v, p in enumerate(parent) if p != v]
    return {p: [v for q, v in edges if q == p] for p, _ in edges}


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        # As drawn in the comments of coll_base_topo.c.
        (trees.binomial(8), {0: [1, 2, 4], 1: [3, 5], 2: [6], 3: [7]}),
        (trees.in_order_binomial(8), {0: [1, 2, 4], 2: [3], 4: [5, 6], 6: [7]}),
        (trees.knomial(10, 2), {0: [1, 2, 4, 8], 2: [3], 4: [5, 6], 6: [7], 8: [9]}),
        (trees.knomial(10, 3), {0: [1, 2, 3, 6, 9], 3: [4, 5], 6: [7, 8]}),
        (trees.knomial(10, 4), {0: [1, 2, 3, 4, 8], 4: [5, 6, 7], 8: [9]}),
        (trees.in_order_binary(2), {1: [0]}),
        (trees.in_order_binary(3), {2: [0, 1]}),
        (trees.in_order_binary(4), {3: [1, 2], 1: [0]}),
        (
            trees.in_order_binary(9),
            {8: [3, 7], 7: [5, 6], 3: [1, 2], 5: [4], 1: [0]},
        ),
        # What the code there makes of fanouts 2, 3 and of three chains of 7.
        (trees.complete(8, 2), {0: [1, 2], 1: [3, 5], 2: [4, 6], 3: [7]}),
        (trees.complete(9, 3), {0: [1, 2, 3], 1: [4, 7], 2: [5, 8], 3: [6]}),
        (trees.chains(8, 3), {0: [1, 4, 6], 1: [2], 2: [3], 4: [5], 6: [7]}),
        (trees.chains(4, 9), {0: [1, 2, 3]}),
        # As drawn in the comments of MPICH's treeutil.c.
        (trees.range_knomial(8, 2), {0: [1, 5, 7], 1: [2, 4], 2: [3], 5: [6]}),
        (trees.kary(7, 2), {0: [1, 2], 1: [3, 4], 2: [5, 6]}),
    ],
)
def test_shapes_are_those_of_the_libraries(
    parent: Ints, expected: dict[int, list[int]]
) -> None:
    """Tests shapes against the ones that the libraries' sources draw."""
    assert children(parent) == expected


@given(RANKS, st.integers(2, 9))
def test_every_shape_is_a_tree(ranks: int, fanout: int) -> None:
    """Tests that every position reaches the one root, each on one level."""
    for parent, root in (
        (trees.star(ranks), 0),
        (trees.chains(ranks, fanout), 0),
        (trees.complete(ranks, fanout), 0),
        (trees.binomial(ranks), 0),
        (trees.in_order_binomial(ranks), 0),
        (trees.knomial(ranks, fanout), 0),
        (trees.kary(ranks, fanout), 0),
        (trees.range_knomial(ranks, fanout), 0),
        (trees.in_order_binary(ranks), ranks - 1),
    ):
        found = np.concatenate([[root], *trees.levels(parent)])
        assert sorted(found.tolist()) == list(range(ranks))
        assert parent[root] == root


@given(RANKS)
def test_radix_two_is_binomial(ranks: int) -> None:
    """Tests that the k-nomial tree of radix 2 is the in-order binomial tree."""
    assert (trees.knomial(ranks, 2) == trees.in_order_binomial(ranks)).all()


@given(RANKS, st.integers(1, 9))
def test_chains_are_even(ranks: int, fanout: int) -> None:
    """Tests that chains differ in length by one at most."""
    heads = children(trees.chains(ranks, fanout))[0]
    lengths = np.diff([*heads, ranks])
    assert lengths.max() - lengths.min() <= 1
    assert len(heads) == min(fanout, ranks - 1)


def phases(flow: Flow) -> int:
    return sum(not step.overlaps for step in flow.steps)


def test_segments_make_levels_overlap() -> None:
    """Tests that only a vector of more than one segment is pipelined."""
    parent = trees.chains(4, 1)
    assert phases(trees.broadcast(parent, 100, segment=10)) == 1
    assert phases(trees.broadcast(parent, 100, segment=100)) == 3
    assert phases(trees.reduction(parent, 100)) == 3
