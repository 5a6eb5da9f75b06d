"""Tests of what a library can be told to run."""

from __future__ import annotations

import pytest

from cloudcoll.collectives import SCHEDULES, build_schedule
from cloudcoll.errors import UsageError
from cloudcoll.tune.candidates import Candidates

COLLECTIVES = ("allgather", "allreduce", "alltoall", "bcast", "reduce")
LIBRARIES = ("openmpi@4.1.6", "openmpi@5.0.11", "mpich@4.3", "mpich@5.0")


def names(library: str, collective: str, local: int = 1, ranks: int = 16) -> set[str]:
    """Return the algorithms that can be told for 1 MiB."""
    found = Candidates(library, ranks, local).others(collective, 1 << 20)
    return {one.selection.algorithm for one in found}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("local", [1, 2])
def test_all_run_as_asked(library: str, collective: str, local: int) -> None:
    """Tests that every candidate has a schedule, under its own name, and no other."""
    candidates = Candidates(library, 16, local)
    own = candidates.own(collective, 1 << 20)
    assert own.is_own
    assert own.algorithm == ""
    others = candidates.others(collective, 1 << 20)
    assert len({one.key for one in others}) == len(others)
    for one in others:
        assert one.settings
        assert one.algorithm == one.selection.algorithm
        assert (one.algorithm, one.selection.parameters) != (
            own.selection.algorithm,
            own.selection.parameters,
        )
        schedule = build_schedule(
            collective,
            one.algorithm,
            16,
            1 << 20,
            one.selection.library,
            **one.selection.parameters,
        )
        assert schedule.steps


def test_the_versions_decide() -> None:
    """Tests that an algorithm is offered only by versions that have it."""
    assert "sparbit" in names("openmpi@5.0.11", "allgather")
    assert "sparbit" not in names("openmpi@4.1.6", "allgather")
    assert "mpich_recexch" in names("mpich@5.0", "allreduce")
    assert "mpich_recexch" not in names("mpich@4.3", "allreduce")


def test_what_would_not_run_is_none() -> None:
    """Tests that what the library falls back from is not offered."""
    few = Candidates("openmpi@5.0.11", 16).others("allreduce", 16)
    assert "ring" not in {one.algorithm for one in few}
    assert "mpich_recursive_doubling" in names("mpich@5.0", "allgather", ranks=16)
    assert "mpich_recursive_doubling" not in names("mpich@5.0", "allgather", ranks=13)
    assert "two_proc" not in names("openmpi@5.0.11", "allgather")
    two = Candidates("openmpi@5.0.11", 2).own("alltoall", 1 << 20)
    assert two.selection.algorithm == "two_proc"


def test_several_ranks_of_a_host() -> None:
    """Tests that flat algorithms and two levels are both among the choices."""
    candidates = Candidates("openmpi@5.0.11", 16, 2)
    assert candidates.own("allreduce", 1 << 20).selection.algorithm == "han"
    told = candidates.others("allreduce", 1 << 20)
    ring = next(one for one in told if one.algorithm == "ring")
    assert ring.settings["coll_han_priority"] == "0"
    assert ring.settings["coll_tuned_allreduce_algorithm"] == "4"
    mpich = names("mpich@5.0", "allreduce", local=2)
    assert {"ring", "mpich_smp_ring"} <= mpich


def test_the_users_own_settings_win() -> None:
    """Tests that a collective whose algorithm a user has forced is not tuned."""
    forced = Candidates("openmpi@5.0.11", 16, 1, {"coll_tuned_bcast_algorithm": "6"})
    assert not forced.is_tunable("bcast")
    assert forced.forced_by("bcast") == "coll_tuned_bcast_algorithm"
    assert forced.is_tunable("allreduce")
    assert not forced.is_tunable("barrier")


def test_segments_and_fanouts_are_parameters() -> None:
    """Tests that what heeds segments and fan-outs is offered with several."""
    others = Candidates("openmpi@5.0.11", 16).others("bcast", 1 << 20)
    chains = [dict(one.parameters) for one in others if one.algorithm == "chain"]
    assert {one["fanout"] for one in chains} == {2, 4, 8}
    assert {one["segment"] for one in chains} == {0, 16 << 10, 64 << 10, 256 << 10}
    pipeline = [one for one in others if one.algorithm == "pipeline"]
    assert len({one.shape for one in pipeline}) == 2
    assert all("fanout" not in one.parameters for one in pipeline)


def test_a_library_that_can_not_be_told() -> None:
    """Tests that a library without a way in is refused with those that have one."""
    with pytest.raises(UsageError, match=r"known of: openmpi, mpich"):
        Candidates("lightgbm", 16)
    assert set(SCHEDULES)
