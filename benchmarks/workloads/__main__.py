"""Train for real in several orders of the hosts of an emulated data centre.

Each workload is one job in which orders take turns; CloudColl's order is solved
for what the workload sends in a step. Of `OF_MESHES` no rank moves for it: their
mesh is made in it. Predicted is that, and what a step takes with nobody to talk to.
Prints a line for each order, then how much longer each baseline takes than
CloudColl's order, and whether all orders learned the same.

    python -m benchmarks.workloads [NAME ...] [--racks 4,4,4,4] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.emulated import Emulated, emulated, prediction_figures
from benchmarks.record import Figure, json_option, median_of, write_figures
from cloudcoll import lab as labs
from cloudcoll.bench.job import NamedOrder, named_orders
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.libraries import select
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot
from cloudcoll.model import fabric_of, problem_of
from cloudcoll.solve import solve

WANTED = {
    "cnn": {"random": 2.0},
    "transformer": {"random": 2.0},
    "lgbm": {"random": 1.8, "grouped": 1.8},
    "tensor": {"given": 1.5},
}
"""Least ratios, by workload and baseline."""
WORKLOADS = (*WANTED, "fsdp", "xgb", "dlrm", "towers", "stencil")
OF_MESHES = {"tensor"}
"""Those whose mesh `cloudcoll.torch` makes."""
ORDERS = "given,grouped,random:3,cloudcoll"
NOT_SLOWER = 0.97
MOST_OFF = 0.12
"""Wanted of the median error of predictions."""
TOLERANCE = 1e-4
"""Relative, between losses: sums of floats in another order."""
PORTS = itertools.count(12000, 1000)
"""First of each job: those of the last one may not be free yet."""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Trial:
    """A workload that was run.

    Attributes
    ----------
    rows : list of dict
        What `benchmarks.workloads.job` wrote.
    predicted : mapping of str to float
        Seconds of a step's collectives, by order.
    scheduled : float
        Bytes that a step sends between hosts.
    ours : str
        The order that is CloudColl's: another's name if that is the same one.
    """

    rows: list[dict[str, Any]]
    predicted: Mapping[str, float]
    scheduled: float
    ours: str

    def values(self, order: str, key: str) -> np.ndarray:
        """Return a column of an order's turns."""
        return np.array([row[key] for row in self.rows if row["order"] == order])

    def seconds(self, order: str) -> float:
        """Return the median seconds of a step."""
        return float(np.median(self.values(order, "seconds")))

    def model(self, order: str) -> float:
        """Return the predicted seconds of a step, the computing included."""
        return self.predicted[order] + self.seconds("alone")

    def errors(self) -> list[float]:
        """Return the relative error of the prediction for each order."""
        return [abs(self.model(o) / self.seconds(o) - 1) for o in self.predicted]

    def sent(self) -> float:
        """Return by how many per cent cards sent other than scheduled, at most."""
        sent = np.array([row["sent"] for row in self.rows if row["order"] != "alone"])
        return float(100 * abs(sent / self.scheduled - 1).max())

    def losses_differ(self) -> float:
        """Return how far the losses of any two turns are apart, relative."""
        losses = [row["loss"] for row in self.rows if row["order"] != "alone"]
        return float(np.ptp(losses) / abs(np.mean(losses)))


def operations(name: str, ranks: int) -> Iterator[Operation]:
    """Yield what a workload's step sends, as its library does it."""
    workload = importlib.import_module(f"benchmarks.workloads.{name}")
    for number, sent in enumerate(workload.sent(ranks)):
        groups = [np.array(group) for group in sent.groups] or [np.arange(ranks)]
        algorithm, parameters = "openmpi_both", {}
        if sent.collective != "sendrecv":
            size = max(map(len, groups))
            chosen = select(workload.LIBRARY, sent.collective, size, sent.bytes)
            algorithm, parameters = chosen.algorithm, chosen.parameters
        yield Operation(
            *(sent.collective, algorithm, sent.bytes, groups, sent.calls),
            where=f"groups {number}" if sent.groups else "world",
            parameters=parameters,
        )


def trial(cluster: Emulated, name: str, wanted: str, turns: int, steps: int) -> Trial:
    """Solve for a workload, and run it in all orders."""
    snapshot = load_snapshot(cluster.snapshot)
    given = [host.name for host in sorted(cluster.lab().hosts, key=lambda h: h.name)]
    sent = Workload(name, len(given), tuple(operations(name, len(given))))
    meshes = name in OF_MESHES
    orders, predicted = compared(wanted, snapshot, sent, given, free_rank0=meshes)
    spec = {
        "workload": name, "turns": turns, "steps": steps, "port": next(PORTS),
        "orders": {o.name: [given.index(host) for host in o.hosts] for o in orders},
        "snapshots": {"cloudcoll": str(cluster.snapshot)} if meshes else {},
    }  # fmt: skip
    (ours,) = (o.name for o in orders if "cloudcoll" in (o.name, *o.same_as))
    if meshes:
        predicted["cloudcoll"] = predicted[ours]
        ours = "cloudcoll"
    return Trial(run(cluster, spec), predicted, float(sent.pair_bytes().sum()), ours)


def compared(
    wanted: str,
    snapshot: NetworkSnapshot,
    sent: Workload,
    given: list[str],
    *,
    free_rank0: bool,
) -> tuple[tuple[NamedOrder, ...], dict[str, float]]:
    """Return the orders to run, and the seconds predicted for their collectives."""
    rank_map = solve(snapshot, sent, given=given, free_rank0=free_rank0)
    fabric = fabric_of(snapshot).restrict(given)
    problem = problem_of(snapshot, sent, dict.fromkeys(given, 1))
    orders = named_orders(wanted, given, fabric, rank_map, seed=0)
    return orders, {order.name: problem.seconds(order.hosts) for order in orders}


def run(cluster: Emulated, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a job on all hosts and return its rows."""
    settings = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    words = ["mpirun", "--hostfile", str(cluster.hostfile), "--bind-to", "none"]
    words += [word for name in settings for word in ("-x", name)]
    words += [sys.executable, "-m", "mpi4py", "-m", "benchmarks.workloads.job"]
    argv, env = labs.exec_argv(cluster.lab(), labs.HEAD, words)
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env=env | settings,
        input=json.dumps(spec) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]


def baselines(found: Trial) -> dict[str, list[str]]:
    """Return the orders that stand for each baseline."""
    names = [name for name in found.predicted if name != found.ours]
    random = [name for name in names if name.startswith("random-")]
    return {name: [name] for name in names if name not in random} | {"random": random}


def figures(name: str, racks: str, found: Trial) -> Iterator[Figure]:
    """Yield the ratios, the prediction's error and how far losses are apart."""
    what = f"{name}, racks {racks}"
    ours, gains = found.values(found.ours, "seconds"), []
    for baseline, orders in baselines(found).items():
        times = np.median([found.values(order, "seconds") for order in orders], axis=0)
        model = np.median([found.model(order) for order in orders])
        gain = median_of(
            f"{what}: {baseline} over cloudcoll",
            (times / ours).tolist(),
            "x",
            predicted=float(model / found.model(found.ours)),
            least=WANTED.get(name, {}).get(baseline, NOT_SLOWER),
        )
        gains.append(gain)
        yield gain
    if found.ours == "grouped":
        same = {"predicted": 1.0, "unit": "x", "note": "the same order"}
        yield Figure(f"{what}: grouped over cloudcoll", 1.0, **same)
    yield from prediction_figures(what, found.errors(), gains, MOST_OFF)
    apart = found.losses_differ()
    yield Figure(f"{what}: losses differ by", apart, most=TOLERANCE)
    yield Figure(f"{what}: sent, off from what was scheduled", found.sent(), unit="%")


def show(name: str, found: Trial) -> None:
    """Print a line for each order; CloudColl's has a star."""
    alone = found.seconds("alone")
    print(f"\n{name}: {alone:.3f} s a step with nobody to talk to")
    for order in found.predicted:
        sent = np.median(found.values(order, "sent")) / found.scheduled
        name = f"* {order}" if order == found.ours else order
        print(
            f"{name:>12} {found.seconds(order):7.3f} s, predicted "
            f"{found.model(order):7.3f} s, sent {sent:.2f} of what was scheduled, "
            f"loss {found.values(order, 'loss')[0]:.6f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(WORKLOADS))
    parser.add_argument("--racks", default="4,4,4,4")
    parser.add_argument("--orders", default=ORDERS)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2)
    json_option(parser)
    options = parser.parse_args()
    if "cloudcoll" not in options.orders.split(","):
        parser.error("--orders needs cloudcoll, with which others are compared")
    with emulated("workloads", options.racks) as cluster:
        for name in options.names or WORKLOADS:
            found = trial(cluster, name, options.orders, options.turns, options.steps)
            show(name, found)
            write_figures(figures(name, options.racks, found), options.json)


if __name__ == "__main__":
    main()
