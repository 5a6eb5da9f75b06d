"""What a daemon leaves behind: after a day of flapping hosts, and after SIGKILL.

    python benchmarks/daemon_faults.py soak     # a simulated day, a tenth away
    python benchmarks/daemon_faults.py kills    # at 500 moments of its writes

``kills`` ends in 1 if any file was neither the old one nor the new.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import psutil
from daemon import DAY, NIC, Timed, simulated, turns
from simulated import Clock

from cloudcoll.daemon.lock import held
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.view import Point
from cloudcoll.errors import CloudcollError
from cloudcoll.fabric.synth import observe, racks
from cloudcoll.rankmap import RankMap, load_rankmap
from cloudcoll.snapshot import NetworkSnapshot, load_snapshot


def show_soak() -> None:
    """Print what a simulated day with a tenth of the hosts flapping leaves behind."""
    clock, source = Clock(), random.Random(0)
    network = Timed(racks((16, 16, 16, 16), nic=NIC, uplink=8 * NIC, seed=1), 0.05)
    names = sorted(network.fabric.hosts)
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        store = Store(Path(home) / "history.db")
        daemon = simulated(network, clock, store)
        used = 0.0
        for hour in range(25):
            if hour == 1:  # all that is loaded once is there
                before = psutil.Process().memory_info().rss, _descriptors()
                used = time.process_time() - network.seconds
            for _ in range(6):
                network.down = set(source.sample(names, len(names) // 10))
                end = clock.now + 600.0
                turns(daemon, clock, lambda end=end: clock.now >= end)
        used = time.process_time() - network.seconds - used
        grown = psutil.Process().memory_info().rss - before[0]
        counts = daemon.view().counts
        store.close()
    print(
        f"24 h, 64 hosts, 6 of them away at a time: memory grew by {grown / 2**20:.1f} "
        f"MiB, descriptors by {_descriptors() + 1 - before[1]}, {used / DAY:.3%} of a "
        f"core, {counts['probes']} probes, {counts['failures']} failed, "
        f"{counts['maps'] - 1} new orders"
    )


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def show_kills(points: int) -> int:
    """Kill a writer of all files at random moments; return how often one was bad."""
    bad = 0
    source = random.Random(0)
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        for _ in range(points):
            writer = os.fork()
            if not writer:
                _write_for_ever(Path(home))
            time.sleep(source.uniform(0.0, 0.03))
            os.kill(writer, signal.SIGKILL)
            os.waitpid(writer, 0)
            bad += not _all_whole(Path(home))
    print(f"{points} kills while files were written: {bad} times one was not whole")
    return bad


def _snapshot(turn: int) -> NetworkSnapshot:
    fabric = racks((8, 8), seed=turn % 7)
    return replace(observe(fabric, samples=2, seed=turn % 7), fabric=fabric)


def _write_for_ever(home: Path) -> NoReturn:
    """Write snapshot, map, history and lock, again and again."""
    with held(home / "lock"):
        store = Store(home / "history.db")
        for turn in itertools.count():
            kept = _snapshot(turn).save(home / "a.snap")
            RankMap(kept.names, (1,) * 16, snapshot=kept.digest).save(home / "a.json")
            now = time.time()
            store.add(Point(now, f"{name}", now) for name in range(16))
    raise AssertionError("it counts for ever")


def _all_whole(home: Path) -> bool:
    """Return whether a daemon that starts now finds all as it should be."""
    try:
        with held(home / "lock"):
            if (home / "a.snap").exists():
                load_snapshot(home / "a.snap")
            if (home / "a.json").exists():
                load_rankmap(home / "a.json")
            store = Store(home / "history.db")
            times = Counter(point.time for point in store.since(0.0, 10**6))
            store.close()
    except CloudcollError as error:
        print(error)
        return False
    return set(times.values()) <= {16}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("soak", "kills"))
    parser.add_argument("--points", type=int, default=500)
    options = parser.parse_args()
    if options.what == "soak":
        show_soak()
    else:
        sys.exit(bool(show_kills(options.points)))


if __name__ == "__main__":
    main()
