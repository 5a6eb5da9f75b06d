"""Measure how long matrices of many hosts take to import, inference included.

Plants racks in pods, writes what tools would have measured between all hosts to
files, and imports these. Prints a row per import: megabytes of files, seconds,
adjusted Rand index of the racks, and peak memory of the process so far in GiB.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planted import Case, labels, plant, rand_index
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.hosts import Host
from cloudcoll.importers import read_matrices
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric

NOISE = 0.10
"""Mean extra time of a figure, as a share of it."""


def write_latencies(fabric: Fabric, names: Sequence[str], folder: Path) -> None:
    """Write all round trips in microseconds, as CSV with names and as NPY."""
    columns = np.array([fabric.position(name) for name in names])
    trips = fabric.links.pair_rtt()[np.ix_(columns, columns)] * 1e6
    trips *= 1 + np.random.default_rng(1).exponential(NOISE, trips.shape)
    np.save(folder / "latency.npy", trips)
    lines = [",".join(["host", *names])]
    for name, row in zip(names, trips, strict=True):
        lines.append(",".join([name, *map("{:.3f}".format, row)]))
    (folder / "latency.csv").write_text("\n".join(lines))


def write_mpigraph(fabric: Fabric, names: Sequence[str], path: Path) -> None:
    """Write mpiGraph's table of receivers, each ring shift under its own load."""
    columns = np.array([fabric.position(name) for name in names])
    count = len(names)
    shift, src = np.divmod(np.arange(count * (count - 1)), count)
    dst = (src + shift + 1) % count
    flows, _ = fair_rounds(fabric.links, shift, columns[src], columns[dst])
    slowed = 1 + np.random.default_rng(2).exponential(NOISE, len(flows))
    received = np.zeros((count, count))
    received[dst, src] = flows / slowed / 2**20
    hosts = [f"{name}:{rank}" for rank, name in enumerate(names)]
    lines = ["\t".join(["Recv", *hosts])]
    for host, row in zip(hosts, received, strict=True):
        lines.append("\t".join([f"{host} from", *map("{:.3f}".format, row)]))
    path.write_text("\n".join(lines))


def run(count: int, folder: Path) -> Iterator[Figure]:
    """Import what was planted in three ways; print a row for each, yield figures."""
    case = Case(count, 3, 4.0, NOISE, 0.0, 0.0)
    planted = plant(case, np.random.default_rng(count))
    names = sorted(planted.hosts)
    write_latencies(planted, names, folder)
    write_mpigraph(planted, names, folder / "mpigraph.out")
    hosts = tuple(map(Host, names))
    for name in ("latency.csv", "latency.npy", "mpigraph.out"):
        path = folder / name
        way: dict[str, Any] = {path.stem: path}
        start = time.perf_counter()
        found = read_matrices(**way, hosts=hosts).fabric
        seconds = time.perf_counter() - start
        assert found is not None
        racks = rand_index(labels(planted, names, -1), labels(found, names, -1))
        size = path.stat().st_size / 1e6
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{count:6} {name:>14} {size:7.1f} {seconds:8.2f} {racks:6.3f} "
            f"{memory:5.2f}",
            flush=True,
        )
        yield Figure(f"{count} hosts, {name}: import", seconds, unit="s")
        yield Figure(f"{count} hosts, {name}: Rand index of racks", racks)
        # Of one process: what it took at most so far.
        yield Figure(f"{count} hosts, {name}: memory", memory, unit="GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="512,1024")
    json_option(parser)
    options = parser.parse_args()
    print(f"{'hosts':>6} {'file':>14} {'MB':>7} {'seconds':>8} {'racks':>6} {'GiB':>5}")
    for count in map(int, options.hosts.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            write_figures(run(count, Path(folder)), options.json)


if __name__ == "__main__":
    main()
