from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import LaunchError
from cloudcoll.launch.environment import MARK, placed_environment
from cloudcoll.launch.own_host import OwnHost
from cloudcoll.rankmap import RankMap

EVEN = RankMap(("a", "c", "b"), (2, 2, 2), snapshot="0123456789abcdef")


def placed(
    env: dict[str, str], name: str = "c", rank_map: RankMap = EVEN
) -> dict[str, str]:
    return placed_environment(OwnHost(rank_map, Path("map"), name), env)


def test_every_kind_of_number() -> None:
    """Tests that all numbers of a host agree and local ones are left alone."""
    env = {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "WORLD_SIZE": "6",
        "NODE_RANK": "2",
        "GROUP_RANK": "2",
        "PET_NODE_RANK": "2",
        "NNODES": "3",
        "MASTER_ADDR": "a.example",
        "MASTER_PORT": "29500",
        "PET_NNODES": "2:3",
    }
    assert placed(env) == {
        "RANK": "3",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
        "PET_NODE_RANK": "1",
        "MASTER_ADDR": "a.example",
        MARK: "0123456789ab",
    }


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_ranks_are_those_of_the_map(
    slots: list[int], counted: bool, random: object
) -> None:
    """Tests that all processes of a job together get the map's placement."""
    names = [f"vm{i}" for i in range(len(slots))]
    random.shuffle(names)  # type: ignore[attr-defined]
    rank_map = RankMap(tuple(names), tuple(slots))
    got = {}
    for name, count in zip(names, slots, strict=True):
        for local in range(count):
            env = {
                "RANK": "0",
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": f"{count}",
            }
            env |= {"WORLD_SIZE": str(sum(slots))} if counted else {}
            got[int(placed(env, name, rank_map)["RANK"])] = (name, local)
    assert [got[rank] for rank in sorted(got)] == list(rank_map.placement())
    assert sorted(got) == list(range(sum(slots)))


@pytest.mark.parametrize("world", ["3", "6", "24"])
def test_rank_of_a_host(world: str) -> None:
    """Tests that without a local rank RANK is the number of the host."""
    env = {"RANK": "2", "WORLD_SIZE": world}
    assert placed(env)["RANK"] == "1"


def test_map_with_one_slot_for_each_host() -> None:
    """Tests that a map solved for hosts serves jobs with several ranks on each."""
    hosts = RankMap(("a", "c", "b"), (1, 1, 1))
    env = {"RANK": "0", "LOCAL_RANK": "7", "LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "24"}
    assert placed(env, "b", hosts)["RANK"] == "23"


def test_rewriting_again_changes_nothing() -> None:
    """Tests that numbers come from the map alone, so that twice is as once."""
    env = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "6", "NODE_RANK": "2"}
    once = {**env, **placed(env)}
    assert {**once, **placed(once)} == once


def test_store_of_torchruns_agent_stays() -> None:
    """Tests that MASTER_ADDR is kept where torchrun's agent holds the store."""
    env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "6", "MASTER_ADDR": "b"}
    with pytest.raises(LaunchError, match="moves rank 0 from b to a"):
        placed(env)
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert "MASTER_ADDR" not in placed(env | agent)


def test_xgboost_task() -> None:
    """Tests that the task XGBoost sorts by begins with the place, as sorted text."""
    names = tuple(f"vm{i}" for i in range(12))
    wide = RankMap(names, (1,) * 12)
    tasks = [placed({"DMLC_TASK_ID": "7"}, n, wide)["DMLC_TASK_ID"] for n in names]
    assert tasks[0] == "000000-7"
    assert tasks == sorted(tasks)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, "no rank is set here"),
        ({"NODE_RANK": "0", "PET_NNODES": "4"}, "of 3 hosts and PET_NNODES says 4"),
        ({"RANK": "0", "WORLD_SIZE": "7"}, "of 3 hosts and this job has 7 ranks"),
        (
            {
                "RANK": "0",
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "WORLD_SIZE": "6",
            },
            "has 6 ranks, 1 of them here",
        ),
        ({"RANK": "0", "LOCAL_RANK": "x"}, "LOCAL_RANK is 'x', not a number"),
        ({"RANK": "0", "WORLD_SIZE": "-6"}, "WORLD_SIZE is '-6', not a number"),
    ],
)
def test_refused(env: dict[str, str], words: str) -> None:
    """Tests that nothing is guessed for a job that is not the map's."""
    with pytest.raises(LaunchError, match=words):
        placed(env)
