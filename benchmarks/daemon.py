"""What the daemon costs, how soon it finds a change, and how often one that is none.

    python -m benchmarks.daemon noise    # 30 simulated days without any change
    python -m benchmarks.daemon drift    # labs: an uplink falls to a quarter
    python -m benchmarks.daemon scale    # what 1000 hosts cost
    python -m benchmarks.daemon spread   # beats of 1000 hosts over time

``drift`` wants a quiet machine: its two cores carry 16 hosts. The daemon is as it
is without any option. ``scale`` drives 64 real agents on this machine for what an
agent costs the daemon, and 1000 planted hosts for all the rest.
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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from simulated import Clock, Planted

from benchmarks.record import ROOT, Figure, json_option, median_of, write_figures
from cloudcoll import lab as labs
from cloudcoll.collectives import build_schedule
from cloudcoll.daemon import Settings
from cloudcoll.daemon.beats import cycle, shortened
from cloudcoll.daemon.changes import groups_of
from cloudcoll.daemon.keeper import Keeper
from cloudcoll.daemon.service import Around, Daemon
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.verdict import OrderQuestion
from cloudcoll.hosts import Host
from cloudcoll.lab.faults import LinkFault, apply
from cloudcoll.local_daemon import ask
from cloudcoll.measured.snapshot import NetworkSnapshot, parse_snapshot
from cloudcoll.measured.synth import racks
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.probe import Conduct, ProbePlan, plan_probes, run_probe
from cloudcoll.probe.shell import Local
from cloudcoll.rankmap import RankMap

DAY = 86400.0
NIC = 50e6
NIC_OF_LAB = 12.5e6
LAB = "daemon"


class Timed(Planted):
    """A planted network that knows what it takes itself."""

    seconds = 0.0
    met = 0

    def measure(
        self, hosts: tuple[Host, ...], plan: ProbePlan, conduct: Conduct
    ) -> NetworkSnapshot:
        """Return what the plan measures; its CPU seconds are in `seconds`."""
        begin = time.process_time()
        self.met += len(hosts)
        try:
            return super().measure(hosts, plan, conduct)
        finally:
            self.seconds += time.process_time() - begin


def simulated(network: Planted, clock: Clock, store: Store) -> Daemon:
    """Return a daemon of a planted network."""
    hosts = tuple(Host(name) for name in sorted(network.fabric.hosts))

    def questions(hosts: tuple[Host, ...]) -> tuple[OrderQuestion, ...]:
        names = tuple(host.name for host in hosts)
        sent = build_schedule("allreduce", "rabenseifner", len(names), 1 << 24)
        return (OrderQuestion("mine", sent, names, (1,) * len(names)),)

    def plan(hosts: tuple[Host, ...], seed: int) -> ProbePlan:
        return network.plan(hosts, "quick", seed, None)

    around = Around(lambda: hosts, frozenset, lambda line: None, clock, clock)
    return Daemon(Keeper(network, plan, questions), around, Settings(), store, seed=1)


def show_noise(days: float, noises: Sequence[float]) -> Iterator[Figure]:
    """Yield what changes are found where there is none, by the size of the noise."""
    for noise in noises:
        for sizes in ((4, 4, 4, 4), (5, 3, 6, 2)):
            clock = Clock()
            with tempfile.TemporaryDirectory() as home:
                os.environ["CLOUDCOLL_HOME"] = home
                store = Store(Path(home) / "history.db")
                fabric = racks(sizes, nic=NIC, uplink=2 * NIC, seed=1)
                daemon = simulated(Planted(fabric, noise), clock, store)
                renewed = Counter[str]()
                while clock.now < days * DAY:
                    clock.now += max(daemon.turn(), 1e-3)
                    renewed[daemon.view().digest] += 1
                store.close()
            counts = daemon.view().counts
            racks_ = ",".join(map(str, sizes))
            what = f"{days:g} simulated days, racks {racks_}, noise {noise:.0%}"
            yield Figure(f"{what}: new orders", counts["maps"] - 1)
            yield Figure(f"{what}: figures renewed", len(renewed) - 1)
            yield Figure(f"{what}: probes", counts["probes"])


def show_spread() -> None:
    """Print how evenly the beats of 1000 hosts are spread, by hosts at work."""
    fabric = racks([20] * 50, seed=1)
    hosts = Counter[int]()
    for number in range(100):
        for beat in cycle(groups_of(fabric), 600.0 * number, 600.0, 1000 * number):
            hosts[int(beat.due // 15)] += len(beat.hosts)
    mean = sum(hosts.values()) / (100 * 600 / 15)
    print(
        f"1000 hosts, 15 s at a time: peak over mean {max(hosts.values()) / mean:.2f}"
    )


def show_scale() -> None:
    """Print what a daemon of 1000 hosts costs: CPU, memory, a new order."""
    each = agent_seconds()
    print(f"CPU of the daemon for an agent in a beat: {each * 1e3:.2f} ms")
    clock = Clock()
    fabric = racks([20] * 50, nic=NIC, uplink=10 * NIC, seed=1)
    network = Timed(fabric, 0.05)
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        store = Store(Path(home) / "history.db")
        daemon = simulated(network, clock, store)
        first = turns(daemon, clock, lambda: daemon.view().digest)
        print(f"first order: {first - network.seconds:.1f} s of CPU")
        met, own = network.met, network.seconds
        rest = turns(daemon, clock, lambda: clock.now >= 3600.0)
        rest -= network.seconds - own
        agents = each * (network.met - met)
        print(
            f"of a core, all beats of an hour: {(rest + agents) / 3600:.2%}, "
            f"{agents / 3600:.2%} of it for agents"
        )
        show_memory()
        own = network.seconds
        network.fabric = degraded(fabric)
        digest = daemon.view().digest
        again = turns(daemon, clock, lambda: daemon.view().digest != digest)
        again -= network.seconds - own
        print(f"from a change to figures and orders that know it: {again:.1f} s of CPU")
        store.close()


def turns(daemon: Daemon, clock: Clock, done: Callable[[], object]) -> float:
    """Let time pass until `done`; return the CPU seconds that took."""
    begin = cpu_seconds()
    while not done():
        clock.now += max(daemon.turn(), 1e-3)
    return cpu_seconds() - begin


def cpu_seconds() -> float:
    """Return what we have used, and what judged checks for us and has ended."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(who)[:2]) for who in both)


def degraded(fabric: Fabric) -> Fabric:
    """Return the fabric with a quarter of the first rack's uplink."""
    first = {*fabric.root.children[0].leaves()}
    return replace(fabric, root=fallen(fabric.root, first))


def agent_seconds() -> float:
    """Return CPU seconds that a real agent costs its driver in a beat."""
    hosts = tuple(Host(f"vm-{i}", "127.0.0.1") for i in range(64))
    whole = plan_probes(hosts, concurrency=2)
    plan = shortened(whole, 0)
    run_probe(hosts, plan, Local(), Conduct(force=True))
    begin = time.process_time()
    run_probe(hosts, plan, Local(), Conduct(force=True))
    return (time.process_time() - begin) / len(hosts)


DRIFTING = {
    "cloud": 0.0,
    "deep": 20e-6,
    "shallow": 200e-6,
    "packets": 0.0,
    "codel": 20e-6,
}
"""Presets of labs whose uplink falls, and the longer way between racks, seconds: all of
them are networks of the grid (`benchmarks.grid`)."""

SIZE = 16 << 20
"""Bytes of the daemon's own question."""

SOON = 60.0
"""Seconds within which another order is wanted."""


def show_drift() -> Iterator[Figure]:
    """Yield seconds from an uplink's fall to a quarter until another order."""
    rows = []
    for number, (preset, rtt) in enumerate(DRIFTING.items()):
        with tempfile.TemporaryDirectory() as home:
            os.environ["CLOUDCOLL_HOME"] = home
            os.environ.pop("CLOUDCOLL_LAB", None)
            spec = labs.quick(
                (4, 4, 4, 4),
                nic=NIC_OF_LAB,
                uplink=2 * NIC_OF_LAB,
                rtt=rtt,
                seed=number,
                preset=preset,
            )
            lab = labs.up(spec, LAB)
            try:
                rows.append(_drift(lab, preset))
            finally:
                labs.down(LAB)
    took, gains, used = zip(*rows, strict=True)
    what = "an uplink falls to a quarter"
    yield median_of(f"{what}: until another order is in force", took, "s")
    soon = sum(one <= SOON for one in took)
    yield Figure(f"{what}: within a minute", soon, unit=f"of {len(took)}")
    yield median_of(f"{what}: the order before over the best, predicted", gains, "x")
    share = [100 * one for one in used]
    yield median_of(f"{what}: of a card used before", share, "%")


def _drift(lab: labs.Lab, preset: str) -> tuple[float, float, float]:
    """Return how long one change takes, what it gains, what share was used before.

    Where no other order comes, it takes `LONGEST`.
    """
    socket = lab.directory / "results" / "daemon.sock"
    argv = [sys.executable, "-m", "cloudcoll.cli", "daemon", "--lab", LAB]
    argv += ["--algorithm", "rabenseifner"]
    with subprocess.Popen(argv, cwd=ROOT) as daemon:
        try:
            _until(lambda: status(socket).get("counts", {}).get("maps"), 90)
            before, since = sent(lab), time.monotonic()
            _until(lambda: status(socket)["counts"]["probes"] > BEATS, 180)
            used = (sent(lab) - before) / (time.monotonic() - since) / NIC_OF_LAB
            maps = status(socket)["counts"]["maps"]
            uplink, gains = _worst_fall(lab, socket)
            begin = time.monotonic()
            apply(lab, uplink, LinkFault(rate=uplink.up / 4))
            _comes(lambda: status(socket)["counts"]["maps"] > maps, LONGEST)
            took = time.monotonic() - begin
        finally:
            daemon.terminate()
            daemon.wait(20)
    print(
        f"{preset:8} {uplink.name:10} {took:20.1f} {gains:20.2f} "
        f"(before: {maps - 1} new orders, {used:.3%} of a card)",
        flush=True,
    )
    return took, gains, used


BEATS = 16
"""Probes before the fall: that of all hosts, and some of each rack."""


def _worst_fall(lab: labs.Lab, socket: Path) -> tuple[labs.Link, float]:
    """Return the uplink at a quarter of which another order gains most, and how much.

    By the daemon's own fabric and order.
    """
    snapshot = parse_snapshot(told(socket, "/v1/snapshot"), "the daemon's snapshot")
    order = RankMap.from_json(told(socket, "/v1/map").decode())
    names = tuple(host.name for host in lab.hosts)
    sent = build_schedule("allreduce", "rabenseifner", len(names), SIZE)
    question = OrderQuestion("", sent, names, (1,) * len(names))
    falls = []
    uplinks = [link for link in lab.links if not link.host]
    for uplink, rack in zip(uplinks, lab.groups, strict=True):
        root = fallen(snapshot.fabric.root, {*rack})
        found = question.found(snapshot.with_fabric(Fabric(root)), order)
        falls.append((1.0 / (1.0 - found.gain), uplink))
    gains, uplink = max(falls, key=itemgetter(0))
    return uplink, gains


def fallen(root: Node, rack: set[str]) -> Node:
    """Return the tree with a quarter of the uplink of the group most like a rack."""
    group = max(root.children, key=lambda one: len(rack.intersection(one.leaves())))
    rates = {
        f"{way}_bytes_per_s": getattr(group, f"{way}_bytes_per_s") / 4
        for way in ("uplink", "downlink")
    }
    others = [one for one in root.children if one is not group]
    return replace(root, children=(replace(group, **rates), *others))


def sent(lab: labs.Lab) -> float:
    """Return what a host's card has carried in the busier direction, in bytes."""
    total = Counter[str]()
    for host in lab.hosts:
        argv, env = labs.exec_argv(lab, host.name, ["cat", "/proc/net/dev"])
        told = subprocess.run(argv, env=env, check=True, capture_output=True, text=True)
        words = told.stdout.split("eth0:")[1].split()
        total.update({"in": int(words[0]), "out": int(words[8])})
    return max(total.values()) / len(lab.hosts)


def status(socket: Path) -> dict[str, Any]:
    """Return what the daemon says, nothing where it does not answer."""
    answer = ask(socket, "/v1/status", 5.0)
    return json.loads(answer[1]) if answer else {}


def told(socket: Path, path: str) -> bytes:
    """Return what a daemon answers, or end the script."""
    answer = ask(socket, path, 5.0)
    if not answer or answer[0] != 200:
        raise SystemExit(f"the daemon has no {path}: {answer}")
    return answer[1]


LONGEST = 240.0
"""Seconds after which another order is no longer waited for."""


def _until(done: Callable[[], object], seconds: float) -> None:
    """Return when something is so; end the script if it is not in so many seconds."""
    if not _comes(done, seconds):
        raise SystemExit(f"nothing within {seconds:g} s")


def _comes(done: Callable[[], object], seconds: float) -> bool:
    """Return whether something is so within so many seconds."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def show_memory() -> None:
    """Print the most memory that this process had."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"most memory: {most / 1024:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("noise", "drift", "scale", "spread"))
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.02, 0.1, 0.3])
    json_option(parser)
    options = parser.parse_args()
    match options.what:
        case "noise":
            write_figures(show_noise(options.days, options.noise), options.json)
        case "drift":
            write_figures(show_drift(), options.json)
        case "scale":
            show_scale()
        case "spread":
            show_spread()
    show_memory()


if __name__ == "__main__":
    main()
