from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.bench.orders import NamedOrder
from cloudcoll.bench.plan import bench_command, plan_bench, split_keys
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
    words = bench_command(("mpirun", "-np", "4"), "ring")
    assert words[:3] == ("mpirun", "-np", "4")
    assert words[-1].endswith("allreduce.py")
    assert words[words.index("coll_tuned_allreduce_algorithm") + 1] == "4"


def test_an_unknown_algorithm_is_refused() -> None:
    """Tests that the known ones are named."""
    with pytest.raises(UsageError, match="rabenseifner"):
        bench_command(("mpirun",), "magic")


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
    orders = [NamedOrder("given", ("a", "b", "c")), NamedOrder("x", ("c", "a", "b"))]
    plan = plan_bench(request, orders, sizes=[4, 8], repeats=3)
    assert plan.placement == ("a", "a", "b", "c")
    assert plan.spec["orders"] == {"given": [0, 1, 2, 3], "x": [1, 2, 3, 0]}
    assert plan.rows == 12
