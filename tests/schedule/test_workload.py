from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import UsageError
from cloudcoll.schedule import build_schedule
from cloudcoll.schedule.groups import parse_parallel
from cloudcoll.schedule.workload import Operation

SIZE = 1 << 20


@given(
    st.sampled_from(["tp", "dp", "pp"]),
    st.sampled_from(["ring", "rabenseifner", "gloo_ring", "nccl_tree"]),
)
def test_each_group_sends_what_it_would_alone(axis: str, algorithm: str) -> None:
    """Tests the bytes of every pair inside groups, and that none leave them."""
    groups = parse_parallel("tp=4,dp=5,pp=3").groups(axis)
    operation = Operation("allreduce", algorithm, SIZE, groups)
    total = operation.schedule(60).pair_bytes()
    alone = build_schedule("allreduce", algorithm, groups.shape[1], SIZE).pair_bytes()
    for members in groups:
        assert total[np.ix_(members, members)] == pytest.approx(alone)
    assert total.sum() == pytest.approx(len(groups) * alone.sum())


def test_groups_take_their_steps_together() -> None:
    """Tests that eight groups need no more steps than one."""
    groups = parse_parallel("tp=8,dp=8").groups("tp")
    job = Operation("allreduce", "rabenseifner", SIZE, groups).schedule(64)
    alone = build_schedule("allreduce", "rabenseifner", 8, SIZE)
    assert [len(step.src) for step in job.steps] == [
        8 * len(step.src) for step in alone.steps
    ]
    assert job.ranks == 64


def test_pipelines_stay_concurrent() -> None:
    """Tests that repeats and the overlap of steps are kept."""
    groups = np.arange(12).reshape(3, 4)
    job = Operation("allreduce", "nccl_tree", SIZE, groups).schedule(12)
    ring = Operation("allreduce", "ring", SIZE, groups).schedule(12)
    assert job.concurrent
    assert [step.repeat for step in ring.steps] == [3, 3]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 1], [2, 4]], "allreduce ring: groups name ranks beyond 0 to 3"),
        ([[0, -1]], "allreduce ring: groups name ranks beyond 0 to 3"),
        ([[0, 1], [1, 2]], "allreduce ring: rank 1 is in two groups"),
    ],
)
def test_wrong_groups_are_refused(groups: list[list[int]], message: str) -> None:
    """Tests that the error names the operation and the rank."""
    operation = Operation("allreduce", "ring", SIZE, np.array(groups))
    with pytest.raises(UsageError, match=message):
        operation.schedule(4)
