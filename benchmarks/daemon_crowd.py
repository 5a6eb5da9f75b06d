"""A daemon and a thousand agents, a day of its clock in minutes.

The daemon is the real one, its clock apart, which jumps to what is due next: its
state, its store, its files, its driver, with real frames over pipes. The agents are
threads of one other process (`crowd`), behind these pipes: no host, card or ssh is
in it, and bytes on cards are what rounds would carry. A tenth of the hosts flap: in
each cycle others are away, which refuse, go after their first frame, or die in the
midst of a probe. With ``--from-first`` so in the first probe, so that hosts that
return make the daemon look at all of them. Prints the daemon's CPU, memory and
descriptors over time, how evenly its hosts are at work, and what their cards send:

    python -m benchmarks.daemon_crowd --hours 6 --away 0.1     # 1000 hosts
    python -m benchmarks.daemon_crowd --hours 3      # nobody flaps
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.daemon import cpu_seconds, simulated, turns  # finds `simulated`
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.daemon.service import Daemon
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.verdict import map_large
from cloudcoll.hosts import Host
from cloudcoll.measured.synth import racks
from cloudcoll.probe.agents import Start
from cloudcoll.probe.shell import Agented
from cloudcoll.probe.transport import Conduct
from cloudcoll.resident import Carrier

if TYPE_CHECKING:
    from simulated import Clock

NIC = 1.25e9
EVERY = 600.0
WINDOW_S = 15.0
FATES = ("connect", "prepare", "go")
"""How a host is away: the last that it takes part in."""


class Crowd(Agented):
    """Agents that all live in one process.

    Attributes
    ----------
    fates : dict of str to str
        Of hosts that are away.
    at_work : Counter
        Hosts of beats, by window of the clock.
    """

    name = "crowd"

    def __init__(self, groups: int, size: int, clock: Clock, report: Path) -> None:
        self.fabric = racks([size] * groups, nic=NIC, uplink=10 * NIC, seed=1)
        words = (groups, size, NIC, 10 * NIC, 0.05, report)
        program = Path(__file__).with_name("crowd.py")
        self.carrier = Carrier([sys.executable, str(program), *map(str, words)])
        self.fates: dict[str, str] = {}
        self.at_work: Counter[int] = Counter()
        self._clock = clock

    def available(self) -> None:
        """Return None: it works everywhere."""

    def describe(self, hosts: tuple[Host, ...], conduct: Conduct) -> list[str]:
        """Return nothing: nothing is started."""
        return []

    @contextlib.contextmanager
    def starts(self, hosts: tuple[Host, ...]) -> Iterator[list[tuple[str, Start]]]:
        """Yield what hands each host over with its fate."""
        if len(hosts) < len(self.fabric.hosts):
            self.at_work[int(self._clock.now // WINDOW_S)] += len(hosts)
        yield [
            (one.name, partial(self.carrier.start, one.name, self._fate(one)))
            for one in hosts
        ]

    def _fate(self, host: Host) -> str:
        return self.fates.get(host.name, "")


class Watch:
    """What the daemon's process uses, hour by hour."""

    def __init__(self, crowd: Crowd) -> None:
        self._me, self._crowd = psutil.Process(), crowd
        self.rows: list[tuple[float, float, int]] = []
        self.most = 0.0
        self.counts: Mapping[str, int] = {}
        print("hour  CPU of a core  RSS [MB]  most", end="  ")
        print("descriptors  probes  failed  new orders")

    def note(self, hour: int, daemon: Daemon) -> None:
        """Print a row."""
        info = self._me.memory_info()
        row = (cpu_seconds(), info.rss / 1e6, self._me.num_fds())
        used = row[0] - self.rows[-1][0] if self.rows else row[0]
        self.rows.append(row)
        counts = self.counts = daemon.view().counts
        most = most_mb()
        self.most = max(self.most, most)
        print(
            f"{hour:4} {used / 3600:14.3%} {row[1]:9.1f} {most:5.1f} {row[2]:12} "
            f"{counts['probes']:7} {counts['failures']:7} {counts['maps'] - 1:11}",
            flush=True,
        )

    def total(self, seconds: float, report: Path) -> Iterator[Figure]:
        """Yield what came of it, all hours after the first together."""
        (begin, before, open_before), (end, after, open_after) = (
            self.rows[0],
            self.rows[-1],
        )
        hours = len(self.rows) - 1
        yield Figure("crowd: of a core", (end - begin) / (hours * 36), unit="%")
        yield Figure("crowd: memory after the first probe", before, unit="MB")
        yield Figure("crowd: memory at the end", after, unit="MB")
        yield Figure("crowd: memory at most", self.most, unit="MB")
        yield Figure("crowd: descriptors more", open_after - open_before)
        yield Figure("crowd: probes", self.counts["probes"])
        yield Figure("crowd: new orders", self.counts["maps"] - 1)
        beats = self._crowd.at_work.values()
        windows = seconds / WINDOW_S
        evenly = max(beats) / (sum(beats) / windows)
        yield Figure("crowd: hosts at work, peak over mean", evenly)
        sent = json.loads(report.read_text()).values()
        card = NIC * seconds
        mean = 100 * sum(sent) / len(sent) / card
        yield Figure("crowd: of a card's rate, mean host", mean, unit="%")
        most = 100 * max(sent) / card
        yield Figure("crowd: of a card's rate, busiest host", most, unit="%")


def most_mb() -> float:
    """Return the most memory that was resident since this was asked last, in MB."""
    told = Path("/proc/self/status").read_text().split()
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): forget the highest
    return int(told[told.index("VmHWM:") + 1]) * 1024 / 1e6


def run(
    groups: int, size: int, hours: int, away: float, *, from_first: bool
) -> Iterator[Figure]:
    """Yield what so many hours cost a daemon of ``groups * size`` hosts."""
    from simulated import Clock

    map_large()
    clock, source = Clock(), random.Random(0)
    most_mb()  # what imports took is gone
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        report = Path(home) / "sent.json"
        crowd = Crowd(groups, size, clock, report)
        store = Store(Path(home) / "history.db")
        names = sorted(crowd.fabric.hosts)
        with crowd.carrier:
            daemon = simulated(crowd, clock, store)
            watch = Watch(crowd)

            def flap() -> None:
                gone = source.sample(names, int(away * len(names)))
                crowd.fates = {name: source.choice(FATES) for name in gone}

            if from_first:
                flap()
            turns(daemon, clock, lambda: daemon.view().digest)
            watch.note(0, daemon)
            for hour in range(1, hours + 1):
                while clock.now < hour * 3600.0:
                    flap()
                    end = clock.now + EVERY
                    turns(daemon, clock, lambda end=end: clock.now >= end)
                watch.note(hour, daemon)
        store.close()
        yield from watch.total(clock.now, report)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--racks", type=int, default=50)
    parser.add_argument("--size", type=int, default=20, help="hosts of a rack")
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--away", type=float, default=0.0, help="share of the hosts")
    parser.add_argument(
        "--from-first", action="store_true", help="away in the first probe, too"
    )
    json_option(parser)
    options = parser.parse_args()
    shape = options.racks, options.size, options.hours
    figures = run(*shape, options.away, from_first=options.from_first)
    write_figures(figures, options.json)


if __name__ == "__main__":
    main()
