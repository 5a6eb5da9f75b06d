"""Time what ``cloudcoll run`` adds to a launcher with a fresh snapshot.

Brings up a lab of 16 hosts, probes it once, and starts a program that does
nothing with and without the prefix, interleaved, by each ``--launcher``. Wall
time and the CPU time of the processes outside the daemons, in seconds; what the
prefix adds to a pair of runs with its 95 % interval. In a lab all ranks
share this machine, and with it what each does before its program.

``--tune`` times ``run --tune`` with a map that ``cloudcoll tune`` made by the model.

``--hosts N`` times the plan alone, of that many hosts in racks of 16, which
`cloudcoll run --dry-run` makes as a job's start does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.emulated import CLOUDCOLL
from benchmarks.record import ROOT, Figure, json_option, median_of, write_figures
from cloudcoll import lab as labs
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric, Node

RUNS = 15
NAME = "run-overhead"


def hosts_option(launcher: str) -> list[str]:
    """Return the option that takes a launcher's list of hosts."""
    says = subprocess.run([launcher, "--version"], capture_output=True, text=True)
    if "Open" in says.stdout:
        return ["--hostfile"]
    return ["-f" if says.stdout.startswith("HYDRA") else "-machinefile"]


def job(lab: labs.Lab, launcher: str) -> list[str]:
    """Return a command that starts a program on all hosts of the lab."""
    option = hosts_option(launcher)
    hosts = lab.hostfile
    if option != ["--hostfile"]:
        hosts = lab.directory / "machines"
        hosts.write_text("".join(f"{host.name}:1\n" for host in lab.hosts))
    return [launcher, *option, str(hosts), "sleep", "0.3"]


def timed(lab: labs.Lab, argv: list[str]) -> tuple[float, float] | None:
    """Return wall and CPU seconds of one run, None if mpirun did not end.

    Open MPI 5.0.11 now and then waits for ever for programs that end at once.
    """
    command, env = labs.exec_argv(lab, labs.HEAD, argv)
    # An installed package has its bytecode, whatever is usual here.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    before, start = children_cpu(), time.perf_counter()
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
    return time.perf_counter() - start, children_cpu() - before


def children_cpu() -> float:
    """Return the CPU seconds of all children that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def called(launcher: str) -> str:
    """Return what a launcher is, such as ``Open MPI 5`` or ``MPICH 4``."""
    says = subprocess.run([launcher, "--version"], capture_output=True, text=True)
    if found := re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)", says.stdout):
        return f"Open MPI {found[1]}"
    found = re.search(r"Version: +(\d+)", says.stdout)
    return f"MPICH {found[1]}" if found else Path(launcher).name


def plans(hosts: int, launcher: str) -> Iterator[Figure]:
    """Yield how long the plan for many hosts takes, its snapshot being there."""
    racks = [
        Node(
            f"r{rack}",
            tuple(
                Node(f"h{i}", (), 5e9, 5e9)
                for i in range(16 * rack, min(hosts, 16 * rack + 16))
            ),
            4e10,
            4e10,
        )
        for rack in range(-(-hosts // 16))
    ]
    names = [f"h{i}" for i in range(hosts)]
    random.Random(1).shuffle(names)
    fabric = Fabric(Node("core", tuple(racks)))
    snapshot = NetworkSnapshot(tuple(map(Host, names)), fabric=fabric)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hosts"
        option = hosts_option(launcher)
        slots = " slots=1" if option == ["--hostfile"] else ":1"
        path.write_text("".join(f"{name}{slots}\n" for name in names))
        snapshot.save(Path(folder) / "snap")
        run = [*CLOUDCOLL, "run", "--dry-run", "--snapshot"]
        argv = [*run, f"{folder}/snap", launcher, *option, str(path)]
        env = {**os.environ, "CLOUDCOLL_HOME": folder}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        rows = []
        for _ in range(RUNS + 1):
            before, start = children_cpu(), time.perf_counter()
            done = subprocess.run(
                [*argv, "true"], env=env, cwd=ROOT, capture_output=True, text=True
            )
            if done.returncode or "unchanged" in done.stderr:
                sys.exit(done.stderr)
            rows.append((time.perf_counter() - start, children_cpu() - before))
    first, *rest = rows
    print(f"{hosts} hosts, {launcher}: first {first[0]:.2f} s")
    for name, column in zip(("wall", "CPU"), zip(*rest, strict=True), strict=True):
        what = f"the plan of {hosts} hosts, {called(launcher)}: {name}"
        yield median_of(what, column, "s")


def tuned_map(lab: labs.Lab, bare: list[str]) -> Path:
    """Return the map that the model makes of a job, all of whose calls it tunes."""
    path = lab.directory / "tuned.json"
    tune = [*CLOUDCOLL, "tune", "--seconds", "0", "-o", str(path), *bare]
    command, env = labs.exec_argv(lab, labs.HEAD, tune)
    subprocess.run(command, env=env, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return path


def compare(lab: labs.Lab, launcher: str, tune: bool) -> Iterator[Figure]:
    """Yield what the prefix adds to one launcher."""
    bare, named = job(lab, launcher), "run --tune" if tune else "run"
    options = ["--tune", "--map", str(tuned_map(lab, bare))] if tune else []
    prefix = [*CLOUDCOLL, "run", *options]
    first = timed(lab, [*prefix, *bare])
    print(f"{launcher}: first run {first[0] if first else float('nan'):.2f} s")
    pairs = []
    for _ in range(RUNS):
        both = timed(lab, bare), timed(lab, [*prefix, *bare])
        if both[0] and both[1]:
            pairs.append((*both[0], *both[1]))
    wall, cpu, run_wall, run_cpu = zip(*pairs, strict=True)
    print(f"{'seconds':>14} {'wall':>7} {'CPU':>7} {len(pairs):5d} pairs")
    for name, times in (("bare", (wall, cpu)), (named, (run_wall, run_cpu))):
        print(f"{name:>14}", *(f"{statistics.median(one):7.3f}" for one in times))
    for name, one, other in (("wall", wall, run_wall), ("CPU", cpu, run_cpu)):
        added = [b - a for a, b in zip(one, other, strict=True)]
        yield median_of(f"{named} adds to {called(launcher)}: {name}", added, "s")


def main() -> None:
    """Bring the lab up and go through the launchers."""
    parser = argparse.ArgumentParser(description=__doc__)
    beside = str(Path(sys.executable).with_name("mpirun"))
    parser.add_argument("--launcher", action="append")
    parser.add_argument("--tune", action="store_true")
    json_option(parser)
    parser.add_argument("--hosts", type=int, default=0)
    arguments = parser.parse_args()
    launchers = arguments.launcher or [beside]
    if arguments.hosts:
        for launcher in launchers:
            write_figures(plans(arguments.hosts, launcher), arguments.json)
        return
    spec = labs.quick(
        (4, 4, 4, 4), nic=50e6, uplink=50e6, rtt=200e-6, seed=1, preset="tuned"
    )
    with contextlib.ExitStack() as stack:
        lab = labs.up(spec, NAME)
        stack.callback(labs.down, NAME)
        for launcher in launchers:
            write_figures(compare(lab, launcher, arguments.tune), arguments.json)


if __name__ == "__main__":
    main()
