from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from needs import TORCH

from cloudcoll.errors import UsageError
from cloudcoll.measured import synth
from cloudcoll.rankmap import RankMap
from cloudcoll.torch import _parallel, _read_hosts, _read_place, _read_ranks

RANKS = Path(__file__).with_name("torch_ranks.py")
GIVEN = [0, 1, 2, 3]
PERMUTED = [2, 0, 3, 1]
"""By the map, and of the meshes that are given their order."""
RACKS = {frozenset({1, 3}), frozenset({0, 2})}
"""By the snapshot: the order given scatters neighbours."""
KEPT = ": ranks are in the order given\n"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what each of four ranks saw in each check."""
    if not TORCH.here:
        TORCH.skip()
    folder = tmp_path_factory.mktemp("ranks")
    RankMap(("vm-3", "vm-1", "vm-4", "vm-2"), (1,) * 4).save(folder / "map.json")
    fabric = synth.racks((2, 2), uplink=12.5e6, seed=5)
    stored = synth.observe(fabric).with_fabric(fabric).to_bytes()
    (folder / "racks.snap").write_bytes(stored)
    (folder / "damaged.snap").write_bytes(stored[:-9])
    quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, str(RANKS), str(folder)],
        env={**os.environ, "PYTHONPATH": str(RANKS.parents[1]), **quiet},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)]


def alike(ranks: list[dict[str, Any]], check: str) -> Any:
    """Return what all ranks found, the same, with nothing to say."""
    rows = [row[check] for row in ranks]
    assert all(row == {"found": rows[0]["found"], "lines": ""} for row in rows)
    return rows[0]["found"]


def kept(ranks: list[dict[str, Any]], check: str) -> tuple[Any, str]:
    """Return what all ranks found, and why it is the order given: rank 0 says it."""
    rows = [row[check] for row in ranks]
    assert all(row["found"] == rows[0]["found"] for row in rows)
    first, *others = (row["lines"] for row in rows)
    assert others == [""] * 3
    assert first.endswith(KEPT)
    assert first.count("\n") == 1
    return rows[0]["found"], first.removeprefix("cloudcoll: ").removesuffix(KEPT)


def refused(ranks: list[dict[str, Any]], check: str, kind: str = "UsageError") -> str:
    """Return why every rank refused."""
    rows = [row[check] for row in ranks]
    assert all(row["kind"] == kind for row in rows)
    return str(rows[0]["error"])


def test_ranks_follow_the_map(ranks: list[dict[str, Any]]) -> None:
    """Tests that all ranks get the order of the map that rank 0 alone can read."""
    assert alike(ranks, "by_map") == [PERMUTED, [2, 0, 1], [3, 1]]
    assert alike(ranks, "by_named_map") == PERMUTED


def test_ranks_in_the_order_of_a_snapshot(ranks: list[dict[str, Any]]) -> None:
    """Tests that a ring crosses between racks as rarely as it can."""
    rows = [row["by_snapshot"] for row in ranks]
    four, two, one = rows[0]["found"]
    assert sorted(four) == GIVEN
    assert {frozenset(four[:2]), frozenset(four[2:])} == RACKS or (
        {frozenset(four[1:3]), frozenset((four[0], four[3]))} == RACKS
    )
    assert two == one == GIVEN
    assert all(row["found"] == rows[0]["found"] for row in rows)
    assert KEPT not in rows[0]["lines"]


def test_ranks_of_one_host(ranks: list[dict[str, Any]]) -> None:
    """Tests that they stay together by a map, and what no solver sees stays."""
    found, why = kept(ranks, "several_on_a_host")
    assert found == [[0, 2, 1, 3], GIVEN]
    assert why == "ranks are dealt over the hosts in turn"


@pytest.mark.parametrize(
    ("check", "found", "why"),
    [
        (
            "without_source",
            [3, 0],
            "no rank map: name it with source= or CLOUDCOLL_MAP",
        ),
        ("damaged", GIVEN, "truncated or damaged"),
        ("late", GIVEN, "not every rank said in time on which host it is"),
    ],
)
def test_order_kept(
    ranks: list[dict[str, Any]], check: str, found: list[int], why: str
) -> None:
    """Tests that all ranks keep the order given where none can be found."""
    seen, reason = kept(ranks, check)
    assert seen == found
    assert why in reason


def test_a_rank_on_another_host(ranks: list[dict[str, Any]]) -> None:
    """Tests that a group with a rank on no known host stays as it is, others don't."""
    found, why = kept(ranks, "stranger")
    assert found == [[3, 2, 1, 0], [3, 1]]
    assert why == "1 of 4 ranks are on none of the hosts"


def test_ranks_that_ask_for_others(ranks: list[dict[str, Any]]) -> None:
    """Tests that a rank which asks for another group than rank 0 raises."""
    rows = [row["other_ranks"] for row in ranks]
    assert [row.get("found") for row in rows] == [PERMUTED, PERMUTED, None, None]
    assert rows[3]["error"] == "rank 0 asked for the order of other ranks than rank 3"
    assert refused(ranks, "no_ranks") == "[0, 4] are not different ranks of 4"


def test_a_silent_first_rank(ranks: list[dict[str, Any]]) -> None:
    """Tests that ranks which hear of no order raise: another one would hang a job."""
    for number, row in enumerate(ranks[1:], 1):
        assert row["silent_first"]["kind"] == "LaunchError"
        reason = f"rank {number} heard of no order: wait timeout"
        assert row["silent_first"]["error"].startswith(reason)


def test_before_there_are_ranks(ranks: list[dict[str, Any]]) -> None:
    """Tests what who forgot the process group reads."""
    too_early = {row["too_early"]["error"] for row in ranks}
    assert too_early == {"call torch.distributed.init_process_group first"}


def test_meshes_in_an_order(ranks: list[dict[str, Any]]) -> None:
    """Tests that a rank has the same place in its groups as in the mesh."""
    for rank, row in enumerate(ranks):
        square, line = row["meshes"]["found"]
        assert square["mesh"] == [[2, 0], [3, 1]]
        assert square["coordinate"] == [*divmod(PERMUTED.index(rank), 2)]
        assert square["groups"] == [
            [2, 3] if rank in {2, 3} else [0, 1],
            [2, 0] if rank in {2, 0} else [3, 1],
        ]
        assert line["mesh"] == PERMUTED
        assert line["groups"] == [PERMUTED]
        for mesh in (square, line):
            assert mesh["local"] == mesh["coordinate"]


def test_a_mesh_by_a_snapshot(ranks: list[dict[str, Any]]) -> None:
    """Tests that tensor parallel groups, which send most, are within racks."""
    found = [row["mesh_by_snapshot"]["found"] for row in ranks]
    assert {frozenset(row) for row in found[0]["mesh"]} == RACKS
    assert all(mesh["mesh"] == found[0]["mesh"] for mesh in found)
    assert all(frozenset(mesh["groups"][1]) in RACKS for mesh in found)


def test_a_mesh_of_unknown_dimensions(ranks: list[dict[str, Any]]) -> None:
    """Tests that a name which says nothing of what is sent leaves torch's mesh."""
    lines = {row["mesh_of_unknown"]["lines"] for row in ranks[1:]}
    assert lines == {""}
    assert (
        "nobody knows what dimension 'x' sends" in ranks[0]["mesh_of_unknown"]["lines"]
    )
    assert ranks[3]["mesh_of_unknown"]["found"]["mesh"] == [[0, 1], [2, 3]]


def test_tensors_come_together_again(ranks: list[dict[str, Any]]) -> None:
    """Tests that shards are where DTensor expects them, and pass between splits."""
    for row in ranks:
        assert row["shards"]["found"] == [True] * 21


def test_fsdp_learns_the_same(ranks: list[dict[str, Any]]) -> None:
    """Tests that a model split over a mesh in an order learns what one rank does."""
    for row in ranks:
        assert max(row["fsdp"]["found"]) < 1e-6


@pytest.mark.parametrize("check", ["flattened", "unflattened"])
def test_torch_can_not_sort_a_mesh(ranks: list[dict[str, Any]], check: str) -> None:
    """Tests that a dimension whose ranks torch would sort is refused, on all ranks."""
    assert refused(ranks, check).startswith("torch sorts the ranks of a dimension")


def test_what_sorting_leaves_alone(ranks: list[dict[str, Any]]) -> None:
    """Tests that other dimensions may be flattened."""
    pairs, plain = ranks[3]["flattened_alike"]["found"]
    assert (pairs["mesh"], pairs["local"]) == ([2, 3], [1])
    assert (plain["mesh"], plain["local"]) == (GIVEN, [3])


def test_a_torch_that_sorts(ranks: list[dict[str, Any]]) -> None:
    """Tests that it gets its plain mesh, whose places are right, and one line."""
    found = ranks[2]["sorting_torch"]["found"]
    assert found["mesh"] == [[0, 1], [2, 3]]
    assert found["local"] == found["coordinate"] == [1, 0]
    first, *others = (row["sorting_torch"]["lines"] for row in ranks)
    assert first.endswith(" sorts groups" + KEPT)
    assert others == [""] * 3


@pytest.mark.parametrize(
    ("check", "why"),
    [
        (
            "wrong_shape",
            "the mesh (2, 3) needs as many names as dimensions, not (dp, tp)",
        ),
        ("wrong_names", "(dp, dp), and as many places as there are ranks: 4"),
        ("wrong_ranks", "[0, 1, 2, 2] are not all ranks of 4, each once"),
    ],
)
def test_meshes_that_make_no_sense(
    ranks: list[dict[str, Any]], check: str, why: str
) -> None:
    """Tests that all ranks refuse them before any of them waits."""
    assert why in refused(ranks, check)


@pytest.mark.parametrize(
    ("shape", "names", "words"),
    [
        ((8, 2), ("dp", "tp"), "tp=2,dp=8,order=tp-dp"),
        ((2, 4, 2), ("dp_replicate", "dp_shard", "tp"), "tp=2,dp=8,order=tp-dp"),
        ((2, 3, 1, 4), ("pp", "fsdp", "cp", "tp"), "tp=4,dp=3,pp=2,order=tp-dp-pp"),
        ((2, 1, 3), ("replicate", "tp", "shard"), "dp=6,order=dp"),
    ],
)
def test_how_a_mesh_splits_a_job(
    shape: tuple[int, ...], names: tuple[str, ...], words: str
) -> None:
    """Tests that the last dimension numbers fastest, and parts of one are joined."""
    assert _parallel(shape, names) == words


def test_a_split_that_can_not_be_said() -> None:
    """Tests that two parts of data parallelism with others between are refused."""
    with pytest.raises(UsageError, match="another between two of dp"):
        _parallel((2, 2, 2), ("replicate", "tp", "shard"))


@pytest.mark.parametrize(
    "said", [b"", b"{", b"[1]", b'["vm-1", {}, 2]', b"[[1], {}]", b"[[], []]", b"7"]
)
def test_what_nobody_could_have_written(said: bytes) -> None:
    """Tests that other words in the store are no hosts, no place and no ranks."""
    assert _read_hosts(said) == ([], {})
    assert _read_place(said, 7) is None
    assert _read_ranks(said) in ([], [1])
