"""What a daemon of 1000 hosts takes by itself: memory, and a re-solve's time.

    python -m benchmarks.daemon_memory [--racks 50x20]

The network is planted in another process, which answers probes as agents would;
what is printed is the daemon's own process, and apart from it the largest of the
processes that work out its orders. Probes take no time here: what they would take
is in the last column, with pauses between them. Driving real agents is not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import IO

# Also in the process of the network, which is started by this file's path.
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.collectives import build_schedule
from cloudcoll.daemon import Settings
from cloudcoll.daemon.keeper import Keeper
from cloudcoll.daemon.responses import answer
from cloudcoll.daemon.service import Around, Daemon
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.verdict import OrderQuestion, map_large
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot, parse_snapshot
from cloudcoll.probe import Conduct, ProbePlan, plan_probes

NIC = 50e6
NOISE = 0.05


class Elsewhere:
    """A transport to hosts that another process plays."""

    name = "elsewhere"

    def __init__(self, racks: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--racks", racks, "--network"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdin
        assert self.process.stdout
        self._ask, self._told = self.process.stdin, self.process.stdout
        self.degraded, self.seconds = False, 0.0

    def measure(
        self, hosts: tuple[Host, ...], plan: ProbePlan, conduct: Conduct
    ) -> NetworkSnapshot:
        """Return what the plan measures of these hosts."""
        self.seconds += plan.most_seconds
        names = [host.name for host in hosts]
        asked = {"names": names, "plan": asdict(plan), "degraded": self.degraded}
        self._ask.write(json.dumps(asked).encode() + b"\n")
        self._ask.flush()
        size = int(self._told.readline())
        return parse_snapshot(self._told.read(size), "the network")


def play(racks: str, asked: IO[bytes], told: IO[bytes]) -> None:
    """Answer probes from a planted fabric until stdin ends."""
    from simulated import Planted

    from cloudcoll.measured import synth

    count, size = map(int, racks.split("x"))
    fabric = synth.racks([size] * count, nic=NIC, uplink=size / 2 * NIC, seed=1)
    first, *others = fabric.root.children
    rate = first.uplink_bytes_per_s / 4
    first = replace(first, uplink_bytes_per_s=rate, downlink_bytes_per_s=rate)
    root = replace(fabric.root, children=(first, *others))
    network, slow = Planted(fabric, NOISE), Planted(replace(fabric, root=root), NOISE)
    for line in asked:
        one = json.loads(line)
        one["plan"]["passes"] = tuple(map(tuple, one["plan"]["passes"]))
        plan, hosts = ProbePlan(**one["plan"]), tuple(map(Host, one["names"]))
        data = (slow if one["degraded"] else network).measure(hosts, plan, Conduct())
        stored = data.to_bytes()
        told.write(b"%d\n" % len(stored) + stored)
        told.flush()


class Watched:
    """A daemon whose clock jumps to what is due, and what its process takes."""

    def __init__(self, network: Elsewhere, hosts: int, store: Store) -> None:
        width = len(str(hosts))
        members = tuple(Host(f"vm-{i:0{width}d}") for i in range(1, hosts + 1))
        self.network, self.now = network, 0.0
        self.figures: list[Figure] = []

        def questions(hosts: tuple[Host, ...]) -> tuple[OrderQuestion, ...]:
            names = tuple(host.name for host in hosts)
            sent = build_schedule("allreduce", "rabenseifner", len(names), 1 << 24)
            return (OrderQuestion("mine", sent, names, (1,) * len(names)),)

        def plan(hosts: tuple[Host, ...], seed: int) -> ProbePlan:
            return plan_probes(hosts, seed=seed)

        def clock() -> float:
            return self.now

        around = Around(lambda: members, frozenset, lambda line: None, clock, clock)
        keeper = Keeper(network, plan, questions)  # type: ignore[arg-type]
        self.daemon = Daemon(keeper, around, Settings(), store, seed=1)

    def until(self, what: str, done: Callable[[], object]) -> None:
        """Let time pass until `done`; print and keep what that took."""
        Path("/proc/self/clear_refs").write_text("5")  # forget the highest so far
        begin, own, others = time.monotonic(), _cpu(False), _cpu(True)
        elsewhere = self.network.seconds + self.now
        while not done():
            self.now += max(self.daemon.turn(), 1e-3)
        status = Path("/proc/self/status").read_text().split()
        most, now = (int(status[status.index(f"Vm{n}:") + 1]) for n in ("HWM", "RSS"))
        child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.figures += [
            Figure(f"{what}: memory at most", most >> 10, unit="MiB"),
            Figure(f"{what}: memory after it", now >> 10, unit="MiB"),
            Figure(f"{what}: memory of what judges", child >> 10, unit="MiB"),
            Figure(f"{what}: CPU, the daemon's", _cpu(False) - own, unit="s"),
            Figure(f"{what}: CPU, the others'", _cpu(True) - others, unit="s"),
        ]
        print(
            f"{what:32} {most >> 10:4} {now >> 10:4} {child >> 10:6}   "
            f"{_cpu(False) - own:5.1f} {_cpu(True) - others:6.1f} "
            f"{time.monotonic() - begin:6.1f} "
            f"{self.network.seconds + self.now - elsewhere:8.1f}",
            flush=True,
        )


def _cpu(children: bool) -> float:
    """Return CPU seconds of this process, or of those it started that ended."""
    who = resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def show(racks: str) -> list[Figure]:
    """Print and return memory and time of a first order, of beats and of a re-solve."""
    count, size = map(int, racks.split("x"))
    map_large()
    network = Elsewhere(racks)
    print(f"{'':32}  MiB: most, now, child   CPU s: own, child; s  probes, pauses s")
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        store = Store(Path(home) / "history.db")
        watched = Watched(network, count * size, store)
        daemon = watched.daemon
        watched.until("start", lambda: True)
        watched.until("first order", lambda: daemon.view().digest)
        watched.until("ten minutes of beats", lambda: watched.now >= 600.0)
        network.degraded = True
        watched.until("an uplink falls: alarm", lambda: daemon.view().phase != "calm")
        watched.until("checks, until in force", lambda: daemon.view().phase == "calm")
        for path in ("/metrics", "/v1/status", "/v1/map", "/"):
            watched.until(f"answering {path}", partial(answer, path, daemon.view()))
        store.close()
    told = daemon.view()
    print(
        f"groups seen: {len(told.groups)}; orders put in force: {told.counts['maps']}"
    )
    network.process.stdin.close()  # type: ignore[union-attr]
    network.process.wait(10)
    return watched.figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--racks", default="50x20")
    parser.add_argument("--network", action="store_true", help=argparse.SUPPRESS)
    json_option(parser)
    options = parser.parse_args()
    if options.network:
        play(options.racks, sys.stdin.buffer, sys.stdout.buffer)
    else:
        write_figures(show(options.racks), options.json)


if __name__ == "__main__":
    main()
