"""Break things in a running lab, and heal them; cross traffic and CPU hogs beside it.

What is wrong with a host's link is one value, `LinkFault`, kept in the lab's
``faults.json``; every verb changes it and `live.apply` makes the link match it.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cloudcoll.errors import CloudcollError, UsageError
from cloudcoll.files import write_atomic
from cloudcoll.lab.link import SWITCH
from cloudcoll.lab.live import LinkFault, apply, run_inside
from cloudcoll.lab.state import DEADLINE, Lab, locked


def parse_share(text: str) -> float:
    """Read a share such as ``5%`` or ``0.05``.

    Raises
    ------
    UsageError
        It is not a number from 0 to 1, or 0% to 100%.
    """
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(%?)", text.strip())
    share = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    if not 0 <= share <= 1:
        raise UsageError(f"{text!r} is not a share of packets; write 5% or 0.05")
    return share


def faults(lab: Lab) -> dict[str, LinkFault]:
    """Return what is wrong with each host that has something wrong."""
    try:
        record = json.loads((lab.directory / "faults.json").read_text())
    except FileNotFoundError:
        return {}
    return {host: LinkFault(**fault) for host, fault in record.items()}


def kill(lab: Lab, host: str) -> str:
    """Kill a host: its peers hear silence, no farewell.

    Every process on it gets SIGKILL, and its link is cut first, so that not
    even the kernel's resets get out.
    """
    lab.anchor(host)
    (lab.directory / "dead" / host).touch()
    _change(lab, host, dead=True)
    count = _kill_processes(lab, host)
    return f"{host} is dead ({count} processes killed)"


def drop(lab: Lab, host: str, direction: str) -> str:
    """Drop all packets ``in`` to, or ``out`` of, a host."""
    _change(lab, host, **{f"drop_{direction}": True})
    return f"{host}: everything that goes {direction} is dropped"


def lose(lab: Lab, host: str, share: float) -> str:
    """Lose a share of a host's packets in each direction."""
    _change(lab, host, loss=share)
    return f"{host}: {share:.2%} of packets are lost in each direction"


def slow(lab: Lab, host: str, rate: float) -> str:
    """Limit a host's card to `rate` bytes/s, both directions."""
    _change(lab, host, rate=rate)
    return f"{host}: its card does {rate * 8 / 1e6:g} Mbit/s"


def heal(lab: Lab, host: str | None = None) -> str:
    """Undo the faults of one host, or of all, and end cross traffic there.

    Processes of a killed host stay dead; new ones can be started.
    """
    if host is not None:
        lab.anchor(host)
    broken = [name for name in faults(lab) if host in (None, name)]
    for name in broken:
        _change(lab, name, **asdict(LinkFault()))
        (lab.directory / "dead" / name).unlink(missing_ok=True)
    flows = [
        flow
        for flow in (lab.directory / "flows").iterdir()
        if host is None or host in flow.name.split(":")
    ]
    for flow in flows:
        flow.unlink(missing_ok=True)  # it may end by itself this moment
    healed = [*broken, *(f"{len(flows)} streams of traffic" for _ in flows[:1])]
    return f"healed: {', '.join(healed) or 'nothing was broken'}"


def start_traffic(
    lab: Lab, source: str, destination: str, rate: float, seconds: float
) -> str:
    """Start one TCP stream in the background.

    Parameters
    ----------
    lab : Lab
        Where.
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
    start_stream(lab, "flows", source, destination, rate, seconds)
    return (
        f"{source} sends {rate * 8 / 1e6:g} Mbit/s to {destination} for {seconds:g} s"
    )


def _change(lab: Lab, host: str, **changes: Any) -> None:
    lab.anchor(host)
    with locked(lab.name, wait=DEADLINE):
        every = faults(lab)
        before = every.get(host, LinkFault())
        after = replace(before, **changes)
        link = next(link for link in lab.links if link.name == host)
        apply(lab, link, after)
        every[host] = after
        broken = {h: asdict(f) for h, f in every.items() if f != LinkFault()}
        write_atomic(lab.directory / "faults.json", json.dumps(broken))


def _kill_processes(lab: Lab, host: str) -> int:
    """Send SIGKILL to all on a host but its anchor; return how many there were."""
    anchor = f"/proc/{lab.anchor(host)}"
    script = (
        "count=0; for process in /proc/[0-9]*; do "
        f"[ $process/ns/uts -ef {anchor}/ns/uts ] && [ $process != {anchor} ] && "
        "kill -KILL ${process#/proc/} && count=$((count + 1)); "
        "done 2>/dev/null; echo $count"
    )
    total = 0
    # A process may have forked while the list was read: look again.
    while killed := int(run_inside(lab, SWITCH, "sh", "-c", script)):
        total += killed
    return total


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
