"""Bytes of all messages of a call, over the bytes of the full vector."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from delivery import WORLDS

from cloudcoll.collectives import SCHEDULES, build_schedule

SIZE = 1 << 20


def power(n: int) -> int:
    return 1 << n.bit_length() - 1


def rem(n: int) -> int:
    return n - power(n)


def log(n: int) -> int:
    return n.bit_length() - 1


def tree(n: int) -> float:
    return n - 1


def twice(n: int) -> float:
    return 2 * (n - 1)


def doubling(n: int) -> float:
    return power(n) * log(n) + 2 * rem(n)


def mpich_rabenseifner(n: int) -> float:
    return 2 * (power(n) - 1) + 2 * rem(n)


def rabenseifner_reduction(n: int) -> float:
    return power(n) - 1 + 1.5 * rem(n) + log(n) / 2


def scattered(n: int) -> float:
    """A binomial scatter: each block once for each bit of its position."""
    return sum(min(v & -v, n - v) for v in range(1, n)) / n


def halving(n: int) -> float:
    return power(n) - 1 + rem(n) + rem(n) / n


def mirrored(n: int) -> list[int]:
    """Positions whose bits in reverse are another position's."""
    bits = log(n)
    reverse = {v: int(f"{v:0{bits}b}"[::-1], 2) if bits else 0 for v in range(power(n))}
    return [v for v, mirror in reverse.items() if mirror != v]


def butterfly_block(n: int) -> float:
    return n - 1 if not rem(n) else halving(n) + len(mirrored(n)) / n


def gathered_into_position_ranges(n: int) -> float:
    """Each position gets all but its own, the folded ranks everything."""
    return power(n) - 1 + rem(n) + rem(n) / n


def block_doubling(n: int) -> float:
    """Bytes of all blocks that each rank gets: all but its partner's tree's."""
    got = 0
    for half in (1 << bit for bit in range((n - 1).bit_length())):
        for rank in range(n):
            other = rank & -half ^ half
            if other < n:
                got += n - min(half, n - other)
    return got / n


def nothing(n: int) -> float:
    return 0


def han_reduction(n: int) -> float:
    return rabenseifner_reduction(n) if n > 2 else 1


TOTALS: dict[str, dict[str, Callable[[int], float]]] = {
    "allreduce": {
        "allgather_reduce": lambda n: n * (n - 1),
        "basic_linear": twice,
        "han": lambda n: n - 1 + han_reduction(n),
        "nonoverlapping": twice,
        "rabenseifner": lambda n: 2 * (power(n) - 1) + 2.5 * rem(n),
        "recursive_doubling": doubling,
        "ring": twice,
        "segmented_ring": twice,
        "mpich_k_reduce_scatter_allgather": mpich_rabenseifner,
        "mpich_recexch": doubling,
        "mpich_recursive_multiplying": doubling,
        "mpich_reduce_scatter_allgather": mpich_rabenseifner,
        "mpich_tree_kary": twice,
        "mpich_tree_knomial_1": twice,
        "mpich_tree_knomial_2": twice,
    },
    "allgather": {
        "bruck": tree,
        "direct": tree,
        "han": tree,
        "linear": lambda n: (n - 1) / n + n - 1,
        "neighbor": tree,
        "recursive_doubling": tree,
        "ring": tree,
        "sparbit": tree,
        "two_proc": tree,
        "mpich_recexch_doubling": gathered_into_position_ranges,
        "mpich_recexch_halving": lambda n: (
            gathered_into_position_ranges(n)
            + sum(2 if v < rem(n) else 1 for v in mirrored(n)) / n
        ),
        "mpich_recursive_doubling": tree,
    },
    "alltoall": {
        "linear": tree,
        "linear_sync": tree,
        "modified_bruck": lambda n: sum(way.bit_count() for way in range(n)),
        "pairwise": tree,
        "two_proc": tree,
        "mpich_pairwise": tree,
    },
    "barrier": dict.fromkeys(
        [
            "bruck",
            "double_ring",
            "han",
            "linear",
            "recursive_doubling",
            "tree",
            "two_proc",
            "mpich_dissemination",
            "mpich_recexch",
        ],
        nothing,
    ),
    "bcast": {
        "linear": tree,
        "chain": tree,
        "pipeline": tree,
        "split_binary_tree": tree,
        "binary_tree": tree,
        "binomial": tree,
        "han": tree,
        "knomial": tree,
        "scatter_allgather": lambda n: n - 1 + scattered(n),
        "scatter_allgather_ring": lambda n: n - 1 + scattered(n),
        "mpich_binomial": tree,
        "mpich_tree_kary": tree,
        "mpich_tree_knomial_1": tree,
        "mpich_tree_knomial_2": tree,
    },
    "reduce": {
        "linear": tree,
        "chain": tree,
        "pipeline": tree,
        "binary": tree,
        "binomial": tree,
        "in_order_binary": lambda n: n,
        "rabenseifner": rabenseifner_reduction,
        "han": han_reduction,
        "knomial": tree,
        "mpich_binomial": tree,
        "mpich_reduce_scatter_gather": lambda n: power(n) - 1 + rem(n) + log(n) / 2,
    },
    "sendrecv": {
        "backward": tree,
        "both": twice,
        "forward": tree,
        "openmpi_both": twice,
    },
    "reduce_scatter": {
        "block_linear": lambda n: n - 1 + (n - 1) / n,
        "block_recursive_doubling": block_doubling,
        "butterfly": lambda n: halving(n) + len(mirrored(n)) / n,
        "butterfly_block": butterfly_block,
        "nonoverlapping": lambda n: n - 1 + (n - 1) / n,
        "recursive_halving": halving,
        "ring": tree,
        "mpich_pairwise": tree,
    },
}
"""Closed forms for N ranks, of each family with its default parameters."""

for families in TOTALS.values():
    # With one rank on each host MPICH's two levels are what it does between hosts.
    flat = {name.removeprefix("mpich_"): total for name, total in families.items()}
    families |= {f"mpich_smp_{name}": total for name, total in flat.items()}


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [
        (name, known)
        for name in TOTALS
        for known in sorted(TOTALS[name].keys() & SCHEDULES[name])
    ],
)
def test_total_bytes_match_the_closed_form(collective: str, algorithm: str) -> None:
    """Tests the sum over all messages for up to 130 ranks."""
    only = SCHEDULES[collective][algorithm].only
    for ranks in [only] if only else WORLDS[1:]:
        schedule = build_schedule(collective, algorithm, ranks, SIZE)
        expected = SIZE * TOTALS[collective][algorithm](ranks)
        assert schedule.pair_bytes().sum() == pytest.approx(expected)


def test_every_mpi_schedule_has_a_closed_form() -> None:
    """Tests that none of the MPI libraries' families is left out above."""
    for collective, families in SCHEDULES.items():
        for algorithm, family in families.items():
            if "MPI" in family.library:
                assert algorithm in TOTALS[collective]
