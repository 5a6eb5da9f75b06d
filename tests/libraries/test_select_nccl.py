"""NCCL: what ``NCCL_ALGO`` and the shape of the job leave of its algorithms."""

from __future__ import annotations

from typing import Any

import pytest

from cloudcoll.libraries import Selection, select


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
