from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from probes.timing import count_wrong, differences, make_buffers, wave

OPS = ("allgather", "allreduce", "alltoall", "bcast", "reduce", "reduce_scatter")
orders = st.integers(2, 9).flatmap(lambda ranks: st.permutations(range(ranks)))


def received(op: str, members: list[int], place: int, size: int) -> Any:
    """Return what MPI's standard says, worked out of all ranks' own vectors."""
    sent = [make_buffers(op, rank, len(members), size).send for rank in members]
    block = len(sent[0]) // len(sent)
    mine = slice(place * block, (place + 1) * block)
    found: dict[str, Callable[[], Any]] = {
        "allgather": lambda: np.concatenate(sent),
        "allreduce": lambda: np.sum(sent, axis=0),
        "alltoall": lambda: np.concatenate([one[mine] for one in sent]),
        "bcast": lambda: sent[0],
        "reduce": lambda: np.sum(sent, axis=0),
        "reduce_scatter": lambda: np.sum(sent, axis=0)[mine],
    }
    recv = make_buffers(op, members[place], len(members), size).recv
    recv[:] = found[op]()
    return recv


@given(st.sampled_from(OPS), orders, st.integers(1, 400), st.data())
def test_right_results_are_right_and_others_are_not(
    op: str, members: list[int], block: int, data: st.DataObject
) -> None:
    """Tests every place of every order; then one altered element is counted."""
    place = data.draw(st.integers(0, len(members) - 1))
    recv = received(op, members, place, 4 * block * len(members))
    assert count_wrong(op, members, place, recv) == 0
    assume(op != "reduce" or place == 0)
    recv[data.draw(st.integers(0, len(recv) - 1))] += 1
    assert count_wrong(op, members, place, recv) == 1


@pytest.mark.parametrize("op", ["allgather", "alltoall"])
def test_blocks_of_two_ranks_traded_are_wrong(op: str) -> None:
    """Tests that a result in another order of ranks does not pass."""
    members = [2, 0, 3, 1]
    recv = received(op, members, 1, 4 * 4 * 10)
    blocks = recv.reshape(4, -1)
    blocks[[0, 2]] = blocks[[2, 0]]
    assert count_wrong(op, members, 1, recv) == 20


def test_only_the_root_has_a_reduced_vector() -> None:
    """Tests that what lies in other ranks' buffers is nobody's business."""
    assert count_wrong("reduce", [1, 0], 1, np.full(8, -1.0, np.float32)) == 0


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_a_repeated_period_has_no_differences(start: int, count: int) -> None:
    """Tests vectors shorter and longer than a period, and its end in between."""
    vector = np.resize(wave(start), count).astype(np.float32)
    assert differences(vector, wave(start)) == 0
    assert differences(vector, wave(start + 1)) == count
