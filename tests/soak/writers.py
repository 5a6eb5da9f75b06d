"""All kinds of files that CloudColl writes, each with its reader."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cloudcoll.bench.result import BenchRun
from cloudcoll.daemon.service import held
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.view import Point
from cloudcoll.files import write_atomic
from cloudcoll.hosts import Host
from cloudcoll.local_daemon import leased_hosts, leases_dir, take_lease
from cloudcoll.measured.snapshot import load_snapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.probe.plan import plan_probes
from cloudcoll.probe.results import Results
from cloudcoll.probe.spool import add_row, load_spool, set_aside, start_spool
from cloudcoll.rankmap import RankMap, load_rankmap
from cloudcoll.tls import Credentials
from cloudcoll.tls.certs import write_all

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
