"""NCCL, Gloo, LightGBM and XGBoost."""

from __future__ import annotations

import pytest

from cloudcoll.selection import select


@pytest.mark.parametrize(
    ("collective", "value", "algorithm", "assumed"),
    [
        ("allreduce", "", "nccl_ring", True),
        ("allreduce", "Ring", "nccl_ring", False),
        ("allreduce", "tree", "nccl_tree", False),
        ("allreduce", "ring,tree", "nccl_ring", True),
        ("allreduce", "^tree", "nccl_ring", False),
        ("allreduce", "^ring", "nccl_tree", False),
        ("allreduce", "NVLS", "nccl_ring", True),
        ("allreduce", "ring;allreduce:tree", "nccl_tree", False),
        ("allgather", "ring;allreduce:tree", "nccl_ring", False),
        ("allgather", "allreduce:tree;allgather:pat", "nccl_pat", False),
        ("reduce_scatter", "PAT", "nccl_pat", False),
        ("bcast", "tree", "nccl_ring", False),
        ("alltoall", "", "nccl_p2p", False),
    ],
)
def test_nccl(collective: str, value: str, algorithm: str, assumed: bool) -> None:
    """Tests that ``NCCL_ALGO`` decides, and that else a ring is said to be assumed."""
    settings = {"NCCL_ALGO": value, "NCCL_PROTO": "LL128"}
    chosen = select("nccl@2.30.7", collective, 8, 1 << 20, settings=settings)
    assert chosen.algorithm == algorithm
    assert ("ring is assumed" in chosen.assumption) == assumed


def test_ranks_of_a_node_reach_nccls_tree() -> None:
    """Tests that trees are over nodes."""
    settings = {"NCCL_ALGO": "Tree"}
    chosen = select("nccl", "allreduce", 32, 8, local=8, settings=settings)
    assert chosen.parameters == {"local": 8}


@pytest.mark.parametrize(
    ("library", "collective", "ranks", "size", "algorithm"),
    [
        ("gloo@2.13", "allreduce", 8, 1, "gloo_ring"),
        ("torch@2.13", "bcast", 8, 1, "gloo_binomial"),
        ("lightgbm@4.6.0", "reduce_scatter", 8, 1, "lightgbm"),
        ("xgboost@3.4", "allreduce", 8, 31, "xgboost_gather"),
        ("xgboost@3.4", "allreduce", 8, 32, "xgboost_ring"),
        ("xgboost@3.3", "bcast", 8, 32, "xgboost_relay"),
        ("xgboost@3.2.1", "bcast", 8, 32, "xgboost_binomial"),
    ],
)
def test_those_with_little_to_choose(
    library: str, collective: str, ranks: int, size: int, algorithm: str
) -> None:
    """Tests their algorithms, and XGBoost's two cases."""
    chosen = select(library, collective, ranks, size)
    assert chosen.algorithm == algorithm
    assert not chosen.assumption
