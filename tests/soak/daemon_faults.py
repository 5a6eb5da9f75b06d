"""What a day of flapping hosts leaves behind of a daemon, and what a second one does.

    python tests/soak/daemon_faults.py soak     # a simulated day, a tenth away
    python tests/soak/daemon_faults.py second   # seconds until it is refused

``second`` also kills the first: seconds until the next one answers, which finds
what the killed one left. Ends in 1 if anything but that refusal was said.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

# mypy takes the folder tests/daemon for it.
from daemon import DAY, NIC, Timed, simulated, turns  # type: ignore[attr-defined]
from simulated import Clock

from cloudcoll.daemon.store import Store
from cloudcoll.measured.synth import racks


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


def show_second(runs: int) -> int:
    """Print how long a refusal and a new start take; return how often one was wrong."""
    refused, again, wrong = [], [], 0
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        hosts = Path(home) / "hosts"
        hosts.write_text("127.0.9.1\n127.0.9.2\n")
        argv = [sys.executable, "-m", "cloudcoll.cli", "daemon", "--via", "local"]
        argv += ["--hostfile", str(hosts)]
        first, _ = _answering(argv)
        for _ in range(runs):
            begin = time.perf_counter()
            second = subprocess.run(argv, capture_output=True, text=True, check=False)
            refused.append(time.perf_counter() - begin)
            named = f"belongs to a running daemon: process {first.pid} on"
            wrong += second.returncode != 3 or named not in second.stderr
            _end(first)
            first, seconds = _answering(argv)
            again.append(seconds)
        _end(first)
    print(
        f"{runs} times: the second is refused after {max(refused):.2f} s at most; "
        f"after SIGKILL the next answers after {max(again):.2f} s; {wrong} wrong"
    )
    return wrong


def _answering(argv: list[str]) -> tuple[subprocess.Popen[str], float]:
    """Return a daemon that answers, and the seconds that took."""
    begin = time.perf_counter()
    daemon = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert daemon.stderr is not None
    assert "answers at" in daemon.stderr.readline()
    return daemon, time.perf_counter() - begin


def _end(daemon: subprocess.Popen[str]) -> None:
    daemon.send_signal(signal.SIGKILL)
    daemon.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("soak", "second"))
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    if options.what == "second":
        return int(show_second(options.runs) > 0)
    show_soak()
    return 0


if __name__ == "__main__":
    sys.exit(main())
