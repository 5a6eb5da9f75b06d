"""Time a quick probe of 16 hosts by resident agents, and by ssh, in turn.

Whole commands, run on a host of an emulated data centre of 4 racks of 4: by
mutual TLS, and by the lab's ssh, which enters a host's namespaces instead of
shaking hands. Prints seconds, how often the racks were exact, and the memory of an
agent that nobody drives and of the process that holds all of a driver's
connections. Needs cloudcoll[certs]:

    python -m benchmarks.tls_probe
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.emulated import CLOUDCOLL
from benchmarks.record import Figure, json_option, median_of, write_figures
from cloudcoll import lab as labs
from cloudcoll.lab.state import Lab
from cloudcoll.tls.certs import write_all

RUNS = 7
LAB = "tls-probe"


def words(folder: Path) -> list[str]:
    return [f"--{name}={folder}/{name}.pem" for name in ("cert", "key", "ca")]


def listen(lab: Lab, pki: Path) -> list[subprocess.Popen[str]]:
    """Start an agent on each host; return them when all listen."""
    agents = []
    for host in lab.hosts:
        own = words(pki / "agents" / host.name)
        command = [*CLOUDCOLL, "agent", "--listen=:7412", *own]
        argv, env = labs.exec_argv(lab, host.name, command)
        agents.append(
            subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
        )
    for agent in agents:
        assert agent.stderr
        agent.stderr.readline()
    return agents


def unique_mb(process: psutil.Process) -> float:
    """Return what a process has of memory that no other shares."""
    return float(process.memory_full_info().uss) / 1e6


def probe(lab: Lab, how: list[str]) -> tuple[float, list[list[str]], float]:
    """Return seconds, the groups found, and the most that a dialler held in MB."""
    names = ",".join(host.name for host in lab.hosts)
    command = [*CLOUDCOLL, "probe", "-w", names, "--quick", "--json", *how]
    argv, env = labs.exec_argv(lab, labs.HEAD, command)
    begin, most = time.perf_counter(), 0.0
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(2.0)  # by then all are connected
        for one in psutil.Process(process.pid).children(recursive=True):
            if "cloudcoll.resident.dial" in " ".join(one.cmdline()):
                most = max(most, unique_mb(one))
        assert process.stdout
        seen = json.loads(process.stdout.read())
    seconds = time.perf_counter() - begin
    return seconds, sorted(map(sorted, seen["levels"][0]["groups"])), most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    json_option(parser)
    options = parser.parse_args()
    spec = labs.quick((4, 4, 4, 4), nic=50e6, uplink=50e6, rtt=500e-6, preset="tuned")
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        lab = labs.up(spec, LAB)
        try:
            pki = Path(home) / "pki"
            write_all(lab.hosts, pki, 1)
            agents = listen(lab, pki)
            truth = sorted(map(sorted, lab.groups))
            family = psutil.Process(agents[0].pid).children(recursive=True)
            ways = {"tls": ["--via=tls", *words(pki / "driver")], "ssh": []}
            taken: dict[str, list[float]] = {way: [] for way in ways}
            exact, dialler = dict.fromkeys(ways, 0), 0.0
            for _ in range(RUNS):
                for way, how in ways.items():
                    seconds, groups, most = probe(lab, how)
                    taken[way].append(seconds)
                    exact[way] += groups == truth
                    dialler = max(dialler, most)
            idle = max(map(unique_mb, family))
            for agent in agents:
                with agent:  # closes its pipe
                    agent.terminate()
        finally:
            labs.down(LAB)
    figures = [
        median_of(f"quick probe by {way}", times, "s") for way, times in taken.items()
    ]
    figures += [
        Figure(f"quick probe by {way}: racks exact", count, unit=f"of {RUNS}")
        for way, count in exact.items()
    ]
    figures.append(Figure("memory of an agent that waits", idle, unit="MB"))
    figures.append(Figure("memory of a driver's connections", dialler, unit="MB"))
    write_figures(figures, options.json)


if __name__ == "__main__":
    main()
