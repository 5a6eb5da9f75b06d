"""The same input gives the same answer: here, and on any other machine.

The digests are of answers of searches that end before they are perfect. Whoever
changes a search on purpose takes the new ones; whoever did not has broken a promise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pytest

from cloudcoll.arrays import Floats, Ints
from cloudcoll.collectives import build_schedule
from cloudcoll.engine import library
from cloudcoll.model.cost import CostModel
from cloudcoll.model.pairs import shrunk
from cloudcoll.network.tree import Fabric, Node, Pairs
from cloudcoll.solve.orders import partitioned
from cloudcoll.solve.ring import best_ring
from cloudcoll.solve.rules import Rules
from cloudcoll.solve.search import Watch, local_search

pytestmark = pytest.mark.skipif(
    library() is None, reason="no engine: no C compiler built it"
)


def digest(orders: Iterable[Ints]) -> str:
    """Return a few letters that no other orders give."""
    lines = "\n".join(" ".join(map(str, order.tolist())) for order in orders)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def times(hosts: int, *, directed: bool) -> Floats:
    """Return seconds from 1 to 2 of pairs without any pattern, by whole numbers."""
    one, other = np.indices((hosts, hosts))
    if not directed:
        one, other = np.minimum(one, other), np.maximum(one, other)
    mixed = (one * 7919 + other * 104_729 + one * other * 15_485_863) % 1009
    return np.asarray(1.0 + mixed / 1009.0)


def racks(*sizes: int) -> Fabric:
    """Return racks whose hosts are numbered so that no rack has neighbours."""
    groups = [
        Node(
            f"rack-{rack}",
            tuple(
                Node(f"vm-{number:02d}-{rack}", (), 5e7, 5e7, 1e-5)
                for number in range(size)
            ),
            5e7,
            5e7,
            5e-5,
        )
        for rack, size in enumerate(sizes)
    ]
    return Fabric(Node("core", tuple(groups)))


@pytest.mark.parametrize(
    ("objective", "directed", "expected"),
    [
        ("sum", False, "f478e065d7839018"),
        ("sum", True, "4353598756cd6173"),
        ("bottleneck", False, "7879c3466112752f"),
        ("bottleneck", True, "6b5d50e6811443ed"),
    ],
)
def test_rings(objective: str, directed: bool, expected: str) -> None:
    """Tests rings of 45 hosts after few kicks, from two seeds and two lengths."""
    found = [
        best_ring(
            times(45, directed=directed), objective=objective, steps=steps, seed=seed
        )
        for steps, seed in ((20, 0), (20, 1), (100, 0))
    ]
    assert digest(found) == expected


@pytest.mark.parametrize(
    ("algorithm", "pairs", "expected"),
    [
        ("ring", False, "a68da9cc28f59dc9"),
        ("rabenseifner", False, "cdd8864149a80ccd"),
        ("recursive_doubling", True, "f5282b0b8c84bb39"),
    ],
)
def test_walks(algorithm: str, pairs: bool, expected: str) -> None:
    """Tests where each annealing of a search ends, on uneven racks or on pairs."""
    schedule = build_schedule("allreduce", algorithm, 24, 1 << 20)
    seconds = times(24, directed=True)
    model = CostModel(
        schedule,
        racks(5, 3, 9, 7),
        [1] * 24,
        pairs=Pairs(seconds * 1e-4, seconds * 1e-8) if pairs else None,
    )
    met: list[Ints] = []
    starts = [np.arange(24), np.concatenate([[0], np.arange(23, 0, -1)])]
    watch = Watch(limit_s=np.inf, met=met.append)
    best, cost = local_search(model, starts, Rules.only(24, {0: 0}), 1, watch)
    assert cost == model.cost(best) == min(map(model.cost, [*starts, *met]))
    assert digest(met) == expected


@pytest.mark.parametrize(
    ("hosts", "noise", "expected"),
    [
        (24, 0.01, [15.7626818, 0.932491349, 0.987442179, 0.50972431, 3.67414615]),
        (24, np.nan, [15.2247338, 0.806537756, 0.926635562, 0.50972431, 0.970409736]),
        (140, np.nan, [87.9516153, 0.770786333, 1.04427127, 0.357022824, 0.966489561]),
    ],
)
def test_what_is_no_noise(hosts: int, noise: float, expected: list[float]) -> None:
    """Tests what is left of figures of two sites, a late sender and much noise.

    Of more than 128 hosts only the leading patterns are looked for.
    """
    site = np.arange(hosts) % 2
    figures = np.log(times(hosts, directed=True))
    figures += 0.4 * (site[:, None] != site) + 0.3 * (np.arange(hosts) == 3)[:, None]
    figures[4, 9] = 5.0
    figures[2, 6:11] = np.nan
    np.fill_diagonal(figures, np.nan)
    found = shrunk(figures, noise)
    assert found is not None
    some = [np.linalg.norm(found), found[0, 1], found[3, 6], found[2, 8], found[4, 9]]
    assert some == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("rabenseifner", "f383c04a06891d5e"),
        ("recursive_doubling", "309df702fc4c6c71"),
        ("ring", "f90d7e53713e3fd5"),
    ],
)
def test_parts(algorithm: str, expected: str) -> None:
    """Tests what follows from who sends to whom, in racks of all sizes."""
    schedule = build_schedule("allreduce", algorithm, 80, 1 << 20)
    flat = CostModel(schedule, racks(11, 3, 9, 7, 10), [2] * 40).flat()
    assert digest(partitioned(flat, front) for front in (0, 17)) == expected
