"""What probes through MPI and torch see of a data centre, beside the agents.

One emulated data centre of 16 hosts, racks of 5, 3, 6 and 2, and a standard
probe by each transport: seconds of the whole command, the error of round trips
between racks and of rack uplinks against what was asked for, the fastest flow
against a card, and whether the racks are exact. Run it on a quiet machine:

    python benchmarks/mpi_probe.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from cloudcoll import lab as labs
from cloudcoll.probe import TRANSPORTS
from cloudcoll.snapshot import NetworkSnapshot, load_snapshot

RACKS = (5, 3, 6, 2)
CARD = UPLINK = labs.parse_rate("400mbit")
RTT = labs.parse_duration("500us")
LAB = "mpi-probe"
MPIRUN = Path(sys.executable).with_name("mpirun")
VIA = ("lab", "mpi", "torch")


def probe(lab: labs.Lab, via: str, output: Path) -> float:
    """Probe from the lab's head; return the seconds that it took."""
    launcher = ["--", str(MPIRUN), "--hostfile", str(lab.directory / "hosts")]
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


def judge(lab: labs.Lab, snapshot: NetworkSnapshot) -> list[str]:
    """Return the columns that compare a snapshot with what was asked."""
    racks = {name: i for i, group in enumerate(lab.groups) for name in group}
    rack = np.array([racks[name] for name in snapshot.names])
    apart = rack[:, None] != rack[None, :]
    rtt = snapshot.latency.values
    near = rtt[~apart & ~np.eye(len(rack), dtype=bool)]
    fabric = snapshot.fabric
    assert fabric is not None
    truth = {frozenset(group) for group in lab.groups}
    found = {frozenset(node.leaves()): node for node in fabric.groups()[0]}
    rates = [
        rate
        for group, node in found.items()
        if group in truth
        for rate in (node.uplink_bytes_per_s, node.downlink_bytes_per_s)
    ]
    uplinks = np.abs(np.array(rates) / UPLINK - 1.0)
    return [
        f"{np.nanmedian(near) * 1e6:6.0f} us",
        f"{np.nanmedian(rtt[apart]) / RTT - 1.0:+7.1%}",
        f"{np.nanmax(snapshot.flows.bytes_per_s) / CARD - 1.0:+7.1%}",
        f"{np.nanmedian(uplinks):7.1%} {np.nanmax(uplinks):7.1%}",
        "  exact" if truth == set(found) else f"  {len(truth & set(found))} of 4",
    ]


def main() -> None:
    """Print a line for each transport."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print(f"{'via':>6} seconds  in rack  across fastest  uplink median, max  racks")
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        spec = labs.quick(
            RACKS, nic=CARD, uplink=UPLINK, rtt=RTT, rack_rtt=0.0, slots=1, seed=1
        )
        lab = labs.up(spec, LAB)
        try:
            for via in VIA:
                if reason := TRANSPORTS[via]("true").available():
                    print(f"{via:>6} not measured: {reason}")
                    continue
                output = Path(home) / f"{via}.snap"
                seconds = probe(lab, via, output)
                columns = judge(lab, load_snapshot(output))
                print(f"{via:>6} {seconds:7.1f}", *columns, flush=True)
        finally:
            labs.down(LAB)


if __name__ == "__main__":
    main()
