from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest, plan_launch
from cloudcoll.launch.openmpi import OpenMpi
from cloudcoll.rankmap import RankMap


def request(counts: tuple[int, ...]) -> LaunchRequest:
    return LaunchRequest(
        launcher=OpenMpi(),
        argv=("mpirun", "--hostfile", "F", "app"),
        start=3,
        hosts=tuple(Host(name) for name in "abcd"[: len(counts)]),
        source="F",
        counts=counts,
        placement_options=((1, 3),),
        binding="none",
    )


def rank_map(order: str) -> RankMap:
    return RankMap(tuple(order), (1,) * len(order))


def test_map_of_other_hosts() -> None:
    """Tests that a map of other hosts is refused, naming some that differ."""
    with pytest.raises(LaunchError, match=r"other hosts than F .*c, x"):
        plan_launch(request((1, 1, 1)), rank_map("abx"), directory=Path("/d"))


def test_rank_0_stays() -> None:
    """Tests that rank 0 changes its host only where that is allowed."""
    with pytest.raises(LaunchError, match=r"rank 0 from a to c.*--free-rank0"):
        plan_launch(request((1, 1, 1)), rank_map("cab"), directory=Path("/d"))
    plan = plan_launch(
        request((1, 1, 1)), rank_map("cab"), directory=Path("/d"), free_rank0=True
    )
    assert plan.placement == ("c", "a", "b")


def test_unused_hosts_are_left_out() -> None:
    """Tests that a host without ranks is not part of the order."""
    plan = plan_launch(request((2, 1, 2, 0)), rank_map("acb"), directory=Path("/d"))
    assert plan.files == {"/d/hosts.seq": "a\na\nc\nc\nb\n"}
