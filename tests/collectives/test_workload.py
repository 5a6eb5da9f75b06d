from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.collectives import build_schedule
from cloudcoll.collectives.groups import parse_parallel
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.errors import UsageError

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


def test_pipelines_stay_pipelines() -> None:
    """Tests that repeats and the overlap of steps are kept."""
    groups = np.arange(12).reshape(3, 4)
    job = Operation("allreduce", "nccl_tree", SIZE, groups).schedule(12)
    ring = Operation("allreduce", "ring", SIZE, groups).schedule(12)
    assert set(job.phases) == {0}
    assert ring.phases == (0, 1)
    assert [step.repeat for step in ring.steps] == [3, 3]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 1], [2, 4]], "allreduce ring: groups name ranks beyond 0 to 3"),
        ([[0, -1]], "allreduce ring: groups name ranks beyond 0 to 3"),
        ([[0, 1], [1, 2]], "allreduce ring: rank 1 is in two groups"),
        ([[0, 1]], "rank 2 is in no group .2 are in none.: who takes no part"),
        ([[0, 1, 2]], "rank 3 is in no group: who takes no part"),
    ],
)
def test_wrong_groups_are_refused(groups: list[list[int]], message: str) -> None:
    """Tests that the error names the operation and the rank."""
    operation = Operation("allreduce", "ring", SIZE, np.array(groups))
    with pytest.raises(UsageError, match=message):
        operation.schedule(4)


@st.composite
def cuts(draw: st.DrawFn) -> list[list[int]]:
    """Draw the ranks in any order, cut into groups of any sizes."""
    ranks = draw(st.permutations(range(draw(st.integers(2, 24)))))
    ends = draw(st.sets(st.integers(1, len(ranks) - 1), max_size=5))
    edges = [0, *sorted(ends), len(ranks)]
    return [ranks[a:b] for a, b in itertools.pairwise(edges)]


@given(cuts(), st.sampled_from(["ring", "rabenseifner", "segmented_ring", "nccl_tree"]))
def test_groups_of_any_sizes_send_what_they_would_alone(
    groups: list[list[int]], algorithm: str
) -> None:
    """Tests bytes, and that all take no longer than the one with most turns."""
    arrays = [np.array(group) for group in groups]
    ranks = sum(map(len, groups))
    job = Operation("allreduce", algorithm, SIZE, arrays).schedule(ranks)
    expected = np.zeros((ranks, ranks))
    turns = []
    for members in arrays:
        alone = build_schedule("allreduce", algorithm, len(members), SIZE)
        expected[np.ix_(members, members)] = alone.pair_bytes()
        turns.append(sum(step.repeat for step in alone.steps))
    assert job.pair_bytes() == pytest.approx(expected)
    assert sum(step.repeat for step in job.steps) == max(turns)
    assert job.ranks == ranks


@pytest.mark.parametrize(
    ("collective", "algorithm", "parameters", "groups"),
    [
        ("allgather", "two_proc", {}, [[0, 2], [1], [3]]),
        ("bcast", "binomial", {"root": 2}, [[0, 1, 2], [3]]),
    ],
)
def test_who_takes_no_part_asks_for_nothing(
    collective: str, algorithm: str, parameters: dict[str, int], groups: list[list[int]]
) -> None:
    """Tests algorithms, and roots, that a group of one rank could not have."""
    whole = Operation(
        collective, algorithm, 64, list(map(np.array, groups)), parameters=parameters
    ).schedule(4)
    members = groups[0]
    inner = build_schedule(collective, algorithm, len(members), 64, **parameters)
    alone = np.ix_(members, members)
    assert (whole.pair_bytes()[alone] == inner.pair_bytes()).all()
    assert whole.pair_bytes().sum() == inner.pair_bytes().sum() > 0


def test_two_rings_of_different_lengths_step_by_step() -> None:
    """Tests that the shorter one ends while the longer one goes on."""
    arrays = [np.array([0, 1]), np.array([2, 3, 4])]
    job = Operation("allreduce", "ring", 600, arrays).schedule(5)
    seen = [(step.repeat, step.src.tolist(), step.size.tolist()) for step in job.steps]
    # Two ranks: 1 + 1 turns of 300 B; three: 2 + 2 turns of 200 B.
    assert seen == [
        (1, [0, 1, 2, 3, 4], [300, 300, 200, 200, 200]),
        (1, [0, 1, 2, 3, 4], [300, 300, 200, 200, 200]),
        (2, [2, 3, 4], [200, 200, 200]),
    ]


def two_operations() -> Workload:
    halves = np.arange(6).reshape(2, 3)
    return Workload(
        "job",
        6,
        (
            Operation("allreduce", "ring", 600, np.arange(6)[None], calls=3),
            Operation("alltoall", "pairwise", 300, halves, where="halves"),
        ),
    )


def test_a_step_sends_each_operation_as_often_as_it_is_called() -> None:
    """Tests the bytes of pairs by hand."""
    pairs = two_operations().pair_bytes()
    assert pairs[2, 3] == pytest.approx(3 * 1000)
    assert pairs[0, 1] == pytest.approx(3 * 1000 + 100)
    assert pairs[0, 2] == pytest.approx(100)


def test_a_workload_describes_itself() -> None:
    """Tests that groups without a split of their own are spelled out."""
    said = two_operations().describe()
    assert said["groups"] == {"halves": [[0, 1, 2], [3, 4, 5]]}
    assert [op["groups"] for op in said["operations"]] == ["world", "halves"]
    assert said["operations"][0]["calls"] == 3


def test_a_workload_that_sends_nothing_is_refused() -> None:
    """Tests groups of one rank each, and a job of one."""
    lonely = Operation("allreduce", "ring", 8, np.arange(4)[:, None])
    with pytest.raises(UsageError, match="workload 'job' sends nothing"):
        Workload("job", 4, (lonely,))
    with pytest.raises(UsageError, match="2 ranks or more, not 1"):
        Workload("job", 1, (lonely,))
