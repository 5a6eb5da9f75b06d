from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.bench.job import (
    BenchPace,
    NamedOrder,
    bench_command,
    plan_bench,
    split_keys,
    torch_command,
)
from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest
from cloudcoll.launch.openmpi import OpenMpi

RANKS = [name for name in "abcd" for _ in range(3)]


@given(st.permutations(RANKS), st.permutations(RANKS))
def test_split_keys_sort_the_ranks(placement: list[str], wanted: list[str]) -> None:
    """Tests that ranks sorted by key stand where wanted, a host's in order."""
    keys = split_keys(placement, wanted)
    by_key = sorted(range(len(keys)), key=lambda rank: keys[rank])
    assert [placement[rank] for rank in by_key] == wanted
    for host in "abcd":
        mine = [rank for rank in by_key if placement[rank] == host]
        assert mine == sorted(mine)


def test_the_command_forces_the_algorithm() -> None:
    """Tests that our program comes last and the user's words stay first."""
    words = bench_command(("mpirun", "-np", "4"), "allgather", "ring")
    assert words[:3] == ("mpirun", "-np", "4")
    assert words[-1].endswith("mpi_bench")
    assert words[words.index("coll_tuned_allgather_algorithm") + 1] == "4"


@pytest.mark.parametrize(
    ("env", "where"),
    [
        ({}, "10.0.0.1:29500"),
        ({"MASTER_ADDR": "vm-2", "MASTER_PORT": "7"}, "vm-2:7"),
    ],
)
def test_ranks_of_torch_are_told_where_to_meet(env: dict[str, str], where: str) -> None:
    """Tests that the user's own meeting point goes before ours."""
    words = torch_command(("mpirun",), "10.0.0.1", env)
    assert (words[0], words[-3:]) == ("mpirun", ("torch_bench", where, "gloo"))


def test_an_unknown_algorithm_is_refused() -> None:
    """Tests that the known ones are named."""
    with pytest.raises(UsageError, match="rabenseifner"):
        bench_command(("mpirun",), "allreduce", "magic")


def test_the_plan_places_uneven_hosts() -> None:
    """Tests keys and row count with two ranks on one host."""
    request = LaunchRequest(
        launcher=OpenMpi(),
        argv=("mpirun", "prog"),
        start=1,
        hosts=(Host("a"), Host("b"), Host("c")),
        source="hosts",
        counts=(2, 1, 1),
    )
    orders = [
        NamedOrder("given", ("a", "b", "c")),
        NamedOrder("x", ("c", "a", "b"), ("cloudcoll",)),
    ]
    pace = BenchPace(repeats=3, seconds=9.0, narrow=0.02, least=3)
    plan = plan_bench(request, orders, collective="bcast", sizes=[4, 8], pace=pace)
    assert plan.placement == ("a", "a", "b", "c")
    assert plan.spec["orders"] == {"given": [0, 1, 2, 3], "x": [1, 2, 3, 0]}
    assert plan.spec["reference"] == "x"
    assert plan.spec["op"] == "bcast"
    assert (plan.spec["repeats"], plan.spec["seconds"], plan.spec["narrow"]) == (
        *(3, 9.0, 0.02),
    )
    assert plan.rows == 12
