"""One GPU as a cluster: real NCCL, a rank on every host of an emulated data centre.

    make gpu
    python benchmarks/gpu --output gpu.json [--seconds 520] [--hosts 8,4,16,2]
    python benchmarks/gpu --check                    what is missing, a line each
    python benchmarks/gpu --read gpu.json            the figures of a file of results

Each host is a rank on the same GPU, whose bytes go over the lab's wires (racks at
4:1). For each number of hosts: a probe, then jobs with NCCL's ring, with the shim, the
tuner, its tree, and as it chooses itself; sizes of nccl-tests in the order given, three
random ones and ours; bytes between hosts against the schedule, predictions against
times, steps of DDP and FSDP, and what collectives promise, with and without the shim.
The file is written anew after each part, the most important ones first: what is cut off
keeps what it had. ``--backend gloo`` runs all of it on Gloo, without a GPU: a trial of
this script. What was found on an H100 is in the folder ``results``.

On a bare machine with a GPU and no network, one call does it, in at most 9 minutes: see
carried.sh beside this file. Its python3 needs torch, numpy, scipy, networkx and psutil.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from figures import figures, recorded, told
from jobs import VARIANTS, Variant, run
from machine import commit, missing, mps, versions, without_mps

import cloudcoll
from cloudcoll import lab as labs
from cloudcoll.collectives import build_schedule
from cloudcoll.errors import CloudcollError
from cloudcoll.libraries import select
from cloudcoll.libraries.nccl import CHOICES, read_choices
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model import problem_of

LAB = "gpu"
RACKS = {2: (1, 1), 4: (2, 2), 8: (4, 4), 16: (4, 4, 4, 4)}
OVERSUBSCRIBED = 4
SIZES = tuple(8**power for power in range(1, 9))
"""nccl-tests' default range, in larger steps: 8 bytes to 16 MiB."""
START_S = 45.0
"""That ranks may take to start, besides what a job does."""
MORE_S = 90.0
"""The same for bytes, steps and checks, where there are any."""
LEAST_S = 25.0
"""Left over, for another part to be begun."""
STEPS = 8
SCHEDULES = {"ring": "nccl_ring", "shim": "nccl_ring", "tree": "nccl_tree"}
"""Variant -> what its allreduces are predicted by; Gloo's are rings, whatever it is."""


class Findings:
    """The file of results, whole whenever it is looked at."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path = path
        self.found: dict[str, Any] = {**facts, "parts": [], "left_out": []}
        self.write()

    def add(self, key: str, value: object) -> None:
        """Append to one of the lists, and write all."""
        self.found[key].append(value)
        self.write()

    def write(self) -> None:
        """Put the file in place of the last one."""
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text(json.dumps(self.found, indent=1) + "\n")
        os.replace(partial, self.path)


def orders_of(
    snapshot: NetworkSnapshot, hosts: list[str], library: str
) -> dict[str, list[str]]:
    """Return hosts as given, in random orders, and in ours for a large allreduce."""
    best = cloudcoll.order_for(snapshot, library=library, size=SIZES[-1])
    generator = np.random.default_rng(1)
    random = {
        f"random-{number}": [hosts[0], *generator.permutation(hosts[1:]).tolist()]
        for number in (1, 2, 3)
    }
    return {"cloudcoll": list(best.order), "given": hosts, **random}


def predicted(
    snapshot: NetworkSnapshot, algorithm: str, size: int, order: list[str]
) -> float:
    """Return seconds of an allreduce."""
    schedule = build_schedule("allreduce", algorithm, len(order), size)
    return problem_of(snapshot, schedule, dict.fromkeys(order, 1)).seconds(order)


def timed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the median of each operation, size and order."""
    found: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in rows:
        if "time_us" in row:
            found.setdefault((row["op"], row["bytes"], row["order"]), []).append(row)
    return [
        {
            "op": op,
            "bytes": size,
            "order": order,
            "seconds": statistics.median(one["time_us"] for one in all_) * 1e-6,
            "repeats": len(all_),
            "wrong": sum(one["wrong"] for one in all_),
        }
        for (op, size, order), all_ in found.items()
    ]


def off_schedule(
    row: dict[str, Any], algorithm: str, members: list[int]
) -> tuple[float, float]:
    """Return how far bytes are off what a schedule says: each host's, and all.

    Shares of what the host that is farthest off should send, and of all bytes.
    """
    ranks = len(members)
    pairs = build_schedule("allreduce", algorithm, ranks, row["bytes"]).pair_bytes()
    planned = np.zeros((ranks, ranks))
    planned[np.ix_(members, members)] = pairs
    sent = np.array(row["sent"])
    hosts = np.abs(sent.sum(axis=1) / planned.sum(axis=1) - 1)
    return float(hosts.max()), float(np.abs(sent - planned).sum() / planned.sum())


class Cluster:
    """A lab that is up, what was probed of it, and the jobs in it."""

    def __init__(self, lab: labs.Lab, options: argparse.Namespace, nccl: str) -> None:
        self.lab, self.options, self.nccl = lab, options, nccl
        self.hosts = [host.name for host in lab.hosts]
        self.snapshot = cloudcoll.measure(lab.hosts, via="lab", lab=LAB, mode="quick")
        self.library = "gloo" if options.backend == "gloo" else f"nccl@{nccl}"
        self.orders = orders_of(self.snapshot, self.hosts, self.library)

    def part(self, variant: Variant, clients: dict[str, str], left: float) -> Any:
        """Run the job of a variant; return what it found."""
        begun, sizes = time.monotonic(), list(self.options.sizes)
        chosen = {name: self.orders[name] for name in variant.orders}
        places = {n: [self.hosts.index(h) for h in o] for n, o in chosen.items()}
        box = min(self.options.box, left / 4)
        timed_ops = {"allreduce": {"sizes": sizes, "seconds": box}}
        if variant.name == "ring":
            rest = {"sizes": sizes[-1:], "seconds": box / 3}
            timed_ops |= {"allgather": rest, "reduce_scatter": rest}
        job = {
            "orders": places,
            "timed": timed_ops,
            "pairs": variant.name == "ring",
            "counted": sizes[-1] if variant.name in SCHEDULES else 0,
            "checks": variant.whole,
            "steps": STEPS * variant.whole,
            "stepped": [name for name in ("cloudcoll", "given") if name in places],
        }
        log = Path(os.environ["CLOUDCOLL_HOME"]) / f"choices-{variant.name}"
        log.unlink(missing_ok=True)
        environment = variant.environment(self.orders["cloudcoll"], self.nccl, log)
        ended = run(
            self.lab,
            self.options.backend,
            job,
            environment | clients,
            min(left, 3 * box + START_S + MORE_S * variant.whole),
            on_mps=bool(clients),
        )
        return {
            "hosts": len(self.hosts),
            "variant": variant.name,
            "racks": self.lab.groups,
            "orders": chosen,
            "mps": bool(clients),
            "environment": environment,
            "problem": ended.problem,
            "said": ended.said,
            "choices": [one._asdict() for one in read_choices(log)]
            if log.exists()
            else [],
            "times": self._with_predictions(variant, timed(ended.rows), log),
            "bytes": self._bytes(variant, places, ended.rows),
            "wall_s": time.monotonic() - begun,
            **{
                key: [row for row in ended.rows if key in row]
                for key in ("library", "pairs", "step", "check", "trouble", "spared")
            },
        }

    def algorithm(
        self, variant: Variant, size: int = 0, log: Path | None = None
    ) -> str:
        """Return the schedule of a variant's allreduces, empty where not known."""
        if self.options.backend == "gloo":
            return "gloo_ring"
        if log and log.exists():
            settings = {CHOICES: str(log)}
            ranks = len(self.hosts)
            return select(
                self.library, "allreduce", ranks, size, settings=settings
            ).algorithm
        return SCHEDULES.get(variant.name, "")

    def _with_predictions(
        self, variant: Variant, rows: list[dict[str, Any]], log: Path
    ) -> list[dict[str, Any]]:
        # The shim runs what is given in our order.
        shimmed = variant.shim and self.options.backend == "nccl"
        for row in rows:
            order = self.orders["cloudcoll" if shimmed else row["order"]]
            size = max(row["bytes"], 4)
            algorithm = self.algorithm(variant, size, log)
            if algorithm and row["op"] == "allreduce":
                row["algorithm"] = algorithm
                row["predicted"] = predicted(self.snapshot, algorithm, size, order)
        return rows

    def _bytes(
        self, variant: Variant, places: dict[str, list[int]], rows: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        found = []
        for row in rows:
            if "sent" in row:
                shimmed = variant.shim and self.options.backend == "nccl"
                ours = [self.hosts.index(name) for name in self.orders["cloudcoll"]]
                members = ours if shimmed else places[row["order"]]
                off = off_schedule(row, self.algorithm(variant), members)
                row |= {"host_off": off[0], "pairs_off": off[1]}
                found.append(row)
        return found


def everything(
    options: argparse.Namespace, found: dict[str, Any], findings: Findings, until: float
) -> None:
    """Run all parts that there is time for."""
    nccl = found.get("nccl", "2.27")
    for number in options.hosts:
        if until - time.monotonic() < LEAST_S:
            findings.add("left_out", f"{number} hosts: no time was left")
            continue
        nic, racks = options.nic, RACKS[number]
        uplink = nic * racks[0] / OVERSUBSCRIBED if racks[0] > 1 else nic
        spec = labs.quick(racks, nic, uplink, 500e-6, seed=3, preset="tuned")
        lab = labs.up(spec, LAB)
        try:
            cluster = Cluster(lab, options, nccl)
            for variant in VARIANTS:
                if options.only and variant.name not in options.only:
                    continue
                name = f"{number} hosts, {variant.name}"
                # A server whose clients were killed serves no others for a while.
                with mps(lab, Path(os.environ["CLOUDCOLL_HOME"])) as clients:
                    left = until - time.monotonic()
                    if left < LEAST_S:
                        findings.add("left_out", f"{name}: no time was left")
                        continue
                    part = cluster.part(variant, clients, left)
                findings.add("parts", part | {"largest": options.sizes[-1]})
                print(f"{name}: {part['problem'] or 'done'}", flush=True)
        except CloudcollError as error:
            findings.add("left_out", f"{number} hosts: {error}")
        finally:
            labs.down(LAB)


def parsed(argv: list[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def several(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--hosts", type=several, default=[8, 4, 16, 2])
    parser.add_argument("--sizes", type=several, default=list(SIZES), help="bytes")
    parser.add_argument("--only", type=lambda text: text.split(","), help="variants")
    parser.add_argument(
        "--nic", type=labs.parse_rate, default="1gbit", help="rate of each card"
    )
    parser.add_argument("--seconds", type=float, default=520.0, help="for all")
    parser.add_argument("--box", type=float, default=12.0, help="to time a variant")
    parser.add_argument("--output", type=Path, default=Path("gpu.json"))
    parser.add_argument("--check", action="store_true", help="only say what is missing")
    parser.add_argument("--read", type=Path, nargs="+", help="results, for the record")
    parser.add_argument("--json", type=Path, help="with --read: append figures to it")
    options = parser.parse_args(argv)
    for number in options.hosts:
        if number not in RACKS:
            parser.error(f"{number} hosts (known: {', '.join(map(str, RACKS))})")
    return options


def read(options: argparse.Namespace) -> int:
    """Print the figures of files of results; append them for the record."""
    for row in recorded(options.read):
        print(told(row))
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return 0


def main() -> int:
    """Check, run, and say what was reached."""
    options, begun = parsed(), time.monotonic()
    if options.read:
        return read(options)
    found = versions()
    lacking = list(missing(options.backend, found))
    for line in lacking:
        print(f"gpu: {line}", file=sys.stderr)
    if options.backend == "nccl" and (note := without_mps()):
        print(f"gpu: {note}", file=sys.stderr)
    if lacking or options.check:
        return int(bool(lacking))
    facts = {
        "cloudcoll": cloudcoll.__version__,
        "commit": commit(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{found.get('gpu', 'no GPU')}, {found['cores']} cores",
        "backend": options.backend,
        "nic_bytes_per_s": options.nic,
        "versions": found,
    }
    findings = Findings(options.output, facts)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        everything(options, found, findings, begun + options.seconds)
    rows = findings.found["figures"] = list(figures(findings.found["parts"]))
    findings.found["wall_s"] = time.monotonic() - begun
    findings.write()
    print(*map(told, rows), sep="\n")
    problems = [part["problem"] for part in findings.found["parts"] if part["problem"]]
    return int(bool(problems or not findings.found["parts"]))


if __name__ == "__main__":
    sys.exit(main())
