"""Open MPI's rules: points on both sides of thresholds, read in the source."""

from __future__ import annotations

import pytest

from cloudcoll.errors import UsageError
from cloudcoll.libraries import select

K, M = 1 << 10, 1 << 20

POINTS = [
    # allreduce: bytes of the vector
    ("allreduce", 3, 4 * K - 1, "recursive_doubling"),
    ("allreduce", 3, 4 * K, "ring"),
    ("allreduce", 3, 64 * K - 1, "ring"),
    ("allreduce", 3, 64 * K, "segmented_ring"),
    ("allreduce", 3, 256 * K, "rabenseifner"),
    ("allreduce", 4, 8 * K - 1, "recursive_doubling"),
    ("allreduce", 4, 8 * K, "rabenseifner"),
    ("allreduce", 15, 8 * K - 1, "recursive_doubling"),
    ("allreduce", 16, 8 * K - 1, "rabenseifner"),
    ("allreduce", 31, 4 * K - 1, "recursive_doubling"),
    ("allreduce", 32, 4 * K - 1, "rabenseifner"),
    ("allreduce", 64, 256 * K - 1, "recursive_doubling"),
    ("allreduce", 64, 256 * K, "rabenseifner"),
    ("allreduce", 128, 128 * K - 1, "nonoverlapping"),
    ("allreduce", 128, 128 * K, "recursive_doubling"),
    ("allreduce", 4096, 32 * K, "rabenseifner"),
    # allgather: bytes of a block
    ("allgather", 2, 2 * M, "two_proc"),
    ("allgather", 31, 31 * M, "recursive_doubling"),
    ("allgather", 32, 32 * (K - 1), "recursive_doubling"),
    ("allgather", 32, 32 * K, "neighbor"),
    ("allgather", 63, 63 * 64 * K, "ring"),
    ("allgather", 128, 128 * 512 * K, "neighbor"),
    ("allgather", 128, 128 * M, "ring"),
    # alltoall: bytes of a block
    ("alltoall", 7, 7 * (8 * K - 1), "linear_sync"),
    ("alltoall", 7, 7 * 8 * K, "linear"),
    ("alltoall", 8, 8 * 8 * K, "linear_sync"),
    ("alltoall", 16, 16 * 511, "modified_bruck"),
    ("alltoall", 16, 16 * 512, "linear_sync"),
    ("alltoall", 64, 64 * 256 * K, "pairwise"),
    # the others: bytes of the vector
    ("bcast", 4, M - 1, "linear"),
    ("bcast", 4, M, "chain"),
    ("bcast", 16, M - 1, "binomial"),
    ("bcast", 16, M, "scatter_allgather"),
    ("bcast", 64, M, "knomial"),
    ("reduce", 15, 8 * K - 1, "binary"),
    ("reduce", 15, 8 * K, "binomial"),
    ("reduce", 16, 4 * K, "binomial"),
    ("reduce_scatter", 31, 256 * K - 1, "recursive_halving"),
    ("reduce_scatter", 31, 256 * K, "ring"),
    ("reduce_scatter", 63, 512 * K - 1, "butterfly"),
    ("barrier", 3, 0, "recursive_doubling"),
    ("barrier", 4, 0, "linear"),
    ("barrier", 8, 0, "recursive_doubling"),
    ("barrier", 64, 0, "bruck"),
    ("barrier", 256, 0, "tree"),
    # too few elements of four bytes
    ("allreduce", 2, 7, "recursive_doubling"),
    ("allreduce", 16, 63, "recursive_doubling"),
    ("reduce", 2, 7, "linear"),
]


@pytest.mark.parametrize(("collective", "ranks", "size", "algorithm"), POINTS)
def test_fixed_rules(collective: str, ranks: int, size: int, algorithm: str) -> None:
    """Tests ``coll_tuned_decision_fixed.c`` next to its thresholds."""
    for version in ("4.1.4", "5.0.11"):
        chosen = select(f"openmpi@{version}", collective, ranks, size)
        assert chosen.algorithm == algorithm
        assert "coll/tuned" in chosen.rule
        assert not chosen.assumption


def test_parameters_of_the_fixed_rules() -> None:
    """Tests that a chain is one, and that parts are chosen by their own rules."""
    assert select("openmpi", "bcast", 4, M).parameters == {"fanout": 1}
    parts = select("openmpi", "allreduce", 128, 20 * K).parameters
    assert parts == {"reduce": 5, "bcast": 1}


def forced(collective: str, **settings: str) -> str:
    dynamic = {"coll_tuned_use_dynamic_rules": "true"}
    asked = dynamic | {f"coll_tuned_{key}": value for key, value in settings.items()}
    chosen = select("openmpi@5.0.11", collective, 8, M, settings=asked)
    words = [f"{key}={value}" for key, value in chosen.parameters.items()]
    return " ".join([chosen.algorithm, *words])


def test_forced_algorithms() -> None:
    """Tests numbers, names, segments and shapes, which count with dynamic rules."""
    ring = {"coll_tuned_allreduce_algorithm": "4"}
    ignored = select("openmpi@5.0.11", "allreduce", 8, M, settings=ring)
    assert ignored.algorithm == "rabenseifner"
    assert forced("allreduce", allreduce_algorithm="4") == "ring"
    assert forced("allreduce", allreduce_algorithm="ring") == "ring"
    assert forced("allreduce", allreduce_algorithm="0") == "rabenseifner"
    segments = {"bcast_algorithm_segmentsize": "1000", "bcast_algorithm": "2"}
    assert forced("bcast", **segments) == "chain segment=1000 fanout=4"
    radix = {"bcast_algorithm": "7", "bcast_algorithm_knomial_radix": "3"}
    assert forced("bcast", **radix) == "knomial segment=0 radix=3"


def test_rules_of_a_file_are_not_read() -> None:
    """Tests that a file of dynamic rules is named."""
    settings = {
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_dynamic_rules_filename": "/etc/rules",
    }
    chosen = select("openmpi@5.0.11", "allreduce", 8, M, settings=settings)
    assert chosen.assumption == (
        "cannot read the rules '/etc/rules': No such file or directory: as if "
        "coll_tuned_dynamic_rules_filename were not set"
    )


@pytest.mark.parametrize(
    ("version", "ranks", "local", "settings", "algorithm"),
    [
        ("5.0.11", 12, 2, {}, "han"),
        ("5.0.11", 12, 1, {}, "rabenseifner"),
        ("5.0.11", 12, 12, {}, "rabenseifner"),
        ("5.0.11", 12, 0, {}, "rabenseifner"),
        ("5.0.11", 13, 2, {}, "rabenseifner"),
        ("4.1.4", 12, 2, {}, "rabenseifner"),
        ("4.1.4", 12, 2, {"coll_han_priority": "50"}, "han"),
        ("5.0.11", 12, 2, {"coll_han_priority": "10"}, "rabenseifner"),
        ("5.0.11", 12, 2, {"coll": "^han,adapt"}, "rabenseifner"),
        ("5.0.11", 12, 2, {"coll": "tuned,basic,libnbc"}, "rabenseifner"),
        ("5.0.11", 12, 2, {"coll": "tuned,han"}, "han"),
    ],
)
def test_han(
    version: str, ranks: int, local: int, settings: dict[str, str], algorithm: str
) -> None:
    """Tests that HAN takes hosts of as many ranks each, several of them, since 5.0."""
    chosen = select(
        f"openmpi@{version}", "allreduce", ranks, M, local=local, settings=settings
    )
    assert chosen.algorithm == algorithm
    assert chosen.parameters == ({"local": local} if algorithm == "han" else {})


@pytest.mark.parametrize(
    ("version", "collective", "ranks", "size", "between"),
    [
        ("5.0.11", "allgather", 12, 12 << 10, {"allgather": 3}),
        ("5.0.11", "allgather", 4, 12 << 10, {"allgather": 6}),
        ("4.1.4", "allgather", 12, 12 << 10, {"allgather": 1}),
        ("5.0.11", "barrier", 12, 0, {"barrier": 1}),
        ("5.0.11", "bcast", 12, M, {"bcast": 1}),
        ("5.0.11", "bcast", 12, 4 << 10, {"bcast": 6}),
        # A chain, of which tuned says nothing more, is a pipeline.
        ("5.0.11", "bcast", 6, 129 << 10, {"bcast": 5}),
        ("5.0.11", "reduce", 12, M, {}),
    ],
)
def test_between_hosts_han_takes_what_tuned_does(
    version: str, collective: str, ranks: int, size: int, between: dict[str, int]
) -> None:
    """Tests the numbers of tuned's rules for half as many ranks."""
    library = f"openmpi@{version}"
    settings = {"coll_han_priority": "40"}
    chosen = select(library, collective, ranks, size, local=2, settings=settings)
    assert chosen.algorithm == "han"
    assert chosen.parameters == {"local": 2, **between}


def test_what_is_not_known_is_said() -> None:
    """Tests settings of HAN's own, and a job without tuned."""
    told = {"coll_han_priority": "40", "coll_han_bcast_segsize": "1024"}
    chosen = select("openmpi@5.0.11", "bcast", 12, M, local=2, settings=told)
    assert chosen.assumption == (
        "its defaults: what coll_han_bcast_segsize changes is not known"
    )
    assert not select("openmpi@5.0.11", "alltoall", 12, M, local=2).assumption
    with pytest.raises(UsageError, match="coll=basic leaves out tuned"):
        select("openmpi", "allreduce", 8, M, settings={"coll": "basic"})
