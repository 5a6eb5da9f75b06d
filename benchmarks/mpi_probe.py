"""What probes through MPI and torch see of a data centre, beside the agents.

One emulated data centre of 16 hosts, racks of 5, 3, 6 and 2, and a standard
probe by each transport: seconds of the whole command, the error of round trips
between racks and of rack uplinks against what was asked for, the fastest flow
against a card, and the racks: exact, and too many. The uplink of a rack that was
missed is off by 100 %. Run it on a quiet machine:

    python -m benchmarks.mpi_probe
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planted import Links, group_links, link_errors, misfound
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll import lab as labs
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot
from cloudcoll.work.measure import choose_transport

RACKS = (5, 3, 6, 2)
CARD = UPLINK = labs.parse_rate("400mbit")
RTT = labs.parse_duration("500us")
LAB = "mpi-probe"
MPIRUN = Path(sys.executable).with_name("mpirun")
VIA = ("lab", "mpi", "torch")


def options_of(lab: labs.Lab, via: str) -> dict[str, Any]:
    """Return what a transport is told of a lab."""
    if via == "lab":
        return {"lab": LAB}
    return {"launcher": (str(MPIRUN), "--hostfile", str(lab.directory / "hosts"))}


def probe(lab: labs.Lab, via: str, output: Path) -> float:
    """Probe from the lab's head; return the seconds that it took."""
    launcher = ["--", *options_of(lab, via).get("launcher", ())]
    words = ["probe", "--via", via, "-o", str(output)]
    command, env = labs.exec_argv(
        lab,
        labs.HEAD,
        [sys.executable, "-m", "cloudcoll.cli", *words] + launcher * (via != "lab"),
    )
    begin = time.perf_counter()
    done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, timeout=300)
    if done.returncode > 1:  # 1: a pair was not measured
        raise SystemExit(f"the probe via {via} ended with {done.returncode}")
    return time.perf_counter() - begin


def judge(lab: labs.Lab, snapshot: NetworkSnapshot, via: str) -> Iterator[Figure]:
    """Yield how a snapshot compares with what was asked."""
    racks = {name: i for i, group in enumerate(lab.groups) for name in group}
    rack = np.array([racks[name] for name in snapshot.names])
    apart = rack[:, None] != rack[None, :]
    rtt = snapshot.latency.values
    near = rtt[~apart & ~np.eye(len(rack), dtype=bool)]
    fabric = snapshot.fabric
    assert fabric is not None
    true: Links = {frozenset(group): (UPLINK, UPLINK) for group in lab.groups}
    found = group_links(fabric)
    missed, extra = misfound(true, found)
    uplinks = 100 * np.array(link_errors(true, found))
    what = f"probe via {via}"
    exact = len(true) - missed
    yield Figure(f"{what}: racks exact", exact, unit=f"of {len(true)}")
    yield Figure(f"{what}: racks too many", extra)
    middle = float(np.median(uplinks))
    yield Figure(f"{what}: error of an uplink, median", middle, unit="%")
    yield Figure(f"{what}: error of an uplink, worst", uplinks.max(), unit="%")
    inside = float(np.nanmedian(near))
    yield Figure(f"{what}: round trip in a rack", inside, unit="s")
    across = 100 * float(np.nanmedian(rtt[apart]) / RTT - 1)
    yield Figure(f"{what}: round trip between racks, off by", across, unit="%")
    fastest = 100 * float(np.nanmax(snapshot.flows.bytes_per_s) / CARD - 1)
    yield Figure(f"{what}: fastest flow over a card, off by", fastest, unit="%")


def main() -> None:
    """Print the figures of each transport."""
    parser = argparse.ArgumentParser(description=__doc__)
    json_option(parser)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        spec = labs.quick(
            RACKS, nic=CARD, uplink=UPLINK, rtt=RTT, seed=1, preset="tuned"
        )
        lab = labs.up(spec, LAB)
        try:
            for via in VIA:
                if reason := choose_transport(via, options_of(lab, via)).available():
                    print(f"{via:>6} not measured: {reason}")
                    continue
                output = Path(home) / f"{via}.snap"
                seconds = probe(lab, via, output)
                taken = Figure(f"probe via {via}: whole command", seconds, unit="s")
                found = judge(lab, load_snapshot(output), via)
                write_figures([taken, *found], options.json)
        finally:
            labs.down(LAB)


if __name__ == "__main__":
    main()
