"""NCCL: what ``NCCL_ALGO`` and the shape of the job leave of its algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudcoll.errors import UsageError
from cloudcoll.libraries import Selection, forced_settings, parse_library, select
from cloudcoll.libraries.nccl import CHOICES, HEAD, read_choices


def chosen(
    collective: str, version: str = "2.30.7", local: int = 1, **told: str
) -> Selection:
    """Return what eight ranks take."""
    settings = {f"NCCL_{name}": value for name, value in told.items()}
    library = f"nccl@{version}"
    return select(library, collective, 8, 1 << 20, local=local, settings=settings)


@pytest.mark.parametrize(
    ("collective", "value", "algorithm", "assumed"),
    [
        ("allreduce", "", "nccl_ring", True),
        ("allreduce", "Ring", "nccl_ring", False),
        ("allreduce", "tree", "nccl_tree", False),
        ("allreduce", "NVLSTree", "nccl_tree", False),
        ("allreduce", "tree,nvlstree", "nccl_tree", False),
        ("allreduce", "ring,tree", "nccl_ring", True),
        ("allreduce", "^tree", "nccl_ring", True),
        ("allreduce", "^tree,nvlstree", "nccl_ring", False),
        ("allreduce", "^ring", "nccl_tree", False),
        ("allreduce", "NVLS", "nccl_ring", True),
        ("allreduce", "ring;allreduce:tree", "nccl_tree", False),
        ("allgather", "ring;allreduce:tree", "nccl_ring", False),
        ("allgather", "allreduce:tree;allgather:pat", "nccl_pat", False),
        ("allgather", "", "nccl_ring", True),
        ("reduce_scatter", "PAT", "nccl_pat", False),
        ("bcast", "", "nccl_ring", False),
        ("bcast", "ring;broadcast:ring", "nccl_ring", False),
        ("alltoall", "", "nccl_p2p", False),
    ],
)
def test_the_variable_decides(
    collective: str, value: str, algorithm: str, assumed: bool
) -> None:
    """Tests that what it leaves is taken, and that else a ring is assumed."""
    selection = chosen(collective, ALGO=value, PROTO="LL128")
    assert selection.algorithm == algorithm
    assert ("a ring is assumed" in selection.assumption) == assumed


@pytest.mark.parametrize(
    ("collective", "told", "said"),
    [
        ("bcast", {"ALGO": "tree"}, "NCCL refuses it (no"),
        ("allreduce", {"ALGO": "pat"}, "NCCL refuses it (no"),
        ("allreduce", {"ALGO": "collnetchain"}, "collnetchain between nodes needs"),
        ("allgather", {"ALGO": "nvls"}, "nvls between nodes needs CollNet"),
        ("allreduce", {"ALGO": "nvls", "COLLNET_ENABLE": "1"}, "added up in switches"),
        ("allreduce", {"ALGO": "mesh"}, "'mesh' in NCCL_ALGO is none of NCCL's"),
        ("allgather", {"ALGO": "pat", "PAT_ENABLE": "0"}, "PAT is for one rank"),
    ],
)
def test_what_can_not_be_is_said(
    collective: str, told: dict[str, Any], said: str
) -> None:
    """Tests that a ring is assumed, with the reason."""
    selection = chosen(collective, **told)
    assert selection.algorithm == "nccl_ring"
    assert said in selection.assumption
    assert selection.assumption.endswith("a ring is assumed")


def test_pat_is_for_one_rank_on_a_node_since_2_23() -> None:
    """Tests its three conditions, and what overrules one of them."""
    assert chosen("allgather", local=1, ALGO="pat").algorithm == "nccl_pat"
    two = chosen("allgather", local=2, ALGO="pat")
    assert two.algorithm == "nccl_ring"
    assert "one rank on each node" in two.assumption
    forced = chosen("allgather", local=2, ALGO="pat", PAT_ENABLE="1")
    assert forced.algorithm == "nccl_pat"
    old = chosen("allgather", version="2.22.3", ALGO="pat")
    assert old.algorithm == "nccl_ring"
    assert "PAT came with 2.23" in old.assumption
    # So with several ranks on a node nothing but the ring is left.
    assert not chosen("allgather", local=2).assumption


def test_ranks_of_a_node_reach_the_schedules_over_nodes() -> None:
    """Tests that trees are over nodes, also NVLSTree's."""
    for value in ("Tree", "NVLSTree"):
        assert chosen("allreduce", local=4, ALGO=value).parameters == {"local": 4}
    assert chosen("alltoall", local=4).parameters == {"local": 4}


LOG = f"{HEAD}\n8 8 allreduce 1048576 ring\n8 8 allreduce 1500000 tree\n"


def seen(log: Path, size: int = 1 << 20, collective: str = "allreduce") -> Selection:
    """Return what eight ranks take by a log."""
    settings = forced_settings("nccl", {CHOICES: str(log), "OTHER": "1"})
    assert settings == {CHOICES: str(log)}
    return select("nccl@2.27", collective, 8, size, settings=settings)


def test_what_was_logged_is_not_assumed(tmp_path: Path) -> None:
    """Tests that the last choice of such a call is taken, of no other call."""
    log = tmp_path / "choices"
    log.write_text(LOG + "8 8 allgather 4096 nvls\n4 4 allreduce 2097152 tree\n")
    found = seen(log)
    assert (found.algorithm, found.assumption) == ("nccl_tree", "")
    assert found.rule.endswith(f"seen in {log}")
    assert seen(log, (1 << 21) - 4).algorithm == "nccl_tree"
    for other in (
        seen(log, 1 << 21),
        seen(log, 4, "bcast"),
        seen(log, 4096, "allgather"),
    ):
        assert other.algorithm == "nccl_ring"
        assert "seen" not in other.rule


def test_a_log_that_is_still_to_be_written(tmp_path: Path) -> None:
    """Tests that the variable of a first job changes nothing."""
    found = seen(tmp_path / "none")
    assert "a ring is assumed" in found.assumption


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no log of NCCL's choices"),
        ("{}", "is no log of NCCL's choices"),
        (LOG + "8 8 allreduce", r":4: '8 8 allreduce' is no choice of NCCL's"),
        (LOG + "8 8 alltoall 4 ring", ":4: '8 8 alltoall 4 ring' is no choice"),
        (LOG + "8 -8 allreduce 4 ring", ":4: '8 -8 allreduce 4 ring' is no choice"),
        (LOG + f"8 8 allreduce {'9' * 19} ring", "is no choice of NCCL's"),
        (LOG + "\n" * (1 << 20), "more than 1 MiB"),
    ],
)
def test_what_is_no_log(tmp_path: Path, text: str, message: str) -> None:
    """Tests that such a file is refused in one line."""
    log = tmp_path / "choices"
    log.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        read_choices(log)
    assert "\n" not in str(caught.value)


def test_rccl_is_known_by_its_own_name() -> None:
    """Tests that its versions are those of the NCCL whose code it has."""
    assert parse_library("rccl@2.22.3") == ("nccl", (2, 22, 3))
