"""A lab as its directory describes it: whether it runs, its lock, and its end.

``state_dir()/lab/NAME`` holds

    spec.json   what `Lab` says, written last: without it no lab is up
    character.json  what its network is like, for what is measured in it
    hosts       the hostfile, in name order
    etc-hosts   /etc/hosts of every host
    bin/ssh     the lab's ssh
    wires/      one control FIFO for each wire
    dead/       one file for each killed host
    flows/      one file for each stream of cross traffic that a fault is
    standing/   the same for what belongs to the lab itself, and for its hogs
    faults.json what is wrong with each host's link
    log         what the holder and the wires had to say

Version history of ``spec.json``:

1  first, without a version: all labs were alike but for rates and delays
2  links have shapes, and a lab its surroundings
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloudcoll.errors import CloudcollError, UsageError
from cloudcoll.files import state_dir, write_atomic
from cloudcoll.files.locks import lock
from cloudcoll.hosts import Host
from cloudcoll.lab.link import Backend, Link
from cloudcoll.lab.spec import (
    CrossTraffic,
    Queue,
    Shape,
    Surroundings,
    find_preset,
    surroundings,
)

VERSION = 2
DEADLINE = 120.0
"""Seconds that another process may take to bring this lab up or down.

Two for 20 hosts; 30 were too few beside other work on all cores, many times over.
"""


ROOT_FOLDERS = "/usr/sbin:/sbin"
"""Debian has ``tc`` and ``bridge`` there alone, which users may run in namespaces of
their own, and leaves these folders out of a user's PATH."""


def tool_environment() -> dict[str, str]:
    """Return our environment, with `ROOT_FOLDERS` at the end of its PATH."""
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": f"{path}:{ROOT_FOLDERS}"}


@dataclass(frozen=True)
class Lab:
    """A lab that is, or was, running.

    Attributes
    ----------
    name : str
        Its name on the command line.
    directory : Path
        Where its files are.
    hosts : tuple of Host
        In name order, with slots; without ``head``.
    groups : tuple of tuple of str
        The racks as planted: host names under each lowest switch.
    links : tuple of Link
        Every host's and group's link to the switch above.
    backend : str
        What delays packets, ``netem`` or ``wire``.
    holder : int
        Process that holds the namespaces.
    started : int
        Its start in clock ticks after boot: tells it from a later process
        with the same number.
    anchors : dict of str to int
        For each host a process in its namespaces, as the lab counts.
    token : str
        Name of the holder's process, unique to this lab.
    rootless : bool
        It stands in a user namespace.
    surroundings : Surroundings
        What is the same for all hosts.
    hogged : tuple of str
        Hosts on which a process computes all the time.
    """

    name: str
    directory: Path
    hosts: tuple[Host, ...]
    groups: tuple[tuple[str, ...], ...]
    links: tuple[Link, ...]
    backend: Backend
    holder: int
    started: int
    anchors: dict[str, int]
    token: str
    rootless: bool
    surroundings: Surroundings
    hogged: tuple[str, ...]

    @property
    def ssh(self) -> Path:
        """The lab's ssh: takes any host's name."""
        return self.directory / "bin" / "ssh"

    @property
    def hostfile(self) -> Path:
        """The hostfile, in name order."""
        return self.directory / "hosts"

    def inside(self) -> bool:
        """Return whether this process runs in the lab."""
        try:
            return Path("/proc/1/comm").read_text().strip() == self.token
        except OSError:
            return False

    def alive(self) -> bool:
        """Return whether the lab is up."""
        return self.inside() or start_time(self.holder) == self.started

    def anchor(self, host: str) -> int:
        """Return the process that keeps a host's namespaces; UsageError for no host."""
        if host not in self.anchors:
            raise UsageError(
                f"no host {host!r} in lab {self.name!r} (hosts: "
                f"{self.hosts[0].name} to {self.hosts[-1].name}, head)"
            )
        return self.anchors[host]

    def nsenter(self) -> tuple[str, ...]:
        """Return the command prefix that enters the switches' namespaces."""
        if self.inside():
            return ("nsenter", "--target=1", "--net", "--uts", "--mount", "--")
        user = ("--user", "--preserve-credentials") if self.rootless else ()
        target = f"--target={self.holder}"
        return ("nsenter", target, *user, "--net", "--uts", "--mount", "--pid", "--")

    def save(self) -> None:
        """Write ``spec.json``: from now on the lab is up."""
        record = {"version": VERSION, **asdict(self)}
        record["directory"] = str(self.directory)
        record["hosts"] = [{"name": h.name, "slots": h.slots} for h in self.hosts]
        write_atomic(self.directory / "spec.json", json.dumps(record, indent=1))


def lab_directory(name: str) -> Path:
    """Return the directory of the lab called `name`, which is fit for a file's name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise UsageError(
            f"{name!r} is not a lab's name; use letters, digits, '.', '_' and '-'"
        )
    return state_dir() / "lab" / name


def load(name: str) -> Lab | None:
    """Return a lab as its files describe it, up or not; None if they are not whole."""
    directory = lab_directory(name)
    try:
        text = (directory / "spec.json").read_text()
        record = _upgraded(json.loads(text))
        record["directory"] = directory
        record["hosts"] = tuple(Host(**host) for host in record["hosts"])
        record["groups"] = tuple(tuple(group) for group in record["groups"])
        record["hogged"] = tuple(record["hogged"])
        for link in record["links"]:
            shape = link["shape"]
            link["shape"] = Shape(**{**shape, "queue": Queue(**shape["queue"])})
        record["links"] = tuple(Link(**link) for link in record["links"])
        around = record["surroundings"]
        around["traffic"] = tuple(CrossTraffic(**one) for one in around["traffic"])
        record["surroundings"] = Surroundings(**around)
        return Lab(**record)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _upgraded(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the present version would have written of a lab."""
    version = record.pop("version", 1)
    if version > VERSION:
        raise ValueError(f"spec.json has version {version}")
    if version == 1:
        preset = find_preset("tuned")
        for link in record["links"]:
            shape = preset.uplink if link["below"] else preset.nic
            link |= {"shape": asdict(shape), "host": not link["below"]}
        record |= {"surroundings": asdict(surroundings("tuned")), "hogged": []}
    return record


def find(name: str = "default") -> Lab:
    """Return the running lab called `name`; the error names those that are."""
    lab = load(name)
    if lab is not None and lab.alive():
        return lab
    others = ", ".join(running()) or "none"
    raise CloudcollError(
        f"no lab {name!r} is up (up: {others}); start it with 'cloudcoll lab up'"
    )


def kept() -> list[str]:
    """Return the names of the labs that have files, those that broke off included."""
    return sorted(path.parent.name for path in state_dir().glob("lab/*/spec.json"))


def running() -> list[str]:
    """Return the names of the labs that are up."""
    labs = (load(name) for name in kept())
    return [lab.name for lab in labs if lab is not None and lab.alive()]


def start_time(process: int) -> int | None:
    """Return when a process started, in clock ticks after boot; None if it is gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    # The name, in brackets, may hold anything; fields are counted after it.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def kill_holder(holder: int, started: int) -> bool:
    """Kill a holder and wait until its lab is gone; False if it was already."""
    try:
        handle = os.pidfd_open(holder)
    except ProcessLookupError:
        return False
    try:
        if start_time(holder) != started:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        # The kernel reports init's death when all of its namespace are dead.
        if not select.select([handle], [], [], DEADLINE)[0]:
            raise CloudcollError(f"process {holder} does not die; see 'ps -p {holder}'")
    finally:
        os.close(handle)
    return True


@contextlib.contextmanager
def locked(name: str, wait: float = 0.0) -> Iterator[None]:
    """Keep others from bringing the same lab up or down meanwhile.

    For another process that is at it, wait so many seconds before the CloudcollError.
    """
    directory = lab_directory(name)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        file = open(directory.parent / f".{name}.lock", "w")  # noqa: SIM115
    except OSError as error:
        raise CloudcollError(
            f"cannot keep labs in {directory.parent}: {error.strerror} (name another "
            "folder in CLOUDCOLL_HOME)"
        ) from error
    with file:
        if not lock(file, wait):
            raise CloudcollError(
                f"another process is bringing lab {name!r} up or down; "
                "wait for it, or choose another --name"
            )
        yield
