"""What else goes on in a lab: streams of cross traffic, and hogs of CPU time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from cloudcoll.errors import CloudcollError
from cloudcoll.lab.state import DEADLINE, Lab

NEIGHBOUR = Path(__file__).with_name("neighbour.py")
FOR_EVER = 1e8
"""Seconds: three years."""


def start_tenants(lab: Lab) -> None:
    """Start the cross traffic and the hogs that a lab is to have while it is up.

    Raises
    ------
    CloudcollError
        One did not start.
    """
    for number, traffic in enumerate(lab.surroundings.traffic):
        ends = f"tenant-{2 * number + 1}", f"tenant-{2 * number + 2}"
        start_stream(lab, "standing", *ends, traffic.rate, FOR_EVER)
    for host in lab.hogged:
        file = lab.directory / "standing" / host
        file.touch()
        _start(lab, host, "compute", str(file), str(FOR_EVER))


def start_stream(
    lab: Lab, folder: str, source: str, destination: str, rate: float, seconds: float
) -> None:
    """Start one TCP stream in the background.

    Parameters
    ----------
    lab : Lab
        Where.
    folder : str
        Of the lab's, which keeps a file for it.
    source, destination : str
        Hosts.
    rate : float
        Bytes/s the sender aims at.
    seconds : float
        It ends by itself after so long.

    Raises
    ------
    CloudcollError
        One end did not start, or the two can't connect.
    """
    for host in (source, destination):
        lab.anchor(host)
    flow = lab.directory / folder / f"{source}:{destination}:{time.time_ns()}"
    flow.touch()
    try:
        port = _start(lab, destination, "receive", str(flow), str(seconds))
        ends = (str(flow), str(seconds), destination, port.strip(), str(rate))
        _start(lab, source, "send", *ends)
    except CloudcollError:
        flow.unlink(missing_ok=True)
        raise


def _start(lab: Lab, host: str, *arguments: str) -> str:
    """Start a program on a host; it goes on in the background when it is set up."""
    done = subprocess.run(
        [lab.ssh, host, "exec", sys.executable, str(NEIGHBOUR), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    if done.returncode != 0:
        reason = done.stderr.strip().rpartition("\n")[2]
        raise CloudcollError(f"no traffic, {host} does not take part: {reason}")
    return done.stdout
