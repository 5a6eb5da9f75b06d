"""Change the links of a running lab."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.errors import CloudcollError
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
from cloudcoll.lab.state import DEADLINE, Lab

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
    """

    dead: bool = False
    drop_in: bool = False
    drop_out: bool = False
    loss: float = 0.0
    rate: float | None = None


def apply(lab: Lab, link: Link, fault: LinkFault) -> None:
    """Make a host's link match what is to be wrong with it."""
    up_loss = 1.0 if fault.drop_out else fault.loss
    down_loss = 1.0 if fault.drop_in else fault.loss
    rate = math.inf if fault.rate is None else fault.rate
    control = lab.directory / "wires" / link.name
    if lab.backend == "wire" and not link.wired(lab.backend):
        # This link was built without a wire; it has one while it needs one.
        if (up_loss or down_loss) and not control.exists():
            _add_wire(lab, link, control)
        elif not (up_loss or down_loss) and control.exists():
            _remove_wire(lab, link, control)
    if control.exists():
        settings = wire_settings(link, up_loss, down_loss, rate)
        _tell_wire(control, "".join(f"{setting}\n" for setting in settings))
    shaping = (lab.backend, largest_segment(lab.links), up_loss, down_loss, rate)
    lower, upper = shaping_lines(link, *shaping)
    _batch(lab, link.namespace, "tc", (*_reset_lines(link.lower), *lower))
    _batch(lab, SWITCH, "tc", (*_reset_lines(link.port), *upper))
    state = "down" if fault.dead else "up"
    run_inside(lab, SWITCH, "ip", "link", "set", link.port, state)


def _add_wire(lab: Lab, link: Link, control: Path) -> None:
    if not WIRE.exists():
        raise CloudcollError(
            f"losing packets needs netem or {WIRE}, which is not built; "
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
        [*prefix, *argv], input=text, capture_output=True, text=True, timeout=DEADLINE
    )
    if done.returncode != 0:
        raise CloudcollError(
            f"{' '.join(argv)} failed in lab {lab.name!r}: {done.stderr.strip()}"
        )
    return done.stdout
