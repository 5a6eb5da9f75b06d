"""Time what ``cloudcoll run`` adds to a launcher with a fresh snapshot.

Brings up a lab of 16 hosts, probes it once, and starts a program that does
nothing with and without the prefix, interleaved. Wall time and the CPU time
of the processes outside the daemons, in seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from cloudcoll import lab as labs

RUNS = 15
NAME = "run-overhead"
ROOT = Path(__file__).parents[1]


def job(lab: labs.Lab, launcher: str) -> list[str]:
    """Return a command that starts a program on all hosts of the lab."""
    says = subprocess.run([launcher, "--version"], capture_output=True, text=True)
    if "Open" in says.stdout:
        return [launcher, "--hostfile", str(lab.hostfile), "sleep", "0.3"]
    option = "-f" if says.stdout.startswith("HYDRA") else "-machinefile"
    hosts = lab.directory / "machines"
    hosts.write_text("".join(f"{host.name}:1\n" for host in lab.hosts))
    return [launcher, option, str(hosts), "sleep", "0.3"]


def timed(lab: labs.Lab, argv: list[str]) -> tuple[float, float] | None:
    """Return wall and CPU seconds of one run, None if mpirun did not end.

    Open MPI 5.0.11 now and then waits for ever for programs that end at once.
    """
    command, env = labs.exec_argv(lab, labs.HEAD, argv)
    before, start = os.times(), time.perf_counter()
    process = subprocess.Popen(
        command,
        env=env,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait(timeout=30)
        return None
    if process.returncode:
        sys.exit(f"{argv[-5:]} ended with exit code {process.returncode}")
    after = os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    return time.perf_counter() - start, cpu


def main() -> None:
    """Print the medians and what the prefix adds to them."""
    parser = argparse.ArgumentParser(description=__doc__)
    beside = str(Path(sys.executable).with_name("mpirun"))
    parser.add_argument("--launcher", default=beside)
    launcher = parser.parse_args().launcher
    spec = labs.quick((4, 4, 4, 4), nic=50e6, uplink=50e6, rtt=200e-6, seed=1)
    with contextlib.ExitStack() as stack:
        lab = labs.up(spec, NAME)
        stack.callback(labs.down, NAME)
        bare = job(lab, launcher)
        prefix = [sys.executable, "-m", "cloudcoll.cli", "run"]
        first = timed(lab, [*prefix, *bare])
        print(f"first run, probe included: {first[0] if first else float('nan'):.2f} s")
        times: dict[str, list[tuple[float, float]]] = {"bare": [], "run": []}
        for _ in range(RUNS):
            for name, argv in (("bare", bare), ("run", [*prefix, *bare])):
                if result := timed(lab, argv):
                    times[name].append(result)
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in times.items()
    }
    print(f"{'seconds':>14} {'wall':>7} {'CPU':>7} {'runs':>5}")
    for name, (wall, cpu) in medians.items():
        print(f"{name:>14} {wall:7.3f} {cpu:7.3f} {len(times[name]):5d}")
    added = [a - b for a, b in zip(medians["run"], medians["bare"], strict=True)]
    print(f"{'added':>14} {added[0]:7.3f} {added[1]:7.3f}")


if __name__ == "__main__":
    main()
