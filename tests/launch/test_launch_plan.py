from __future__ import annotations

from dataclasses import replace
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
    """Tests that a map of other hosts is refused, naming three that differ."""
    for order, named in (("abx", r"c, x"), ("axy", r"b, c, x \.\.\.")):
        with pytest.raises(LaunchError, match=rf"other hosts than F .*in {named}\)"):
            plan_launch(request((1, 1, 1)), rank_map(order), directory=Path("/d"))


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


def test_a_map_that_left_hosts_out_moves_the_ranks() -> None:
    """Tests that ranks go to the hosts that it names, where these have room."""
    some = RankMap(("a", "d"), (2, 2), dropped=("b", "c"))
    plan = plan_launch(request((2, 2, 0, 0)), some, directory=Path("/d"))
    assert plan.placement == ("a", "a", "d", "d")
    typed = RankMap(("a", "b"), (2, 2), dropped=("c", "d"))
    assert not plan_launch(request((2, 2, 0, 0)), typed, directory=Path("/d")).placement
    roomy, full = (
        replace(
            request((2, 2, 0, 0)),
            hosts=tuple(Host(n, slots=2 if n < "c" else last) for n in "abcd"),
        )
        for last in (2, 1)
    )
    assert plan_launch(roomy, some, directory=Path("/d")).placement == tuple("aadd")
    for refused in (full, request((2, 1, 0, 0)), request((2, 2, 2, 0))):
        with pytest.raises(LaunchError, match="other hosts than F"):
            plan_launch(refused, some, directory=Path("/d"))


def test_words_in_front_of_programs_move_what_follows() -> None:
    """Tests where programs begin then, and which words have a secret."""
    typed = replace(
        request((1, 1)),
        argv=("mpirun", "-x", "KEY", "app", ":", "-x", "KEY", "other"),
        start=3,
        programs=(3, 7),
        withholding={2: "HIDDEN", 6: "HIDDEN"},
    )
    led = typed.behind(("env", "-i"))
    typed_now = "mpirun -x KEY env -i app : -x KEY env -i other"
    assert " ".join(led.argv) == typed_now
    assert [led.argv[at] for at in led.programs] == ["env", "env"]
    assert {led.argv[at] for at in led.withholding} == {"KEY"}
