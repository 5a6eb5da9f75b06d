"""Measure what orders gain on flat networks of which only a matrix of pairs is known.

Each pair is measured once in each direction, through noise that multiplies it by
exp(normal). Orders are judged by the network without noise; gains are shares of
what the best order known gains (found without noise, or as planted). A row per
network: how often figures of pairs were used, the largest gain promised, the
worst true time against the order given, and the median share of the gain of
`cloudcoll solve`, of the same search on the matrix as measured, and of SciPy's
leaf orders of it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from cloudcoll.arrays import Floats, Ints
from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.hosts import Host
from cloudcoll.importers import read_matrices
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Pairs, flat
from cloudcoll.solve import solve
from cloudcoll.solve.rules import Rules
from cloudcoll.solve.search import local_search

RTT, RATE = 50e-6, 1.25e9
"""Of the nearest pair: seconds of a round trip, bytes/s."""

FAR = 4.0
"""What the farthest pair takes more, in the same units."""

SMALL, LARGE = 1 << 10, 64 << 20
"""Bytes where latencies decide, and where rates do."""


def nothing(hosts: int, place: Ints) -> tuple[Floats, Ints]:
    return np.zeros((hosts, hosts)), np.arange(hosts)


def line(hosts: int, place: Ints) -> tuple[Floats, Ints]:
    # Along every other host and back: no step is longer than two.
    along = np.argsort(place)
    there_and_back = np.concatenate([along[::2], along[1::2][::-1]])
    return np.abs(place[:, None] - place) / hosts, there_and_back


def ring(hosts: int, place: Ints) -> tuple[Floats, Ints]:
    apart = np.abs(place[:, None] - place) / hosts
    return 2.0 * np.minimum(apart, 1.0 - apart), np.argsort(place)


def plane(hosts: int, place: Ints) -> tuple[Floats, Ints]:
    # Points of a square, row by row and back.
    side = int(np.sqrt(hosts))
    row, column = place // side, place % side
    apart = np.hypot(row[:, None] - row, column[:, None] - column) / side / np.sqrt(2)
    snake = np.where(row % 2, side - 1 - column, column) + side * row
    return apart, np.argsort(snake)


def sites(hosts: int, place: Ints) -> tuple[Floats, Ints]:
    site = place % 2
    return 1.0 * (site[:, None] != site), np.argsort(site, kind="stable")


NETWORKS: dict[str, Callable[[int, Ints], tuple[Floats, Ints]]] = {
    "nothing": nothing,
    "line": line,
    "ring": ring,
    "plane": plane,
    "two sites": sites,
}


@dataclass(frozen=True)
class Case:
    """A planted network as it is, and as it was measured.

    Attributes
    ----------
    true, seen : ndarray of float64, shape (hosts, hosts)
        Times of pairs over that of the nearest pair.
    planted : ndarray of int64, shape (hosts,)
        An order that follows the network.
    rates : bool
        Whether the matrix is one of rates, else of round trips.
    """

    true: Floats
    seen: Floats
    planted: Ints
    rates: bool

    def pairs(self, times: Floats) -> Pairs:
        """Return these times as figures of pairs."""
        zero = np.zeros_like(times)
        if self.rates:
            return Pairs(zero, times / RATE)
        return Pairs(times * RTT / 2.0, zero)

    def snapshot(self, folder: Path) -> NetworkSnapshot:
        """Return what was measured, imported as another tool's matrix."""
        path = folder / "matrix.npy"
        np.save(path, RATE / self.seen if self.rates else RTT * self.seen)
        hosts = tuple(Host(f"vm-{i}") for i in range(len(self.seen)))
        if self.rates:
            return read_matrices(None, path, bandwidth_unit="B/s", hosts=hosts)
        return read_matrices(path, latency_unit="s", hosts=hosts)


def plant(network: str, hosts: int, noise: float, rates: bool, seed: int) -> Case:
    generator = np.random.default_rng([hosts, seed])
    apart, planted = NETWORKS[network](hosts, generator.permutation(hosts))
    true = 1.0 + FAR * apart
    seen = true * np.exp(noise * generator.standard_normal(true.shape))
    return Case(true, seen, planted, rates)


def with_first(order: Ints) -> Ints:
    """Return the order rotated to the host that the order given has in front."""
    return np.roll(order, -int(np.flatnonzero(order == 0)[0]))


@dataclass(frozen=True)
class Result:
    """What came of one network.

    Attributes
    ----------
    used : bool
        Whether another order than the one given was chosen.
    promised : float
        Share of the time that it was predicted to save.
    worst : float
        Its true time over that of the order given.
    shares : sequence of float
        Of the gain possible: solve, the search on the matrix, the leaf orders.
    took : float
        Seconds of import and solve.
    """

    used: bool
    promised: float
    worst: float
    shares: Sequence[float]
    took: float


def run(case: Case, schedule: Schedule) -> Result:
    hosts = len(case.true)
    names = tuple(f"vm-{i}" for i in range(hosts))
    model, plain = (
        CostModel(schedule, flat(names), [1] * hosts, case.pairs(times))
        for times in (case.true, (case.seen + case.seen.T) / 2.0)
    )
    given = np.arange(hosts)
    stays = Rules.only(hosts, {0: 0})
    start = time.perf_counter()
    with TemporaryDirectory() as folder:
        rank_map = solve(case.snapshot(Path(folder)), schedule)
    took = time.perf_counter() - start
    mine = np.array([names.index(name) for name in rank_map.order])
    near = squareform((case.seen + case.seen.T) / 2.0, checks=False)
    tree = linkage(near, "average")
    orders = [
        mine,
        local_search(plain, [given], stays, 0)[0],
        with_first(leaves_list(tree)),
        with_first(leaves_list(optimal_leaf_ordering(tree, near))),
    ]
    best, _ = local_search(model, [given, with_first(case.planted)], stays, 0)
    most = model.seconds(given) - model.seconds(best)
    gains = [model.seconds(given) - model.seconds(order) for order in orders]
    return Result(
        used=rank_map.origin != "given",
        promised=1.0 - rank_map.predicted["cloudcoll"] / rank_map.predicted["given"],
        worst=model.seconds(mine) / model.seconds(given),
        shares=[gain / most if most > 0 else float("nan") for gain in gains],
        took=took,
    )


def row(
    network: str, hosts: int, noise: float, algorithm: str, rates: bool, seeds: int
) -> str:
    schedule = build_schedule("allreduce", algorithm, hosts, LARGE if rates else SMALL)
    runs = [
        run(plant(network, hosts, noise, rates, seed), schedule)
        for seed in range(seeds)
    ]
    shares = np.array([one.shares for one in runs])
    middle, low = np.median(shares, axis=0), shares[:, 0].min()
    return (
        f"{network:>9} {'rates' if rates else 'trips':>6} {algorithm:>12} {hosts:5} "
        f"{noise:6.0%} {sum(one.used for one in runs):4}/{seeds:<3} "
        f"{max(one.promised for one in runs):8.1%} {max(o.worst for o in runs):6.2f} "
        f"{middle[0]:6.2f} ({low:5.2f}) {middle[1]:7.2f} {middle[2]:6.2f} "
        f"{middle[3]:7.2f} {np.median([one.took for one in runs]):6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="16,64,256", help="comma-separated")
    parser.add_argument("--algorithms", default="ring,rabenseifner")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    print(
        f"{'network':>9} {'of':>6} {'algorithm':>12} {'hosts':>5} {'noise':>6} "
        f"{'moved':>8} {'promised':>8} {'worst':>6} {'solve':>6} {'(least)':>7} "
        f"{'as seen':>7} {'leaf':>6} {'optimal':>7} {'s':>6}"
    )
    for network in options.networks.split(","):
        for noise in (0.2, 0.4) if network == "nothing" else (0.2,):
            for rates in (False, True):
                for algorithm in options.algorithms.split(","):
                    for hosts in map(int, options.hosts.split(",")):
                        print(
                            row(network, hosts, noise, algorithm, rates, options.seeds),
                            flush=True,
                        )


if __name__ == "__main__":
    main()
