"""All that reads what others write: right inputs of each, and who takes them."""

from __future__ import annotations

import hashlib
import io
import json
import socket
import ssl
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fuzz_frames
import fuzz_tls
import numpy as np

from cloudcoll.bench.result import BenchRun
from cloudcoll.daemon.answers import Answer, answer
from cloudcoll.daemon.asking import _parsed
from cloudcoll.daemon.handler import Handler
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.view import HostView, MapView, Point, View
from cloudcoll.fabric.synth import observe, racks
from cloudcoll.hosts import parse_hosts
from cloudcoll.launch.roll import Roll
from cloudcoll.launch.seal import PUBLIC, Seal
from cloudcoll.profile import read_profile
from cloudcoll.rankmap import RankMap
from cloudcoll.resident.greeting import LENGTH, check_greeting, greeting, read_answer
from cloudcoll.snapshot import MAGIC, SCHEMA, parse_snapshot

RAM = "/dev/shm"
MAP = RankMap(("a", "b"), (1, 1), predicted={"cloudcoll": 1.0})
VIEW = View(
    "1",
    now=10.0,
    started=0.0,
    hosts=(HostView("a", 1e-4), HostView("b", failed="gone")),
    snapshot=Path("none.snap"),
    confirmed=9.0,
    maps=(MapView("q", MAP, 1.25),),
)


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes
    ----------
    seeds : sequence of bytes
        Right inputs.
    take : callable
        Returns whether an input was taken; raises CloudcollError, or nothing, if
        it was refused.
    count : int
        How many inputs are tried if not told otherwise.
    most_mb : int
        By how much memory may grow.
    """

    seeds: Sequence[bytes]
    take: Callable[[bytes], object]
    count: int = 100_000
    most_mb: int = 32


def text(read: Callable[[str], object]) -> Callable[[bytes], bool]:
    """Return a reader of bytes that a file or a datagram has as text."""

    def take(data: bytes) -> bool:
        read(data.decode("utf-8", "replace"))
        return True

    return take


def of_frames() -> Target:
    """Return frames at both ends of a probe; `fuzz_frames.py` makes longer ones."""
    frames = (*fuzz_frames.TO_DRIVER, *fuzz_frames.TO_AGENT)
    bodies = [json.dumps(frame).encode() for frame in frames]
    return Target(
        bodies,
        lambda body: bool(
            fuzz_frames.drive(framed(body)) | fuzz_frames.obey(framed(body))
        ),
        1_000_000,
    )


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def of_hello() -> Target:
    """Return the first bytes of TLS at a listener."""
    with tempfile.TemporaryDirectory() as folder:
        host, driver = fuzz_tls.credentials(Path(folder))
        right, context = fuzz_tls.first_bytes(driver.client()), host.server()

    def take(data: bytes) -> bool:
        heard = ssl.MemoryBIO()
        heard.write(data)
        try:
            context.wrap_bio(heard, ssl.MemoryBIO(), server_side=True).do_handshake()
        except ssl.SSLWantReadError:
            return True  # for more
        except ssl.SSLError:
            return False
        raise AssertionError("a stranger got in")

    return Target([right], take, 1_000_000)


def of_greeting() -> Target:
    """Return what driver and agent say to each other before frames."""
    program = b"the program"

    def take(data: bytes) -> bool:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(data[: 4 * LENGTH])
            theirs.shutdown(socket.SHUT_WR)
            if data[:1] == b"c":
                check_greeting(data[:LENGTH], program)
            else:
                read_answer(ours)
        return True

    return Target([greeting(program), b"welcome\n", b"not now\n"], take)


class Asked(Handler):
    """The daemon's answers on either front."""

    def told(self, path: str) -> Answer:
        """Return the answer to ``GET path``."""
        return answer(path, VIEW)


def of_request() -> Target:
    """Return requests to the daemon, by its socket or HTTPS."""
    server: Any = None  # each front has one of its own

    def take(data: bytes) -> bool:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(data[:8192])
            theirs.shutdown(socket.SHUT_WR)
            Asked(ours, ("::1", 1), server)
            ours.shutdown(socket.SHUT_WR)
            return b" 200 " in theirs.recv(64)

    paths = (b"/v1/map?question=q", b"/metrics", b"/healthz", b"/v1/status", b"/x")
    head = b"GET %s HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nContent-Length: 3\r\n\r\nabc"
    return Target([head % path for path in paths], take)


def of_answer() -> Target:
    """Return what `cloudcoll run` hears from a daemon."""
    body = MAP.to_json().encode()

    def take(data: bytes) -> bool:
        told = _parsed(data)
        return bool(told and RankMap.from_json(told[1].decode("utf-8", "replace")))

    return Target([b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n" + body], take)


def of_roll() -> Target:
    """Return datagrams of ranks that have the preloaded library."""

    def take(data: bytes) -> bool:
        roll, seal = Roll(), Seal(PUBLIC)
        taken = False
        for line in data.split(b"\n"):
            # Nothing of a stranger's gets so far: who writes it has the secret.
            sealed = seal.open(line[:1024])
            datagram = sealed or line[:1024].decode("ascii", "replace")
            taken |= bool(roll.hear(datagram, ("a", 1, 0), 0.0))
        roll.late(3.0)
        return taken

    calls = "here w 0 2 x 0 1", "here w 1 2 y 1 0", "here w 0 2 x 1 1"
    sealed = b"\n".join(map(Seal(PUBLIC).close, calls))
    return Target(["\n".join(calls).encode(), sealed], take)


def of_hostfile() -> Target:
    lists = (
        "a slots=4 # x\nb:2\nu@c max_slots=3\n",
        "rank 0=a slot=0-1\nrank 1=+n0 slot=2\n",
        "node[01-16,20]\nb[1-2]c[3,4]:2\n[::1]:2\n10.0.0.1\n",
    )
    return Target(
        [one.encode() for one in lists],
        text(lambda said: parse_hosts(said, "fuzz")),
        most_mb=128,
    )


def of_snapshot() -> Target:
    """Return the header of a snapshot whose checksum is right."""
    fabric = racks((2, 2), seed=1)
    snapshot = replace(observe(fabric, samples=2, seed=1), fabric=fabric)
    with tempfile.TemporaryDirectory() as folder:
        snapshot.save(Path(folder) / "a.snap")
        _, _, payload = (Path(folder) / "a.snap").read_bytes().partition(b"\n")
    with np.load(io.BytesIO(payload)) as file:
        arrays = {name: file[name] for name in file.files}

    def take(data: bytes) -> bool:
        buffer = io.BytesIO()
        np.savez(buffer, **{**arrays, "header": np.frombuffer(data, np.uint8)})
        whole = buffer.getvalue()
        digest = hashlib.sha256(whole).hexdigest()
        head = f"{MAGIC} {SCHEMA} {digest} {len(whole)}\n".encode()
        return bool(parse_snapshot(head + whole, "fuzz").names)

    return Target([arrays["header"].tobytes()], take, 50_000)


def of_bench() -> Target:
    about = {"algorithm": "ring", "hosts": ["a"], "library": "x", "ranks": 2}
    row = {"op": "allreduce", "bytes": 8, "repeat": 0, "time_us": 1.0, "wrong": 0}
    rows = tuple({**row, "order": "given", "repeat": i} for i in range(3))
    run = BenchRun(about, {"given": ("a",)}, {}, rows)
    return Target([run.to_json().encode()], text(BenchRun.from_json))


def of_profile() -> Target:
    call = {"group": "01", "collective": "allreduce", "calls": 3, "bytes": 8}
    profile = {
        "schema": "cloudcoll-profile-1",
        "ranks": 2,
        "seconds": 1.0,
        "library": "x",
        "groups": {"01": [0, 1]},
        "calls": [{**call, "seconds": 0.1, "least_seconds": 0.1}],
    }
    return Target(
        [json.dumps(profile).encode()], text(lambda said: read_profile(said, "fuzz"))
    )


def of_history() -> Target:
    """Return the daemon's database."""
    kept = tempfile.TemporaryDirectory(dir=RAM)  # as long as `take`
    path = Path(kept.name) / "history.db"
    store = Store(path)
    store.add([Point(float(time), "up 1", 1.0) for time in range(50)])
    store.close()
    whole = path.read_bytes()

    def take(data: bytes) -> bool:
        path.write_bytes(data)
        try:
            found = Store(path)
            try:
                found.since(0.0, 100)
                found.add([Point(60.0, "up 2", 1.0)])
            finally:
                found.close()
        finally:
            for one in Path(kept.name).iterdir():
                one.unlink()
        return True

    return Target([whole], take, 20_000)


TARGETS: dict[str, Callable[[], Target]] = {
    "frames": of_frames,
    "tls": of_hello,
    "greeting": of_greeting,
    "request": of_request,
    "answer": of_answer,
    "roll": of_roll,
    "hostfile": of_hostfile,
    "snapshot": of_snapshot,
    "map": lambda: Target([MAP.to_json().encode()], text(RankMap.from_json)),
    "bench": of_bench,
    "profile": of_profile,
    "history": of_history,
}
