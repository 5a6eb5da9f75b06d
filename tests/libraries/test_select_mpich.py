"""MPICH's rules: points on both sides of thresholds, read in ``generic.json``."""

from __future__ import annotations

import pytest

from cloudcoll.errors import UsageError
from cloudcoll.libraries import select

K = 1 << 10

POINTS = [
    ("allreduce", 2, 8, "recursive_doubling"),
    ("allreduce", 2, 9, "mpich_reduce_scatter_allgather"),
    ("allreduce", 12, 31, "recursive_doubling"),
    ("allreduce", 12, 32, "mpich_reduce_scatter_allgather"),
    ("allgather", 16, 512 * K - 1, "mpich_recursive_doubling"),
    ("allgather", 16, 512 * K, "ring"),
    ("allgather", 12, 80 * K - 1, "bruck"),
    ("allgather", 12, 80 * K, "ring"),
    ("bcast", 7, 64 << 20, "mpich_binomial"),
    ("bcast", 8, 12 * K, "mpich_binomial"),
    ("bcast", 8, 12 * K + 1, "scatter_allgather"),
    ("bcast", 8, 512 * K, "scatter_allgather"),
    ("bcast", 8, 512 * K + 1, "scatter_allgather_ring"),
    ("bcast", 9, 12 * K + 1, "scatter_allgather_ring"),
    ("reduce", 8, 2 * K, "mpich_binomial"),
    ("reduce", 8, 2 * K + 1, "mpich_reduce_scatter_gather"),
    ("reduce", 1024, 4 * K - 1, "mpich_binomial"),
    ("reduce_scatter", 5, 512 * K - 1, "recursive_halving"),
    ("reduce_scatter", 5, 512 * K, "mpich_pairwise"),
    ("alltoall", 8, 8 * 256, "modified_bruck"),
    ("alltoall", 8, 8 * 257, "linear"),
    ("alltoall", 7, 7 * 256, "linear"),
    ("alltoall", 7, 7 * 32 * K, "linear"),
    ("alltoall", 7, 7 * (32 * K + 1), "mpich_pairwise"),
    ("barrier", 9, 0, "mpich_dissemination"),
]


@pytest.mark.parametrize(("collective", "ranks", "size", "algorithm"), POINTS)
def test_generic_rules(collective: str, ranks: int, size: int, algorithm: str) -> None:
    """Tests the rules that 4.0 and 5.0 share."""
    for version in ("4.0.2", "5.0.1"):
        chosen = select(f"mpich@{version}", collective, ranks, size)
        assert chosen.algorithm == algorithm
        assert not chosen.assumption


def forced(collective: str, ranks: int, size: int, **settings: str) -> str:
    asked = {f"MPIR_CVAR_{collective.upper()}_{k}": v for k, v in settings.items()}
    chosen = select("mpich@5.0.1", collective, ranks, size, settings=asked)
    words = [f"{key}={value}" for key, value in chosen.parameters.items()]
    return " ".join([chosen.algorithm, *words])


def test_forced_algorithms() -> None:
    """Tests values of the variables, and the radix and segment that go with them."""
    size = 1 << 20
    assert forced("allreduce", 8, size, INTRA_ALGORITHM="ring") == "ring"
    recexch = {"INTRA_ALGORITHM": "recexch", "RECEXCH_KVAL": "4"}
    assert forced("allreduce", 8, size, **recexch) == "mpich_recexch radix=4"
    tree = {"INTRA_ALGORITHM": "tree", "TREE_TYPE": "kary"}
    assert forced("allreduce", 8, size, **tree) == "mpich_tree_kary radix=2"
    piped = forced("bcast", 8, size, INTRA_ALGORITHM="pipelined_tree")
    assert piped == "mpich_tree_kary radix=2 segment=8192"
    with pytest.raises(UsageError, match=r"has no schedule here \(known: auto, rec"):
        forced("allreduce", 8, size, INTRA_ALGORITHM="ccl")
    with pytest.raises(UsageError, match="TREE_TYPE=topology_wave has no schedule"):
        forced("bcast", 8, size, INTRA_ALGORITHM="tree", TREE_TYPE="topology_wave")


def test_what_does_not_fit_is_chosen_anew() -> None:
    """Tests recursive doubling of no power of two, and fewer elements than halves."""
    doubling = {"INTRA_ALGORITHM": "recursive_doubling"}
    assert forced("allgather", 16, 1 << 20, **doubling) == "mpich_recursive_doubling"
    assert forced("allgather", 12, 1 << 20, **doubling) == "ring"
    assert forced("allgather", 12, 1 << 10, **doubling) == "bruck"
    halving = {"INTRA_ALGORITHM": "reduce_scatter_allgather"}
    assert forced("allreduce", 12, 31, **halving) == "recursive_doubling"


def test_two_levels() -> None:
    """Tests that the rule between hosts is that of their number."""
    chosen = select("mpich@5.0.1", "allreduce", 64, 63, local=4)
    assert chosen.algorithm == "mpich_smp_recursive_doubling"
    assert chosen.parameters == {"local": 4}
    chosen = select("mpich@5.0.1", "allreduce", 64, 64, local=4)
    assert chosen.algorithm == "mpich_smp_reduce_scatter_allgather"
    uneven = select("mpich@5.0.1", "allreduce", 64, 1 << 20, local=0)
    assert uneven.algorithm == "mpich_reduce_scatter_allgather"
    assert "different numbers of ranks" in uneven.assumption
    ring = {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring"}
    forced = select("mpich@5.0.1", "allreduce", 64, 1 << 20, local=4, settings=ring)
    assert (forced.algorithm, forced.parameters) == ("mpich_smp_ring", {"local": 4})
    flat = select("mpich@5.0.1", "allgather", 64, 1 << 20, local=4)
    assert (flat.algorithm, flat.parameters, flat.assumption) == ("ring", {}, "")


@pytest.mark.parametrize(
    ("ranks", "size", "algorithm"),
    [
        (6, 1 << 20, "mpich_smp_binomial"),
        (12, 12 * K - 1, "mpich_smp_binomial"),
        (12, 12 * K, "mpich_binomial"),
        (12, 12 * K + 1, "scatter_allgather_ring"),
        (16, 12 * K + 1, "mpich_smp_scatter_allgather"),
        (16, 512 * K - 1, "mpich_smp_scatter_allgather"),
        (16, 512 * K, "scatter_allgather"),
    ],
)
def test_large_broadcasts_know_no_hosts(ranks: int, size: int, algorithm: str) -> None:
    """Tests the thresholds above which a broadcast goes among all ranks."""
    assert select("mpich@5.0.2", "bcast", ranks, size, local=2).algorithm == algorithm


def test_a_file_of_rules_is_not_read() -> None:
    """Tests that the variable is named."""
    settings = {"MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": "x.json"}
    chosen = select("mpich@5.0.1", "allreduce", 8, 1 << 20, settings=settings)
    assert "what MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE says" in chosen.assumption
