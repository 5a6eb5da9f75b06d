"""Fifty cases for the engine: what is measured, and the map that comes of it.

python .ci/maps.py snapshots FOLDER    # once: CASE.snap, planted
python .ci/maps.py maps FOLDER OUTPUT  # on each kind of machine: CASE.json
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cloudcoll import load_snapshot, order_for
from cloudcoll.engine import library
from cloudcoll.measured.synth import observe, racks

SIZES = ((5, 3, 6, 2), (4, 4), (7, 9), (12, 8, 10), (1, 2, 3, 4, 5, 6))
JOBS = (
    ("allreduce", "ring", 1 << 20),
    ("allreduce", "auto", 1 << 12),
    ("alltoall", "auto", 1 << 18),
    ("allgather", "auto", 1 << 16),
    ("bcast", "auto", 1 << 22),
)
SEEDS = (0, 1)


def cases() -> Iterator[tuple[str, int, int, int]]:
    """Yield a name, and the numbers of sizes, job and seed."""
    for seed in SEEDS:
        for sizes in range(len(SIZES)):
            for job in range(len(JOBS)):
                yield f"{sizes}-{job}-{seed}", sizes, job, seed


def snapshots(folder: Path) -> None:
    """Write what a probe of each planted fabric would have seen."""
    for name, sizes, _, seed in cases():
        fabric = racks(SIZES[sizes], uplink=60e6, seed=seed)
        observe(fabric, rounds=8, noise=0.05, seed=seed).save(folder / f"{name}.snap")


def maps(folder: Path, output: Path) -> None:
    """Write the map of each case, by the engine and without a limit of seconds."""
    if library() is None:
        sys.exit("there is no engine here")
    for name, _, job, seed in cases():
        snapshot = load_snapshot(folder / f"{name}.snap")
        collective, algorithm, size = JOBS[job]
        hosts = [replace(host, slots=1 + seed) for host in snapshot.hosts]
        found = order_for(
            snapshot,
            hosts,
            collective=collective,
            algorithm=algorithm,
            size=size,
            seed=seed,
            limit_s=3600.0,
        )
        found.save(output / f"{name}.json")
        print(name, *found.order, flush=True)


if __name__ == "__main__":
    verb, *paths = sys.argv[1:]
    {"snapshots": snapshots, "maps": maps}[verb](*map(Path, paths))
