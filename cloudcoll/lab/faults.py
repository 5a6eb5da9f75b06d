"""Break things in a running lab, and heal them; cross traffic and CPU hogs beside it.

What is wrong with a host's link is one value, `LinkFault`, kept in the lab's
``faults.json``; every verb changes it and `apply` makes the link match it.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cloudcoll import units
from cloudcoll.errors import CloudcollError, UsageError
from cloudcoll.files import write_atomic
from cloudcoll.lab.link import (
    SWITCH,
    WIRE,
    Link,
    attach_lines,
    largest_segment,
    shaping_lines,
    splice_lines,
    wire_argv,
    wire_settings,
)
from cloudcoll.lab.state import DEADLINE, Lab, locked, tool_environment

NEIGHBOUR = Path(__file__).with_name("neighbour.py")
FOR_EVER = 1e8
"""Seconds: three years."""
START = 1.0
"""Seconds that a wire's program takes to begin, at most."""


@dataclass(frozen=True)
class LinkFault:
    """What is wrong with a host and its link; the default is nothing.

    Attributes
    ----------
    dead : bool
        The host was killed.
    drop_in, drop_out : bool
        Everything towards, or from, the host is lost.
    loss : float
        Share of packets lost in each direction, 0 to 1.
    rate : float or None
        Rate of the card in bytes/s, None for its own.
    late : float
        Seconds that its round trips take longer.
    """

    dead: bool = False
    drop_in: bool = False
    drop_out: bool = False
    loss: float = 0.0
    rate: float | None = None
    late: float = 0.0


def parse_share(text: str) -> float:
    """Read a share such as ``5%`` or ``0.05``."""
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


def delay(lab: Lab, host: str, seconds: float) -> str:
    """Let all round trips of a host take so much longer, half of it each way."""
    _change(lab, host, late=seconds)
    return f"{host}: its round trips take {units.seconds(seconds)} longer"


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
    """Start one TCP stream in the background, which ends by itself after `seconds`.

    Its sender aims at `rate` bytes/s. CloudcollError if one end did not start, or the
    two can't connect.
    """
    _start_stream(lab, "flows", source, destination, rate, seconds)
    return (
        f"{source} sends {rate * 8 / 1e6:g} Mbit/s to {destination} "
        f"for {units.seconds(seconds)}"
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


def start_tenants(lab: Lab) -> None:
    """Start the cross traffic and the hogs that a lab is to have while it is up."""
    for number, traffic in enumerate(lab.surroundings.traffic):
        ends = f"tenant-{2 * number + 1}", f"tenant-{2 * number + 2}"
        _start_stream(lab, "standing", *ends, traffic.rate, FOR_EVER)
    for host in lab.hogged:
        file = lab.directory / "standing" / host
        file.touch()
        _start(lab, host, "compute", str(file), str(FOR_EVER))


def _start_stream(
    lab: Lab, folder: str, source: str, destination: str, rate: float, seconds: float
) -> None:
    """Start a stream as `start_traffic`; this folder of the lab keeps a file for it."""
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


def apply(lab: Lab, link: Link, fault: LinkFault) -> None:
    """Make a host's link match what is to be wrong with it."""
    up_loss = 1.0 if fault.drop_out else fault.loss
    down_loss = 1.0 if fault.drop_in else fault.loss
    rate = math.inf if fault.rate is None else fault.rate
    wrong = up_loss, down_loss, rate, fault.late / 2
    control = lab.directory / "wires" / link.name
    if lab.backend == "wire" and not link.wired(lab.backend):
        # This link was built without a wire; it has one while it needs one.
        needed = bool(up_loss or down_loss or fault.late)
        if needed and not control.exists():
            _add_wire(lab, link, control)
        elif not needed and control.exists():
            _remove_wire(lab, link, control)
    if control.exists():
        settings = wire_settings(link, *wrong)
        _tell_wire(control, "".join(f"{setting}\n" for setting in settings))
    segment = largest_segment(lab.links)
    lower, upper = shaping_lines(link, lab.backend, segment, *wrong)
    _batch(lab, link.namespace, "tc", (*_reset_lines(link.lower), *lower))
    _batch(lab, SWITCH, "tc", (*_reset_lines(link.port), *upper))
    state = "down" if fault.dead else "up"
    run_inside(lab, SWITCH, "ip", "link", "set", link.port, state)


def _add_wire(lab: Lab, link: Link, control: Path) -> None:
    if not WIRE.exists():
        raise CloudcollError(
            f"losing or delaying packets needs netem or {WIRE}, which is not built; "
            "run 'pip install .' with a C compiler"
        )
    lower, _ = link.wire_ends
    _batch(lab, SWITCH, "tc", _reset_lines(link.port))
    lines = (
        f"link set {link.port} down nomaster",
        f"link set {link.port} name {lower}",
        *splice_lines(link),
    )
    _batch(lab, SWITCH, "ip", lines)
    os.mkfifo(control, 0o600)
    # In the background of a shell that ends: it becomes the holder's child.
    wire = '"$@" < /dev/null > /dev/null 2>> "$0" &'
    argv = wire_argv(link, control, seed=0)
    run_inside(lab, SWITCH, "sh", "-c", wire, str(lab.directory / "log"), *argv)


def _remove_wire(lab: Lab, link: Link, control: Path) -> None:
    _tell_wire(control, "stop\n")
    control.unlink()
    lower, _ = link.wire_ends
    lines = (
        f"link delete {link.port}",
        f"link set {lower} down",
        f"link set {lower} name {link.port}",
        *attach_lines(link),
    )
    _batch(lab, SWITCH, "ip", lines)


def _tell_wire(control: Path, text: str) -> None:
    """Write to a wire's FIFO, once it is there to read."""
    until = time.monotonic() + DEADLINE
    while True:
        try:
            fifo = os.open(control, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > until:
                raise CloudcollError(
                    f"the wire of {control.name} does not run ({error.strerror}); "
                    "take the lab down and up again"
                ) from error
            time.sleep(0.005)
    with os.fdopen(fifo, "w") as file:
        file.write(text)


def dead_wires(lab: Lab) -> list[str]:
    """Return the links whose wire program has ended: nothing crosses them.

    A wire that has only just been started gets up to `START` seconds.
    """
    until = time.monotonic() + START
    dead = sorted(control.name for control in (lab.directory / "wires").iterdir())
    while True:
        dead = [name for name in dead if not _reads(lab.directory / "wires" / name)]
        if not dead or time.monotonic() > until:
            return dead
        time.sleep(0.005)


def _reads(control: Path) -> bool:
    """Return whether a wire has its FIFO open, or was taken away just now."""
    try:
        os.close(os.open(control, os.O_WRONLY | os.O_NONBLOCK))
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False
    return True


def _reset_lines(device: str) -> tuple[str, ...]:
    # "del" alone fails where no qdisc was added yet.
    root = f"dev {device} root"
    return (f"qdisc replace {root} pfifo limit 1000", f"qdisc del {root}")


def _batch(lab: Lab, namespace: str, tool: str, lines: tuple[str, ...]) -> None:
    if lines:
        text = "\n".join(lines) + "\n"
        run_inside(lab, namespace, tool, "-batch", "-", text=text)


def run_inside(lab: Lab, namespace: str, *argv: str, text: str = "") -> str:
    """Run a command among the switches, or in a host's network namespace."""
    prefix = lab.nsenter()
    if namespace:
        prefix += ("nsenter", f"--net=/proc/{lab.anchor(namespace)}/ns/net")
    done = subprocess.run(
        [*prefix, *argv],
        env=tool_environment(),
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    if done.returncode != 0:
        raise CloudcollError(
            f"{' '.join(argv)} failed in lab {lab.name!r}: {done.stderr.strip()}"
        )
    return done.stdout
