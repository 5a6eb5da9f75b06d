from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.collectives import SCHEDULES, Schedule, build_schedule
from cloudcoll.daemon.verdict import OrderQuestion
from cloudcoll.errors import UsageError
from cloudcoll.libraries import (
    DEFAULT,
    GLOO,
    LIBRARIES,
    LIGHTGBM,
    OF_TRAINING,
    OF_UNKNOWN_MPI,
    XGBOOST,
    announced,
    forced_settings,
    large_vector_algorithm,
    local_ranks,
    select,
)
from cloudcoll.libraries.mpich import FORCED
from cloudcoll.libraries.nccl import ALGORITHMS as NCCL
from cloudcoll.libraries.open_mpi_rules import RULES
from cloudcoll.work.sent import choose

COLLECTIVES = {
    "openmpi": tuple(RULES),
    "mpich": tuple(FORCED),
    "nccl": tuple(NCCL),
    "gloo": tuple(GLOO),
    "lightgbm": tuple(LIGHTGBM),
    "xgboost": tuple(XGBOOST),
}


@given(
    library=st.sampled_from(sorted(LIBRARIES)),
    data=st.data(),
    ranks=st.integers(2, 70),
    size=st.integers(1, 1 << 25),
    local=st.integers(0, 4),
)
def test_every_answer_is_a_schedule(
    library: str, data: st.DataObject, ranks: int, size: int, local: int
) -> None:
    """Tests that what is chosen can be built, whatever is asked."""
    collective = data.draw(st.sampled_from(COLLECTIVES[library]))
    chosen = select(library, collective, ranks, size, local=local)
    assert chosen.rule.startswith(LIBRARIES[library].title)
    assert chosen.algorithm in SCHEDULES[collective]
    schedule = build_schedule(
        collective, chosen.algorithm, ranks, size, **chosen.parameters
    )
    assert schedule.steps


@pytest.mark.parametrize(("library", "waits"), [("openmpi", True), ("mpich", False)])
def test_whose_ranks_take_turns(library: str, waits: bool) -> None:
    """Tests an algorithm of two libraries: it runs as that of the library asked for."""
    chosen = choose("reduce_scatter", "recursive_halving", library, (1,) * 16, 1 << 24)
    for name in (library, f"{library}@4.1"):
        one = choose("reduce_scatter", "recursive_halving", name, (1,) * 16, 1 << 24)
        assert one.library == chosen.library == library
    schedule = build_schedule(
        "reduce_scatter",
        chosen.algorithm,
        16,
        1 << 24,
        chosen.library,
        **chosen.parameters,
    )
    assert (schedule.turns < 1 << 24) == waits
    asked = OrderQuestion("q", schedule, tuple(map(str, range(16))), (1,) * 16)
    told = json.loads(json.dumps(asked.to_dict()))
    again = OrderQuestion.from_dict(told).sent
    assert isinstance(again, Schedule)
    assert again.turns == schedule.turns


def test_every_library_is_covered() -> None:
    """Tests that no library is left out of the test above."""
    assert COLLECTIVES.keys() == LIBRARIES.keys()


@pytest.mark.parametrize(
    ("library", "assumption"),
    [
        ("openmpi@5.0.11", ""),
        ("OpenMPI@v4.1.4", ""),
        ("openmpi@5", ""),
        ("openmpi", "version 5.0 assumed"),
        ("openmpi@6.1.0", "rules of 6.1.0 are not known: those of 5.0 are taken"),
        ("ompi@3.1", "rules of 3.1 are not known: those of 4.1 are taken"),
        ("mpich@3.4.3", "rules of 3.4.3 are not known: those of 4.0 are taken"),
        ("mpich@4.2.1", ""),
        ("torch@2.13.0+cpu", ""),
    ],
)
def test_versions(library: str, assumption: str) -> None:
    """Tests that a version without rules of its own says whose it gets."""
    found = select(library, "allreduce", 8, 1 << 20).assumption
    assert found.endswith(assumption)
    assert bool(found) == bool(assumption)


@pytest.mark.parametrize(
    ("library", "collective", "ranks", "size", "message"),
    [
        ("ncccl", "allreduce", 8, 8, r"ncccl. \(did you mean nccl\? known: openmpi"),
        ("openmpi@", "allreduce", 8, 8, "'' is not a version such as 5.0.11"),
        ("openmpi@new", "allreduce", 8, 8, "'new' is not a version"),
        ("openmpi", "allreduce", 0, 8, "2 ranks or more, not 0"),
        ("openmpi", "allreduce", 1, 8, "2 ranks or more, not 1"),
        ("openmpi", "allreduce", 8, 0, "allreduce of 0 bytes"),
        (
            "openmpi",
            "scan",
            8,
            8,
            r"unknown collective 'scan' of Open MPI \(known: all",
        ),
        ("mpich", "scan", 8, 8, "unknown collective 'scan' of MPICH"),
        ("nccl", "barrier", 8, 0, "unknown collective 'barrier' of NCCL"),
        ("xgboost", "reduce", 8, 8, "unknown collective 'reduce' of XGBoost"),
    ],
)
def test_bad_questions(
    library: str, collective: str, ranks: int, size: int, message: str
) -> None:
    """Tests that an error is one line that names what exists."""
    with pytest.raises(UsageError, match=message) as caught:
        select(library, collective, ranks, size)
    assert "\n" not in str(caught.value)


def test_what_the_environment_forces() -> None:
    """Tests that each library gets its own variables, MCA parameters by name."""
    env = {"OMPI_MCA_coll": "^han", "NCCL_ALGO": "Tree", "PATH": "/bin"}
    assert forced_settings("openmpi@5.0.11", env) == {"coll": "^han"}
    assert forced_settings("nccl", env) == {"NCCL_ALGO": "Tree"}
    assert forced_settings("gloo", env) == {}


def test_ranks_of_a_host() -> None:
    """Tests that hosts with different numbers of ranks have none in common."""
    assert local_ranks((2, 2)) == 2
    assert local_ranks((2, 1)) == 0


def test_what_libraries_call_themselves() -> None:
    """Tests that an MPI is recognised with its version, and what others stand for."""
    assert announced("Open MPI v5.0.11, package: ...") == "openmpi@5.0.11"
    assert announced("MPICH Version:      4.3.0\n...") == "mpich@4.3.0"
    assert announced("Intel(R) MPI Library 2021.14") == OF_UNKNOWN_MPI


def test_defaults_are_of_libraries_that_are_known() -> None:
    """Tests that what stands in for a library, or an algorithm, exists."""
    assert {DEFAULT, OF_TRAINING, OF_UNKNOWN_MPI} <= LIBRARIES.keys()
    for key, library in LIBRARIES.items():
        for collective, algorithm in library.large.items():
            assert large_vector_algorithm(key, collective) == algorithm
            assert algorithm in SCHEDULES[collective]
