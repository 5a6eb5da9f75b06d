"""Print how much memory `solve` takes.

Three snapshots of `--hosts`: racks in pods as orders.py plants them, without figures
of pairs (`links`); one round trip of every pair of points in a square, on one switch,
as an imported matrix has it (`trips`); the same with a rate of every pair both ways
(`both`). A row per snapshot and schedule, each in a process of its own: most GiB
before solving and at the end, CPU seconds of it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time

import numpy as np

from benchmarks.orders import plant
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.collectives import build_schedule
from cloudcoll.hosts import Host
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import flat
from cloudcoll.solve import solve

SIZE = 64 << 20
ALGORITHMS = ("ring", "rabenseifner")
SNAPSHOTS = ("links", "trips", "both")


def seen(kind: str, hosts: int) -> NetworkSnapshot:
    """Return a snapshot."""
    generator = np.random.default_rng(0)
    if kind == "links":
        fabric = plant(hosts, generator)
        names = tuple(Host(name) for name in sorted(fabric.hosts))
        return NetworkSnapshot(names, fabric=fabric)
    names = tuple(Host(f"vm-{number:04d}") for number in range(hosts))
    where = generator.random((hosts, 2))
    src, dst = np.triu_indices(hosts, 1)
    far = np.hypot(*(where[src] - where[dst]).T)
    rtt = RttSamples(
        src, dst, np.ones_like(src), np.arange(1, len(src) + 1), 1e-4 * (0.2 + far)
    )
    snapshot = NetworkSnapshot(
        names,
        rtt=rtt,
        fabric=flat(tuple(host.name for host in names), origin="imported"),
        metadata={"origin": "imported"},
    )
    return _with_rates(snapshot, far) if kind == "both" else snapshot


def _with_rates(snapshot: NetworkSnapshot, far: np.ndarray) -> NetworkSnapshot:
    rtt = snapshot.rtt
    src, dst = np.concatenate([[rtt.src, rtt.dst], [rtt.dst, rtt.src]], axis=1)
    number = np.arange(len(src))
    sent = np.tile((1e9 / (0.5 + far)).astype(np.int64), 2)
    flows = LoadedFlows(number, src, dst, number + 1, sent, window_s=1.0, ramp_up=0)
    return NetworkSnapshot(
        snapshot.hosts,
        rtt=rtt,
        flows=flows,
        fabric=snapshot.fabric,
        metadata=snapshot.metadata,
    )


def measure(kind: str, hosts: int, algorithm: str) -> tuple[float, float, float]:
    """Return GiB before and at most, and CPU seconds."""
    snapshot = seen(kind, hosts)
    begin, before = time.process_time(), _most()
    solve(snapshot, build_schedule("allreduce", algorithm, hosts, SIZE))
    return before, _most(), time.process_time() - begin


def _most() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--hosts", type=int, default=4096, help="64, 1000, 1024 or 4096"
    )
    parser.add_argument("--snapshots", default=",".join(SNAPSHOTS))
    json_option(parser)
    options = parser.parse_args()
    print(f"{'':>6} {'':>12} {'before':>7} {'most':>7} {'CPU':>9}")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for kind in options.snapshots.split(","):
            for algorithm in ALGORITHMS:
                figures = pool.apply(measure, (kind, options.hosts, algorithm))
                print(
                    f"{kind:>6} {algorithm:>12} {{:7.2f}} {{:7.2f}} {{:7.1f}} s".format(
                        *figures
                    ),
                    flush=True,
                )
                _, most, took = figures
                what = f"solve for {options.hosts} hosts, {kind}, {algorithm}"
                write_figures(
                    [
                        Figure(f"{what}: CPU", took, unit="s"),
                        Figure(f"{what}: memory", most, unit="GiB"),
                    ],
                    options.json,
                )


if __name__ == "__main__":
    main()
