"""Say how far the search's orders can be from perfect, and what the bound takes.

Racks of uneven sizes at 2:1 in pods at 4:1 as in solver.py, and regular ones: 8
hosts a rack, 4 racks a pod, the same ratios. A row per algorithm, fabric and
number of hosts: predicted milliseconds of the search's order, the bound, their
ratio, CPU seconds that search and bound took. At the end the most memory used.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from benchmarks.record import Figure, json_option, write_figures
from benchmarks.solver import NIC, SIZE, group, plant
from cloudcoll.collectives import build_schedule
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.solve.bounds import lower_bound
from cloudcoll.solve.orders import partitioned
from cloudcoll.solve.rules import Rules
from cloudcoll.solve.search import local_search

ALGORITHMS = (
    "allreduce ring",
    "allreduce rabenseifner",
    "allreduce gloo_halving_doubling",
    "allreduce recursive_doubling",
    "allreduce nccl_tree",
    "allgather bruck",
    "alltoall linear",
)
RACK, POD = 8, 4
FEW = 256
"""Hosts up to which an all-to-all in one step is searched."""


def regular(hosts: int, generator: np.random.Generator) -> Fabric:
    """Plant racks and pods of one size."""
    names = generator.permutation([f"vm-{i:04d}" for i in range(hosts)])
    racks = [
        group(
            f"rack-{i // RACK}",
            [Node(name, (), NIC, NIC, 5e-6) for name in names[i : i + RACK].tolist()],
            2.0,
            10e-6,
        )
        for i in range(0, hosts, RACK)
    ]
    pods = [
        group(f"pod-{i}", racks[i : i + POD], 4.0, 30e-6)
        for i in range(0, len(racks), POD)
    ]
    return Fabric(Node("core", tuple(pods)), origin="synthetic")


def row(what: str, shape: str, hosts: int) -> tuple[str, float, float]:
    """Return a line, how far from the bound the order is, seconds of the bound."""
    generator = np.random.default_rng(hosts)
    fabric = (regular if shape == "regular" else plant)(hosts, generator)
    collective, algorithm = what.split()
    schedule = build_schedule(collective, algorithm, hosts, SIZE)
    model = CostModel(schedule, fabric, [1] * hosts)
    given = generator.permutation(hosts)
    grouped = np.roll(np.arange(hosts), -int(given[0]))
    rules = Rules.only(hosts, {0: int(given[0])})
    begin = time.process_time()
    starts = [given, grouped, partitioned(model.flat(), int(given[0]))]
    _, (found, _) = local_search(model, starts, rules, 0)
    middle = time.process_time()
    bound = lower_bound(model)
    end = time.process_time()
    text = (
        f"{what:>31} {shape:>8} {hosts:5} {1e3 * found:9.1f} {1e3 * bound:9.1f} "
        f"{found / bound:6.3f} {middle - begin:7.2f} {end - middle:7.3f}"
    )
    return text, found / bound - 1, end - middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="16,64,256,1024,4096")
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    json_option(parser)
    options = parser.parse_args()
    longest = 0.0
    print(
        f"{'algorithm':>31} {'fabric':>8} {'hosts':>5} {'found ms':>9} "
        f"{'bound ms':>9} {'gap':>6} {'search s':>7} {'bound s':>7}"
    )
    for what in options.algorithms.split(","):
        gaps = []
        for shape in ("regular", "uneven"):
            for hosts in map(int, options.hosts.split(",")):
                if not what.startswith("alltoall") or hosts <= FEW:
                    text, gap, took = row(what, shape, hosts)
                    print(text, flush=True)
                    gaps.append(100 * gap)
                    longest = max(longest, took)
        ends, kind = (min(gaps), max(gaps)), f"range of {len(gaps)} fabrics"
        figure = Figure(
            f"{what}: at most from perfect", float(np.median(gaps)), *ends,
            unit="%", interval=kind,
        )  # fmt: skip
        write_figures([figure], options.json)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    figures = [
        Figure("a bound, CPU at most", longest, unit="s"),
        Figure("memory of searches and bounds", most, unit="GiB"),
    ]
    write_figures(figures, options.json)


if __name__ == "__main__":
    main()
