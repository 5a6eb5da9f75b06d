from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.collectives.groups import AXES, Parallel, is_implied, parse_parallel
from cloudcoll.errors import UsageError

# Megatron-LM, megatron/core/parallel_state.py: docstrings of
# initialize_model_parallel and generate_masked_orthogonal_rank_groups.
DOCUMENTED = [
    ("tp=2,pp=4,dp=2", "dp", [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10]]),
    ("tp=2,pp=4,dp=2", "tp", [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]),
    ("tp=2,pp=4,dp=2", "pp", [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14]]),
    ("tp=4,cp=2", "cp", [[0, 4], [1, 5], [2, 6], [3, 7]]),
    ("tp=2,pp=2,dp=2,order=tp-pp-dp", "dp", [[0, 4], [1, 5], [2, 6], [3, 7]]),
    ("tp=2,dp=3,pp=4,order=tp-dp-pp", "dp", [[0, 2, 4], [1, 3, 5]]),
]


@pytest.mark.parametrize(("text", "axis", "first"), DOCUMENTED)
def test_groups_are_those_that_megatron_documents(
    text: str, axis: str, first: list[list[int]]
) -> None:
    """Tests the examples of Megatron-LM's own docstrings."""
    groups = parse_parallel(text).groups(axis)
    assert groups[: len(first)].tolist() == first


def test_the_last_group_is_that_of_the_documentation() -> None:
    """Tests dp_group[7] of the documented 24 ranks."""
    groups = parse_parallel("tp=2,dp=3,pp=4,order=tp-dp-pp").groups("dp")
    assert len(groups) == 8
    assert groups[7].tolist() == [19, 21, 23]


def test_experts_have_a_grid_of_their_own() -> None:
    """Tests that ep groups are spread over what cp and dp are elsewhere."""
    job = parse_parallel("tp=2,cp=2,dp=2,ep=4,pp=2")
    assert job.ranks == 16
    assert job.groups("ep").tolist()[:2] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert job.groups("dp", "cp").tolist()[0] == [0, 2, 4, 6]
    assert job.groups("pp").tolist()[0] == [0, 8]


@st.composite
def jobs(draw: st.DrawFn) -> Parallel:
    sizes = {axis: draw(st.integers(1, 4)) for axis in ("tp", "cp", "dp", "pp")}
    spread = sizes["cp"] * sizes["dp"]
    ep = draw(st.sampled_from([n for n in range(1, spread + 1) if spread % n == 0]))
    front = draw(st.permutations([axis for axis in AXES if axis != "pp"]))
    return Parallel(**sizes, ep=ep, order=(*front, "pp"))


@given(jobs(), st.sets(st.sampled_from(sorted(AXES)), min_size=1))
def test_groups_of_one_kind_share_out_the_ranks(job: Parallel, axes: set[str]) -> None:
    """Tests that every rank is in exactly one group of a kind, for any order."""
    groups = job.groups(*axes)
    assert sorted(groups.ravel()) == list(range(job.ranks))


@given(jobs())
def test_groups_of_two_kinds_meet_once(job: Parallel) -> None:
    """Tests that a tp group and a dp group have at most one rank in common."""
    for one in job.groups("tp"):
        for other in job.groups("dp"):
            assert len(np.intersect1d(one, other)) <= 1


@given(jobs())
def test_one_group_of_all_axes_is_the_job(job: Parallel) -> None:
    """Tests the sizes of the groups of every kind."""
    assert job.groups("tp", "cp", "dp", "pp").shape == (1, job.ranks)
    for axis in AXES:
        assert job.groups(axis).shape[1] == getattr(job, axis)
    assert math.prod((job.tp, job.cp, job.dp, job.pp)) == job.ranks


@given(jobs())
def test_a_split_is_read_back(job: Parallel) -> None:
    """Tests that its text means the same split."""
    assert parse_parallel(str(job), job.ranks) == job


def test_groups_have_names() -> None:
    """Tests the names that workloads use."""
    job = parse_parallel("tp=2,cp=2,dp=2")
    assert job.named("world").tolist() == [list(range(8))]
    assert job.named("dp-cp").tolist() == job.groups("dp", "cp").tolist()
    assert is_implied("world")
    assert is_implied("dp-cp")
    assert not is_implied("towers")


def test_dp_takes_what_is_left() -> None:
    """Tests that dp may be left out where the number of ranks is known."""
    assert parse_parallel("tp=8,pp=4", 512).dp == 16
    assert parse_parallel("tp=8,pp=4,dp=16", 512).ranks == 512


@pytest.mark.parametrize(
    ("text", "ranks", "message"),
    [
        ("tp=8,pp=4,dp=16", 64, "tp=8 x pp=4 x dp=16 is 512 ranks, the job has 64"),
        ("tp=3,pp=4", 64, "tp=3 x pp=4 is 12 ranks, the job has 64"),
        ("tp=8,zp=4", None, "unknown token 'zp' in 'tp=8,zp=4' (known: tp, cp, ep"),
        ("tp=8,tp=4", None, "tp is given twice"),
        ("", None, "unknown token ''"),
        ("tp", None, "tp has no value"),
        ("tp=0", None, "tp=0: a group has a positive number"),
        ("tp=-1", None, "tp=-1: a group has a positive number"),
        ("tp=" + "9" * 5000, None, "more than 65536 ranks"),
        ("tp=00", None, "tp=00: a group has a positive number"),
        ("tp=65536,pp=2", None, "more than 65536 ranks"),
        ("tp=two", None, "tp=two: a group has a positive number"),
        ("tp=2,order=tp-tp", None, "tp is twice in order=tp-tp"),
        ("tp=2,order=tp-xx", None, "unknown axis 'xx' in order=tp-xx"),
        ("tp=2,dp=2,order=tp-pp", None, "order=tp-pp lacks dp, which has 2 ranks"),
        ("tp=2,dp=2,ep=3", None, "ep=3 does not divide cp x dp = 2"),
        (
            "dp=4,ep=2,pp=2,order=tp-ep-pp-dp",
            None,
            "puts experts in other pipelines than the rest (cp=1, ep=2): put pp last",
        ),
    ],
)
def test_nonsense_is_refused_in_one_line(
    text: str, ranks: int | None, message: str
) -> None:
    """Tests that the message names the token and what would do."""
    with pytest.raises(UsageError) as refused:
        parse_parallel(text, ranks)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unknown_groups_are_refused() -> None:
    """Tests that asking for a kind of group that does not exist names the kinds."""
    with pytest.raises(UsageError, match=r"no groups of kind 'xp' \(known: tp, cp"):
        Parallel(tp=2).groups("xp")
