"""An emulated data centre that CloudColl has measured, for the scripts here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.record import Figure
from cloudcoll import lab as labs
from cloudcoll.bench.result import BenchRun

CLOUDCOLL = (sys.executable, "-m", "cloudcoll.cli")


def command_in(folder: str) -> Callable[..., str]:
    """Return what runs a command of CloudColl with its files in a folder.

    Told its arguments, and by ``good`` the highest exit code that is none to raise
    CalledProcessError for, it returns what the command prints.
    """
    env = {**os.environ, "CLOUDCOLL_HOME": folder}

    def run(*arguments: str, good: int = 0) -> str:
        done = subprocess.run(
            [*CLOUDCOLL, *arguments], env=env, stdout=subprocess.PIPE, text=True
        )
        if not 0 <= done.returncode <= good:
            done.check_returncode()
        return done.stdout

    return run


ENOUGH = 6
"""Repeats, for a 95 % interval of a median."""


def ratio_figures(
    what: str, run: BenchRun, wanted: Mapping[str, float] | None = None
) -> Iterator[Figure]:
    """Yield how much longer each baseline of a bench takes, at its largest size.

    Parameters
    ----------
    what : str
        The figures' names begin with it.
    run : BenchRun
    wanted : mapping of str to float
        The least ratio, by baseline.
    """
    size = run.sizes[-1]
    ours = run.same_as.get("cloudcoll", "cloudcoll")
    for ratio in run.ratios():
        name, baseline = f"{what}: {ratio.baseline} over cloudcoll", ratio.baseline
        if ratio.bytes != size:
            continue
        if ours in (baseline, run.same_as.get(baseline)):
            yield Figure(name, 1.0, predicted=1.0, unit="x", note="the same order")
            continue
        repeats = min(len(run.times(size, order)) for order in run.orders)
        kind = "95 %" if repeats >= ENOUGH else f"bootstrap of {repeats}"
        yield Figure(
            name,
            *(ratio.ratio, ratio.low, ratio.high, ratio.predicted),
            least=(wanted or {}).get(baseline, np.nan),
            unit="x",
            interval=kind if ratio.low == ratio.low else "",
        )


def prediction_figures(
    what: str, errors: Iterable[float], gains: Iterable[Figure], most: float
) -> Iterator[Figure]:
    """Yield how far predictions of a case are off: of seconds, and of gains.

    The first is small where most orders are bad in the same way, whatever is said
    of the good ones; the second compares each gain with what was predicted of it.

    Parameters
    ----------
    what : str
        The figures' names begin with it.
    errors : iterable of float
        Relative errors of the predicted seconds, of each order.
    gains : iterable of Figure
        Ratios with what was predicted.
    most : float
        Wanted of the median of `errors`.
    """
    off = 100 * np.array(list(errors))
    name = f"{what}: error of predicted seconds, median of the orders"
    yield Figure(name, float(np.median(off)), unit="%", most=100 * most)
    name = f"{what}: error of predicted seconds, worst order"
    yield Figure(name, float(off.max()), unit="%")
    worst = max((100 * abs(g.predicted / g.value - 1) for g in gains), default=0.0)
    yield Figure(f"{what}: error of predicted gains, worst baseline", worst, unit="%")


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
        up = ("lab", "up", "--name", name, "--preset", "tuned", "--racks", racks)
        cluster.cloudcoll(*up, *links)
        try:
            probe = ("probe", "--lab", name, f"--{mode}", "-o", str(cluster.snapshot))
            # 1: some pairs gave no result, as may be on a busy machine.
            cluster.cloudcoll(*probe, good=1)
            yield cluster
        finally:
            cluster.cloudcoll("lab", "down", "--name", name)
