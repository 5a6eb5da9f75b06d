"""What a simulated day with a tenth of the hosts away leaves behind of a daemon.

python benchmarks/daemon_faults.py
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

import psutil
from daemon import DAY, NIC, Timed, simulated, turns
from simulated import Clock

from cloudcoll.daemon.store import Store
from cloudcoll.fabric.synth import racks


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


if __name__ == "__main__":
    show_soak()
