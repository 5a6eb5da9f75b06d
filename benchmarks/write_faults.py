"""What files are after SIGKILL, and after a disk was full or read-only.

    python benchmarks/write_faults.py kills   # at 500 moments of each file's writes
    python benchmarks/write_faults.py disk    # a tmpfs of 1 MiB that gets full

``kills``: how often a reader found neither the old content nor the new, or the
next writer could not go on, and how many temporary files were left. ``disk``:
what each writer says. Both end in 1 if anything was not as it should be.
Needs cloudcoll[certs]; ``disk`` makes mounts that nobody else sees.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from cloudcoll.bench.result import BenchRun
from cloudcoll.daemon.leases import leased_hosts, leases_dir, take_lease
from cloudcoll.daemon.lock import held
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.view import Point
from cloudcoll.errors import CloudcollError
from cloudcoll.fabric.synth import observe, racks
from cloudcoll.files import write_atomic
from cloudcoll.hosts import Host
from cloudcoll.probe.plan import plan_probes
from cloudcoll.probe.results import Results
from cloudcoll.probe.spool import add_row, load_spool, set_aside, start_spool
from cloudcoll.rankmap import RankMap, load_rankmap
from cloudcoll.snapshot import load_snapshot
from cloudcoll.tls import Credentials
from cloudcoll.tls.certs import write_all

LONGEST_S = 0.03
"""A kill comes before."""
OWN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount")
POINTS = 16
"""Written to the history at once."""


@dataclass(frozen=True)
class Kind:
    """A file that is written again and again.

    Attributes
    ----------
    write : callable
        Takes the folder and what tells this content from the one before: 0 or 1.
    read : callable
        Returns what tells the content that is there, or None where that has
        no meaning; raises CloudcollError or AssertionError if it is not whole.
    """

    write: Callable[[Path, int], object]
    read: Callable[[Path], int | None]


FABRIC = racks((8, 8), seed=1)
SNAPSHOT = replace(observe(FABRIC, samples=2, seed=1), fabric=FABRIC)
HOSTS = SNAPSHOT.hosts
PAGE = "<p>{}</p>" * 20_000


def of_snapshot() -> Kind:
    return Kind(
        lambda at, turn: replace(SNAPSHOT, created=float(turn)).save(at / "a.snap"),
        lambda at: int(load_snapshot(at / "a.snap").created),
    )


def of_map() -> Kind:
    made = [RankMap(SNAPSHOT.names, (1,) * len(HOSTS), seed=turn) for turn in (0, 1)]
    return Kind(
        lambda at, turn: made[turn].save(at / "a.json"),
        lambda at: load_rankmap(at / "a.json").seed,
    )


def of_bench() -> Kind:
    about = {"algorithm": "ring", "hosts": ["a"], "library": "x", "ranks": 2}
    row = {"op": "allreduce", "bytes": 8, "repeat": 0, "time_us": 1.0, "wrong": 0}
    rows = tuple({**row, "order": "given", "repeat": i} for i in range(500))
    made = [
        BenchRun({**about, "turn": turn}, {"given": ("a",)}, {}, rows)
        for turn in (0, 1)
    ]

    def read(at: Path) -> int:
        text = (at / "result.json").read_text()
        return int(BenchRun.from_json(text).metadata["turn"])

    return Kind(lambda at, turn: made[turn].save(at / "result.json"), read)


def of_page() -> Kind:
    pages = [PAGE.replace("{}", str(turn)) for turn in (0, 1)]
    return Kind(
        lambda at, turn: write_atomic(at / "report.html", pages[turn]),
        lambda at: pages.index((at / "report.html").read_text()),
    )


def of_history() -> Kind:
    def write(at: Path, turn: int) -> None:
        del turn  # nothing is overwritten
        store = Store(at / "history.db")
        try:
            now = time.time()
            store.add(Point(now, str(name), now) for name in range(POINTS))
        finally:
            store.close()

    def read(at: Path) -> None:
        store = Store(at / "history.db")
        times = Counter(point.time for point in store.since(0.0, 10**6))
        store.close()
        assert set(times.values()) == {POINTS}, times

    return Kind(write, read)


def of_lock() -> Kind:
    def hold(at: Path, turn: int = 0) -> None:
        with held(at / "lock"):
            del turn  # it is held, or it is not

    return Kind(hold, hold)


def of_lease() -> Kind:
    def write(at: Path, turn: int) -> None:
        os.environ["CLOUDCOLL_HOME"] = str(at)
        os.close(take_lease(f"vm-{turn}-{i}" for i in range(1000)))

    def read(at: Path) -> None:
        os.environ["CLOUDCOLL_HOME"] = str(at)
        assert not leased_hosts()
        assert not list(leases_dir().glob("*.json"))

    return Kind(write, read)


def of_spool() -> Kind:
    plan = plan_probes(HOSTS)
    first = next(iter(plan.rounds()))
    row = {"type": "rtt", "slot": first.number, "sent": 200, "ns": [70_000] * 200}

    def write(at: Path, turn: int) -> None:
        del turn  # what is added is the same
        set_aside(at / "a.partial")
        with start_spool(at / "a.partial", HOSTS, plan) as file:
            for src, dst in first.pairs:
                add_row(file, (src, {**row, "peer": dst}))

    def read(at: Path) -> None:
        for path in (at / "a.partial", at / "a.partial.old"):
            if path.exists():
                load_spool(path, HOSTS, plan, Results(plan))

    return Kind(write, read)


def of_certificates() -> Kind:
    host = (Host("vm-1"),)

    def read(at: Path) -> None:
        for cert in at.rglob("cert.pem"):
            files = (cert.with_name(name) for name in ("key.pem", "ca.pem"))
            Credentials(cert, *files).client()

    return Kind(lambda at, _: write_all(host, at / "pki", 30), read)


KINDS = {
    "snapshot": of_snapshot,
    "rank map": of_map,
    "bench result": of_bench,
    "report, export": of_page,
    "history": of_history,
    "daemon's lock": of_lock,
    "lease of a job": of_lease,
    "rows of a probe": of_spool,
    "certificates": of_certificates,
}


def show_kills(kinds: Sequence[str], points: int) -> int:
    """Kill writers at random moments; return how often something was not whole."""
    bad = 0
    source = random.Random(0)
    print(f"{points} kills each  not whole  temporary files left")
    for name in kinds:
        kind = KINDS[name]()
        with tempfile.TemporaryDirectory() as folder:
            at = Path(folder)
            kind.write(at, 0)
            usual = len(list(at.rglob("*")))
            broken = 0
            for _ in range(points):
                _killed(kind, at, source.uniform(0.0, LONGEST_S))
                broken += not _goes_on(kind, at)
            left = len(list(at.rglob("*"))) - usual
        print(f"{name:>16} {broken:14} {left:21}", flush=True)
        bad += broken
    return bad


def _killed(kind: Kind, at: Path, seconds: float) -> None:
    """Write for so long, again and again, and be killed."""
    writer = os.fork()
    if not writer:
        _write_for_ever(kind, at)
    time.sleep(seconds)
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)


def _write_for_ever(kind: Kind, at: Path) -> NoReturn:
    for turn in itertools.cycle((1, 0)):
        kind.write(at, turn)
    raise AssertionError("it writes for ever")


def _goes_on(kind: Kind, at: Path) -> bool:
    """Return whether old or new content is there, and can be written again."""
    try:
        assert kind.read(at) in (None, 0, 1)
        kind.write(at, 1)
        assert kind.read(at) in (None, 1)
    except (CloudcollError, AssertionError, ValueError) as error:
        print(error)
        return False
    return True


def show_disk(kinds: Sequence[str]) -> int:
    """Print what writers say of a full and a read-only disk; return how many wrong."""
    bad = 0
    for name in kinds:
        for state in ("full", "read-only"):
            with tempfile.TemporaryDirectory() as folder:
                said = _written_to(KINDS[name](), Path(folder), full=state == "full")
            print(f"{name:>16} {state:>10}: {said or 'WRONG'}")
            bad += not said
    return bad


def _written_to(kind: Kind, at: Path, *, full: bool) -> str:
    """Return what is said of a write to such a disk; nothing if that is wrong."""
    run: Any = subprocess.check_call
    run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", at])
    try:
        kind.write(at, 0)
        kind.read(at)
        if full:
            _fill(at / "fill")
        else:
            run(["mount", "-o", "remount,ro", at])
        said = _refusal(kind, at)
        if full:
            (at / "fill").unlink()
        else:
            run(["mount", "-o", "remount,rw", at])
        if kind.read(at) not in (None, 0) or not _goes_on(kind, at):
            return ""
        return said
    finally:
        run(["umount", at])


def _refusal(kind: Kind, at: Path) -> str:
    """Return the line that a write ends with, if it is one with its place."""
    try:
        kind.write(at, 1)
    except CloudcollError as error:
        said = str(error)
        proper = error.exit_code == 3 and str(at) in said and "\n" not in said
        return said.replace(str(at), "...") if proper else ""
    return "written"  # a lock needs no room


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue  # it is full


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("kills", "disk"))
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--only", action="append", choices=KINDS)
    options = parser.parse_args()
    kinds = options.only or list(KINDS)
    if options.what == "kills":
        return int(show_kills(kinds, options.points) > 0)
    if not os.environ.get("OWN_MOUNTS"):
        os.execvpe(
            OWN_MOUNTS[0],
            [*OWN_MOUNTS, sys.executable, *sys.argv],
            {**os.environ, "OWN_MOUNTS": "1"},
        )
    return int(show_disk(kinds) > 0)


if __name__ == "__main__":
    sys.exit(main())
