"""Schedules of NCCL, Gloo, LightGBM, XGBoost, UCC and tori: bytes and partners.

That they deliver is proved with all others in test_delivery.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from delivery import assert_delivers
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.errors import UsageError
from cloudcoll.libraries.question import power_of_two

SIZE = 1 << 20
MIB = 1 << 20

# Bytes of all messages / bytes of the vector, for any N.
CLOSED_FORMS: dict[tuple[str, str], Callable[[int], float]] = {
    ("allreduce", "gloo_bcube"): lambda n: 2 * (n - 1),
    ("allreduce", "gloo_halving_doubling"): lambda n: 2 * (n - 1),
    ("allreduce", "gloo_ring"): lambda n: 2 * (n - 1),
    ("allreduce", "gloo_ring_whole"): lambda n: n * (n - 1),
    ("allreduce", "lightgbm"): lambda n: lightgbm_halving(n) + n - 1,
    ("allreduce", "nccl_tree"): lambda n: 2 * (n - 1),
    ("allreduce", "torus"): lambda n: 2 * (n - 1),
    ("allreduce", "xgboost_gather"): lambda n: n * n,
    ("allreduce", "xgboost_ring"): lambda n: 2 * n - 1,
    ("allgather", "lightgbm"): lambda n: n - 1,
    ("allgather", "nccl_pat"): lambda n: n - 1,
    ("allgather", "xgboost_ring"): lambda n: n,
    ("alltoall", "nccl_p2p"): lambda n: n - 1,
    ("reduce_scatter", "gloo_ring"): lambda n: 2 * (n - 1),
    ("reduce_scatter", "gloo_ring_parts"): lambda n: 2 * (n - 1),
    ("reduce_scatter", "lightgbm_halving"): lambda n: lightgbm_halving(n),
    ("reduce_scatter", "nccl_pat"): lambda n: n - 1,
    ("reduce_scatter", "ucc_ring"): lambda n: n - 1,
    ("bcast", "gloo_binomial"): lambda n: n - 1,
    ("bcast", "nccl_ring"): lambda n: n - 1,
    ("bcast", "xgboost_relay"): lambda n: n - 1,
    ("reduce", "gloo_ring"): lambda n: n - 1 + (n - 1) / n,
    ("reduce", "nccl_ring"): lambda n: n - 1,
}


def lightgbm_halving(ranks: int) -> float:
    """Return all bytes / S: the fold, halvings among p', and the blocks back."""
    half = power_of_two(ranks)
    return (ranks - half) * (1 + 1 / ranks) + half - 1


@pytest.mark.parametrize(("collective", "algorithm"), CLOSED_FORMS)
def test_bytes_match_the_closed_forms(collective: str, algorithm: str) -> None:
    """Tests the sum of all messages for N = 2 to 130."""
    expected = CLOSED_FORMS[collective, algorithm]
    for ranks in range(2, 131):
        total = build_schedule(collective, algorithm, ranks, SIZE).pair_bytes().sum()
        assert total / SIZE == pytest.approx(expected(ranks)), ranks


def partners(schedule: Schedule) -> list[set[tuple[int, int]]]:
    """Return (src, dst) of each step."""
    return [
        set(zip(step.src.tolist(), step.dst.tolist(), strict=True))
        for step in schedule.steps
    ]


@pytest.mark.parametrize(
    ("collective", "algorithm", "way"),
    [
        ("allreduce", "gloo_ring", -1),
        ("allreduce", "gloo_ring_chunked", 1),
        ("allreduce", "gloo_ring_whole", 1),
        ("allreduce", "nccl_ring", 1),
        ("allreduce", "xgboost_ring", 1),
        ("allgather", "gloo_ring", 1),
        ("allgather", "xgboost_ring", 1),
        ("reduce_scatter", "gloo_ring", -1),
        ("reduce_scatter", "gloo_ring_parts", -1),
        ("reduce_scatter", "nccl_ring", 1),
    ],
)
def test_rings_go_the_way_their_library_goes(
    collective: str, algorithm: str, way: int
) -> None:
    """Tests the one neighbour that a rank sends to."""
    for step in build_schedule(collective, algorithm, 7, SIZE).steps:
        assert ((step.src + way) % 7 == step.dst).all()


def test_a_ring_both_ways_carries_half_each_way() -> None:
    """Tests that UCC's ring loads each directed neighbour alike."""
    total = build_schedule("reduce_scatter", "ucc_ring", 5, SIZE).pair_bytes()
    rank = np.arange(5)
    for way in (1, -1):
        assert total[rank, (rank + way) % 5] == pytest.approx(SIZE * 4 / 5 / 2)


def test_nccl_alltoall_visits_distances_in_its_own_order() -> None:
    """Tests the sequence for 16 ranks that NCCL's source gives as its example."""
    steps = build_schedule("alltoall", "nccl_p2p", 16, SIZE).steps
    distances = [int(step.dst[0]) for step in steps]
    assert distances == [1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8]
    steps = build_schedule("alltoall", "nccl_p2p", 12, SIZE).steps
    assert [int(step.dst[0]) for step in steps] == [1, 3, 6, 10, 5, 4, 7, 2, 11, 9, 8]


def test_nccl_alltoall_starts_inside_the_node() -> None:
    """Tests that groups of ranks meet, all of one node before the next node's."""
    steps = build_schedule("alltoall", "nccl_p2p", 12, SIZE, local=4).steps
    assert [int(step.dst[0]) for step in steps] == [1, 2, 3, *range(4, 12)]
    assert [int(step.dst[5]) for step in steps[:3]] == [6, 7, 4]


def test_pat_sends_most_to_the_nearest() -> None:
    """Tests that of 8 ranks' blocks one goes by 4, two by 2 and four by 1."""
    gather = build_schedule("allgather", "nccl_pat", 8, SIZE).steps
    scatter = build_schedule("reduce_scatter", "nccl_pat", 8, SIZE).steps
    assert [(int(s.dst[0]), s.size[0] * 8 / SIZE) for s in gather] == [
        (4, 1),
        (6, 2),
        (7, 4),
    ]
    assert [(int(s.dst[0]), s.size[0] * 8 / SIZE) for s in scatter] == [
        (1, 4),
        (2, 2),
        (4, 1),
    ]


def test_a_double_tree_splits_the_vector() -> None:
    """Tests the partners and bytes of the trees over four nodes."""
    total = build_schedule("allreduce", "nccl_tree", 4, SIZE).pair_bytes()
    expected = np.zeros((4, 4))
    for child, parent in [(1, 2), (3, 2), (2, 0), (0, 1), (2, 1), (1, 3)]:
        expected[child, parent] += SIZE / 2
        expected[parent, child] += SIZE / 2
    assert (total == expected).all()


def test_a_double_tree_on_nodes_leaves_each_node_once() -> None:
    """Tests that the bytes between nodes don't grow with the ranks on them."""
    node = np.arange(24) // 4
    total = build_schedule("allreduce", "nccl_tree", 24, SIZE, local=4).pair_bytes()
    crosses = node[:, None] != node
    assert total[crosses].sum() == 2 * 5 * SIZE
    assert total.sum() == 2 * 23 * SIZE


def test_gloo_broadcast_doubles_from_the_root() -> None:
    """Tests who has the data after each step, of six ranks from root 4."""
    assert partners(build_schedule("bcast", "gloo_binomial", 6, 1, root=4)) == [
        {(4, 5)},
        {(4, 0), (5, 1)},
        {(4, 2), (5, 3)},
    ]


def test_gloo_bcube_groups_by_twos_and_what_is_left() -> None:
    """Tests the peers of rank 0 among 12 = 2 x 2 x 3, and 7, which is prime."""
    peers = [
        sorted(dst for src, dst in pairs if src == 0)
        for pairs in partners(build_schedule("allreduce", "gloo_bcube", 12, SIZE))
    ]
    assert peers == [[1], [2], [4, 8], [4, 8], [2], [1]]
    direct = partners(build_schedule("allreduce", "gloo_bcube", 7, SIZE))
    assert [len(pairs) for pairs in direct] == [42, 42]


def test_gloo_bcube_of_two_is_rabenseifner() -> None:
    """Tests that powers of two trade the same bytes in pairs as Rabenseifner."""
    for ranks in (2, 4, 32, 128):
        cube = build_schedule("allreduce", "gloo_bcube", ranks, SIZE)
        other = build_schedule("allreduce", "rabenseifner", ranks, SIZE)
        assert (cube.pair_bytes() == other.pair_bytes()).all()


def test_gloo_cuts_the_ranks_into_binary_blocks() -> None:
    """Tests who adds to whom of 13 = 8 + 4 + 1, in Gloo's bit-reversed order."""
    schedule = build_schedule("allreduce", "gloo_halving_doubling", 13, SIZE)
    up, larger = partners(schedule)[3:5]
    assert up == {(12, 8), (12, 9), (12, 10), (12, 11)}
    assert larger == {(8 + rank % 4, rank) for rank in range(8)}
    total = schedule.pair_bytes()
    assert total[12, 8] == total[8, 12] == SIZE / 4
    assert total[8, 0] == total[8, 4] == SIZE / 8


@pytest.mark.parametrize(
    ("size", "expected"), [(8 * MIB, 3.75), (32 * MIB, 4.5), (64 * MIB, 4.625)]
)
def test_gloo_reduce_goes_on_in_vain(size: int, expected: float) -> None:
    """Tests all bytes / S on 4 ranks; torch 2.13 sent 3.754 and 4.505 with headers."""
    schedule = build_schedule("reduce", "gloo_ring", 4, size)
    assert schedule.pair_bytes().sum() / size == pytest.approx(expected)
    assert_delivers(schedule)


def test_gloo_reduce_leaves_the_last_ranks_less() -> None:
    """Tests chunks of whole segments: 9 MiB on 4 ranks are 3, 3, 3 and none."""
    schedule = build_schedule("reduce", "gloo_ring", 4, 9 * MIB)
    sent = schedule.pair_bytes() / MIB
    assert (sent[2, 0], sent[3, 0]) == (3.0, 0.0)
    assert sent[3, 2] == 9.0
    assert_delivers(schedule)


def test_lightgbm_folds_from_the_end() -> None:
    """Tests the pairs of 6 ranks, and that the farthest partners come first."""
    steps = partners(build_schedule("reduce_scatter", "lightgbm_halving", 6, SIZE))
    assert steps == [
        {(5, 4), (3, 2)},
        {(0, 2), (2, 0), (1, 4), (4, 1)},
        {(0, 1), (1, 0), (2, 4), (4, 2)},
        {(4, 5), (2, 3)},
    ]


def test_lightgbm_sends_half_of_all_to_the_farthest() -> None:
    """Tests sizes of the steps of a power of two."""
    steps = build_schedule("reduce_scatter", "lightgbm", 8, SIZE).steps
    assert [(int(s.dst[0]), float(s.size[0])) for s in steps] == [
        (4, SIZE / 2),
        (2, SIZE / 4),
        (1, SIZE / 8),
    ]


@pytest.mark.parametrize(
    ("collective", "ranks", "size", "like"),
    [
        ("reduce_scatter", 6, 10 * MIB - 1, "lightgbm_halving"),
        ("reduce_scatter", 6, 10 * MIB, "ring"),
        ("reduce_scatter", 8, 10 * MIB, "lightgbm_halving"),
        ("allgather", 6, 10 * MIB, "bruck"),
        ("allgather", 6, 10 * MIB + 1, "ring"),
        ("allgather", 8, 10 * MIB, "recursive_doubling"),
        ("allgather", 8, 10 * MIB + 1, "ring"),
        ("allgather", 64, 10 * MIB + 1, "recursive_doubling"),
        ("allgather", 65, 10 * MIB + 1, "bruck"),
    ],
)
def test_lightgbm_chooses_by_size_and_ranks(
    collective: str, ranks: int, size: int, like: str
) -> None:
    """Tests both sides of each of LightGBM's thresholds."""
    chosen = build_schedule(collective, "lightgbm", ranks, size)
    expected = build_schedule(collective, like, ranks, size)
    assert partners(chosen) == partners(expected)
    assert (chosen.pair_bytes() == expected.pair_bytes()).all()


@given(st.integers(2, 130), st.sampled_from([8, 4095, 4096, 10 * MIB, 64 * MIB]))
def test_lightgbm_allreduce_delivers_at_any_size(ranks: int, size: int) -> None:
    """Tests the gathering of small vectors, and every mixture of the others."""
    schedule = build_schedule("allreduce", "lightgbm", ranks, size)
    assert_delivers(schedule)
    if size < 4096:
        assert schedule.pair_bytes().sum() == pytest.approx(size * ranks * (ranks - 1))


@given(st.integers(1, 130), st.integers(0, 129))
def test_xgboost_relays_through_rank_0(ranks: int, root: int) -> None:
    """Tests that each set bit of the root costs one more message."""
    root %= ranks
    schedule = build_schedule("bcast", "xgboost_relay", ranks, SIZE, root=root)
    assert_delivers(schedule)
    total = schedule.pair_bytes().sum() / SIZE
    assert total == ranks - 1 + root.bit_count()


@given(st.integers(1, 12), st.integers(1, 12))
def test_a_torus_delivers_on_any_grid(rows: int, columns: int) -> None:
    """Tests the data flow, and that ranks send to the right and below only."""
    schedule = build_schedule(
        "allreduce", "torus", rows * columns, SIZE, columns=columns
    )
    assert_delivers(schedule)
    for step in schedule.steps:
        row, column = np.divmod(step.src, columns)
        right = row * columns + (column + 1) % columns
        below = (step.src + columns) % (rows * columns)
        assert (step.dst == right).all() or (step.dst == below).all()


def test_a_torus_sends_little_between_rows() -> None:
    """Tests that only a column-th of the bytes of a ring leaves each row."""
    total = build_schedule("allreduce", "torus", 32, SIZE, columns=8).pair_bytes()
    row = np.arange(32) // 8
    assert total[row[:, None] != row].sum() == pytest.approx(2 * 3 * SIZE)


def test_a_torus_without_a_grid_is_refused() -> None:
    """Tests that the error names both numbers."""
    with pytest.raises(UsageError, match="14 ranks are no rows of 4"):
        build_schedule("allreduce", "torus", 14, SIZE, columns=4)


def across(
    schedule: Schedule, rack: int, order: npt.NDArray[np.int64] | None = None
) -> float:
    """Return the share of bytes between racks; `order` gives each rank's place."""
    total = schedule.pair_bytes()
    place = np.arange(schedule.ranks) if order is None else order
    group = place // rack
    return float(total[group[:, None] != group].sum() / total.sum())


@pytest.mark.parametrize(
    ("collective", "algorithm", "in_8_racks_of_8", "in_6_racks_of_10"),
    [
        ("allreduce", "gloo_bcube", 0.111, 0.261),
        ("allreduce", "gloo_ring", 0.125, 0.100),
        ("allreduce", "nccl_ring", 0.125, 0.100),
        ("allreduce", "nccl_tree", 0.175, 0.220),
        ("allreduce", "xgboost_ring", 0.125, 0.100),
        ("allgather", "lightgbm", 0.889, 0.890),
        ("allgather", "bruck", 0.931, 0.890),
        ("allgather", "nccl_pat", 0.302, 0.254),
    ],
)
def test_what_crosses_racks_in_sorted_order(
    collective: str, algorithm: str, in_8_racks_of_8: float, in_6_racks_of_10: float
) -> None:
    """Tests the share of bytes between racks against figures computed before."""
    big = build_schedule(collective, algorithm, 64, SIZE)
    assert across(big, 8) == pytest.approx(in_8_racks_of_8, abs=5e-4)
    small = build_schedule(collective, algorithm, 60, SIZE)
    assert across(small, 10) == pytest.approx(in_6_racks_of_10, abs=5e-4)


def test_lightgbm_wants_bits_reversed() -> None:
    """Tests that sorting is as bad as chance for LightGBM, and what is better."""
    halving = build_schedule("reduce_scatter", "lightgbm_halving", 64, SIZE)
    reversed_bits = np.array([int(f"{rank:06b}"[::-1], 2) for rank in range(64)])
    assert across(halving, 8) == pytest.approx(0.889, abs=5e-4)
    assert across(halving, 8, reversed_bits) == pytest.approx(0.111, abs=5e-4)


def test_gloo_scatters_part_by_part() -> None:
    """Tests N times as many messages as of a tensor, of as many bytes in all."""
    whole = build_schedule("reduce_scatter", "gloo_ring", 6, SIZE)
    parts = build_schedule("reduce_scatter", "gloo_ring_parts", 6, SIZE)
    assert parts.pair_bytes() == pytest.approx(whole.pair_bytes())
    turns = [sum(step.repeat for step in s.steps) for s in (whole, parts)]
    assert turns[1] == 6 * turns[0]
