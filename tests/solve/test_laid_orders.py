from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.solve.orders import laid_orders


def job(groups: list[list[int]], ranks: int) -> Workload:
    arrays = [np.array(group) for group in groups]
    return Workload(
        "job", ranks, (Operation("allreduce", "ring", 8, arrays, where="some"),)
    )


def test_each_group_gets_neighbours() -> None:
    """Tests hosts 4, 5, 6 and 7, 8, 9 for two groups of every second rank."""
    laid = laid_orders(job([[1, 3, 5], [0, 2, 4]], 6), np.arange(4, 10), 1)
    assert laid["some"].tolist() == [4, 7, 5, 8, 6, 9]


def test_ranks_of_a_host_stay_together() -> None:
    """Tests two ranks on each of four hosts, in groups of four."""
    laid = laid_orders(job([[0, 1, 4, 5], [2, 3, 6, 7]], 8), np.arange(4), 2)
    assert laid["some"].tolist() == [0, 2, 1, 3]


@given(st.permutations(range(12)), st.integers(1, 5), st.sampled_from([1, 2, 3]))
def test_any_groups_give_an_order(ranks: list[int], size: int, slots: int) -> None:
    """Tests that every host is used once."""
    groups = [ranks[first : first + size + 1] for first in range(0, 12, size + 1)]
    laid = laid_orders(job(groups, 12), np.arange(12 // slots), slots)
    assert sorted(laid["some"]) == list(range(12 // slots))
