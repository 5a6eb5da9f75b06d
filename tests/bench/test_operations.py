from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.bench.result import OPERATIONS, operation_name
from cloudcoll.collectives import SCHEDULES
from cloudcoll.errors import UsageError
from cloudcoll.libraries.open_mpi_rules import ALGORITHMS


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("allreduce", "allreduce"),
        ("all-to-all", "alltoall"),
        ("Reduce-Scatter", "reduce_scatter"),
        ("broadcast", "bcast"),
    ],
)
def test_names_as_people_type_them(typed: str, name: str) -> None:
    """Tests that hyphens, capitals and full words are understood."""
    assert operation_name(typed) == name


def test_an_unknown_collective_is_named() -> None:
    """Tests that what exists is listed."""
    with pytest.raises(UsageError, match=r"'scan'.*known: allgather"):
        operation_name("scan")


def test_every_operation_has_schedules_and_algorithms() -> None:
    """Tests that what is timed can also be solved for, and forced."""
    assert OPERATIONS.keys() <= SCHEDULES.keys()
    assert OPERATIONS.keys() <= ALGORITHMS.keys()


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("allreduce", 1.5),
        ("allgather", 0.75),
        ("reduce_scatter", 0.75),
        ("alltoall", 0.75),
        ("bcast", 1.0),
        ("reduce", 1.0),
    ],
)
def test_bus_bandwidth_follows_nccl_tests(name: str, factor: float) -> None:
    """Tests the factors of nccl-tests' PERFORMANCE.md for four ranks."""
    assert OPERATIONS[name].busbw(2.0, 4) == 2.0 * factor


def test_roots_and_reductions_follow_nccl_tests() -> None:
    """Tests its columns: root -1 where there is none, and what becomes a sum."""
    assert {name: (one.root, one.redop) for name, one in OPERATIONS.items()} == {
        "allgather": (-1, "none"),
        "allreduce": (-1, "sum"),
        "alltoall": (-1, "none"),
        "bcast": (0, "none"),
        "reduce": (0, "sum"),
        "reduce_scatter": (-1, "sum"),
    }


def test_a_size_that_fills_its_blocks_is_kept() -> None:
    """Tests sizes beside a multiple of three blocks of four bytes."""
    rounded = [OPERATIONS["allgather"].round_down(size, 3) for size in (11, 12, 23, 24)]
    assert rounded == [12, 12, 12, 24]
    assert OPERATIONS["bcast"].round_down(7, 3) == 4


@given(
    st.sampled_from(sorted(OPERATIONS)), st.integers(4, 1 << 30), st.integers(2, 2000)
)
def test_sizes_fill_whole_blocks(name: str, size: int, ranks: int) -> None:
    """Tests that every rank's block is as large, and at least one element."""
    rounded = OPERATIONS[name].round_down(size, ranks)
    assert rounded % (4 * ranks if OPERATIONS[name].blocks else 4) == 0
    assert 0 < rounded <= max(size, 4 * ranks)
