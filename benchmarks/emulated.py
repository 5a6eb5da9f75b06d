"""An emulated data centre that CloudColl has measured, for the scripts here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloudcoll import lab as labs

CLOUDCOLL = (sys.executable, "-m", "cloudcoll.cli")


@dataclass(frozen=True)
class Emulated:
    """A lab that is up.

    Attributes
    ----------
    home : Path
        ``CLOUDCOLL_HOME``, and a place for files.
    name : str
        The lab's.
    """

    home: Path
    name: str

    @property
    def snapshot(self) -> Path:
        """What its probe measured."""
        return self.home / "network.snap"

    @property
    def hostfile(self) -> Path:
        """Its hosts, sorted by name."""
        return self.lab().directory / "hosts"

    def lab(self) -> labs.Lab:
        """Return the running lab."""
        return labs.find(self.name)

    def cloudcoll(self, *arguments: str, good: int = 0) -> str:
        """Run a command of CloudColl and return what it prints.

        Raises
        ------
        CalledProcessError
            It ended in more than `good`.
        """
        done = subprocess.run(
            [*CLOUDCOLL, *arguments], stdout=subprocess.PIPE, text=True
        )
        if not 0 <= done.returncode <= good:
            done.check_returncode()
        return done.stdout

    def inside(self, *arguments: str) -> str:
        """Run a command of CloudColl in the lab and return what it prints."""
        within = ("lab", "exec", "--name", self.name, "--", *CLOUDCOLL)
        return self.cloudcoll(*within, *arguments)


@contextlib.contextmanager
def emulated(
    name: str, racks: str, rate: str = "200mbit", mode: str = "standard"
) -> Iterator[Emulated]:
    """Start a lab, probe it, and take it down in the end.

    Parameters
    ----------
    name : str
        Of the lab.
    racks : str
        Hosts in each rack.
    rate : str
        Of every card and every uplink. With 16 ranks at 400 Mbit/s two cores are
        what is measured.
    mode : str
        Of the probe.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CLOUDCOLL_HOME"] = folder
        # A script that is stopped must not leave the lab up.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        cluster = Emulated(Path(folder), name)
        links = ("--nic", rate, "--uplink", rate)
        cluster.cloudcoll("lab", "up", "--name", name, "--racks", racks, *links)
        try:
            probe = ("probe", "--lab", name, f"--{mode}", "-o", str(cluster.snapshot))
            # 1: some pairs gave no result, as may be on a busy machine.
            cluster.cloudcoll(*probe, good=1)
            yield cluster
        finally:
            cluster.cloudcoll("lab", "down", "--name", name)
