"""All that reads what others write: right inputs of each, and who takes them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import socket
import ssl
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import fuzz_frames
import fuzz_tls
import numpy as np

from cloudcoll.bench.result import BenchRun
from cloudcoll.cli.daemon import command as daemon
from cloudcoll.cli.daemon import known_status, take_config
from cloudcoll.collectives.workload import read_workload
from cloudcoll.daemon.responses import answer
from cloudcoll.daemon.servers import Handler
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.view import HostView, MapView, Point, View
from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host, parse_hosts
from cloudcoll.importers import READERS, read_matrices
from cloudcoll.importers.labels import read_names
from cloudcoll.launch.formats import FORMATS
from cloudcoll.launch.roll import Roll
from cloudcoll.launch.seal import PUBLIC, Seal
from cloudcoll.libraries.open_mpi_rules import file_rule
from cloudcoll.local_daemon import _parsed
from cloudcoll.measured.merge import merge_snapshots
from cloudcoll.measured.snapshot import MAGIC, SCHEMA, NetworkSnapshot, parse_snapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.probe.plan import plan_probes
from cloudcoll.probe.results import Results
from cloudcoll.probe.spool import add_row, load_spool, start_spool
from cloudcoll.profile import read_profile
from cloudcoll.rankmap import RankMap
from cloudcoll.report.bench import bench_lines, ratio_lines, table_lines
from cloudcoll.report.maps import map_json, map_lines
from cloudcoll.report.snapshot import snapshot_json, snapshot_lines
from cloudcoll.report.story import tell
from cloudcoll.report.traffic import profile_lines
from cloudcoll.resident import LENGTH, check_greeting, greeting, read_answer

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


def of_request() -> Target:
    """Return requests to the daemon, by its socket or HTTPS."""

    def take(data: bytes) -> bool:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(data[:8192])
            theirs.shutdown(socket.SHUT_WR)
            Handler(lambda path: answer(path, VIEW), ours, ("::1", 1), None)
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
        "a slots=4 # x\nb\nu@c max_slots=3\n",
        "rank 0=a slot=0-1\nrank 1=n0 slot=2\n",
        "node[01-16,20]\nb[1-2]c[3,4]:2\n[::1]:2\n10.0.0.1\n",
    )
    return Target(
        [one.encode() for one in lists],
        text(lambda said: parse_hosts(said, "fuzz")),
        most_mb=128,
    )


def measured() -> tuple[bytes, bytes]:
    """Return two snapshots as their files have them; the second is merged."""
    fabric = racks((2, 2), seed=1)
    probed = [
        replace(observe(fabric, samples=2, seed=n), fabric=fabric) for n in (1, 2)
    ]
    facts = {name: {"boot_id": "b", "address": "10.0.0.1"} for name in fabric.hosts}
    said = {"agents": facts, "seconds": 1.5, "sent_bytes": 7, "transport": "ssh"}
    first, second = (replace(one, metadata=said) for one in probed)
    merged = merge_snapshots([replace(first, digest="1"), replace(second, digest="2")])
    return first.to_bytes(), merged.with_fabric(fabric).to_bytes()


def shown(snapshot: NetworkSnapshot) -> bool:
    """Return whether a snapshot that was read can be shown, or refuses."""
    snapshot_lines(snapshot, 80)
    json.dumps(snapshot_json(snapshot, matrices=True), allow_nan=False)
    return True


def sealed(payload: bytes) -> bytes:
    """Return a snapshot's file whose checksum is right."""
    digest = hashlib.sha256(payload).hexdigest()
    return f"{MAGIC} {SCHEMA} {digest} {len(payload)}\n".encode() + payload


def of_snapshot() -> Target:
    """Return the header of a snapshot whose checksum is right."""
    payloads = [whole.partition(b"\n")[2] for whole in measured()]
    arrays = []
    for payload in payloads:
        with np.load(io.BytesIO(payload)) as file:
            arrays.append({name: file[name] for name in file.files})

    def take(data: bytes) -> bool:
        buffer = io.BytesIO()
        own = arrays[b'"merged"' in data]
        np.savez(buffer, **{**own, "header": np.frombuffer(data, np.uint8)})
        return shown(parse_snapshot(sealed(buffer.getvalue()), "fuzz"))

    return Target([one["header"].tobytes() for one in arrays], take, 20_000, 64)


def of_archive() -> Target:
    """Return the archive of a snapshot, whose checksum is right."""
    payloads = []
    for whole in measured():
        with np.load(io.BytesIO(whole.partition(b"\n")[2])) as file:
            buffer = io.BytesIO()
            np.savez(buffer, **{name: file[name] for name in file.files})
        # Not compressed: what is flipped is a number, or a word of a header.
        payloads += [buffer.getvalue(), whole.partition(b"\n")[2]]

    def take(data: bytes) -> bool:
        return shown(parse_snapshot(sealed(data), "fuzz"))

    return Target(payloads, take, 20_000, 64)


def of_file(
    read: Callable[[Path], object], *seeds: str | bytes, suffix: str = ""
) -> Callable[[], Target]:
    """Return what reads a file that the user names."""

    def target() -> Target:
        kept = tempfile.TemporaryDirectory(dir=RAM)  # as long as `take`
        path = Path(kept.name) / f"file{suffix}"
        path.touch(0o600)

        def take(data: bytes) -> bool:
            path.write_bytes(data)
            made = read(path)
            return shown(made) if isinstance(made, NetworkSnapshot) else bool(kept)

        rights = [one.encode() if isinstance(one, str) else one for one in seeds]
        return Target(rights, take, 20_000, 64)

    return target


def npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.full((3, 3), 50.0))
    return buffer.getvalue()


def three_hosts(path: Path) -> NetworkSnapshot:
    """Return the snapshot of a matrix whose rows have no names."""
    return read_matrices(path, hosts=parse_hosts("a b c".replace(" ", "\n"), "fuzz"))


def from_map(said: str) -> None:
    """Read a map, show it and write it in each format."""
    read = RankMap.from_json(said, "fuzz")
    "\n".join(map_lines(read))
    json.dumps(map_json(read))
    for write in FORMATS.values():
        with contextlib.suppress(UsageError):  # no address is known, or an IPv6 one
            write(read)


def from_bench(said: str) -> None:
    """Read a bench result and tell it in all ways."""
    run = BenchRun.from_json(said, "fuzz")
    "\n".join([*bench_lines(run), *table_lines(run), *ratio_lines(run)])
    tell([run], None).to_text()
    run.to_json()


def from_profile(said: str) -> None:
    """Read a profile, show it and make a workload of it."""
    profile = read_profile(said, "fuzz")
    "\n".join(profile_lines(profile, "fuzz"))
    profile.workload("fuzz")


def options(path: Path) -> None:
    """Read options of `cloudcoll daemon` from a file."""
    context = daemon.make_context("daemon", [], resilient_parsing=True)
    take_config(context, daemon.params[0], path)


TREE = {
    "name": "core",
    "children": [
        {"name": f"rack-{i}", "uplink_bytes_per_s": 1.25e9, "latency_s": 2e-5}
        | {"children": [{"name": f"vm-{i}-{k}"} for k in range(2)]}
        for i in range(2)
    ],
}
LABELS = (
    {"Instances": [{"InstanceId": "i-1", "NetworkNodes": ["x", "y"], "ZoneId": "z"}]},
    [{"name": "a", "zone": "z/1", "resourceStatus": {"physicalHost": "/a/b/c"}}],
    {
        "items": [
            {"metadata": {"name": "a", "labels": {"topology.kubernetes.io/zone": "z"}}}
        ]
    },
)
TOPOGRAPH = {"instances": [{"id": "a", "network_layers": ["s1"], "labels": {"k": "v"}}]}
WORKLOAD = {
    "parallel": "tp=2,dp=2",
    "groups": {"towers": [[0, 1], [2, 3]]},
    "operations": [
        {"collective": "allreduce", "groups": "dp", "bytes": "64M", "calls": 8},
        {"collective": "allgather", "groups": "towers", "bytes": 64},
    ],
}
MPIGRAPH = (
    "START mpiGraph v1.5\nSend\ta:0\tb:1\na:0 to\t0\t9\nb:1 to\t9\t0\n"
    "Recv\ta:0\tb:1\na:0 from\t0\t900\nb:1 from\t800\t0\n"
)
STATUS = {
    "hosts": [{"name": "a", "failed": ""}],
    "phase": "watch",
    "fresh": True,
    "maps": [{"order": ["a"]}],
    "trouble": "",
}


def of_spool() -> Target:
    """Return the rows that a probe left."""
    plan = plan_probes(tuple(map(Host, "abcd")))
    first = next(iter(plan.rounds()))
    kept = tempfile.TemporaryDirectory(dir=RAM)  # as long as `take`
    path = Path(kept.name) / "a.partial"
    hosts = tuple(map(Host, "abcd"))
    with start_spool(path, hosts, plan) as file:
        for src, dst in first.pairs:
            row = {"type": "rtt", "slot": first.number, "peer": dst, "sent": 3}
            add_row(file, (src, {**row, "ns": [70_000] * 3}))

    def take(data: bytes) -> bool:
        path.write_bytes(data)
        load_spool(path, hosts, plan, Results(plan))
        return bool(kept)

    return Target([path.read_bytes()], take, 20_000)


def of_bench() -> Target:
    about = {
        "algorithm": "ring",
        "hosts": ["a", "b"],
        "library": "x",
        "ranks": 2,
        "start_time": 1.7e9,
        "end_time": 1.8e9,
        "choices": ["c"],
        "args": ["a", 1],
        "left_out": {"sorted": "it failed"},
        "spared": {"orders": ["x"], "sizes": [8], "seconds": 1.0, "needed": None},
    }
    row = {"op": "allreduce", "bytes": 8, "repeat": 0, "time_us": 1.0, "wrong": 0}
    orders: dict[str, tuple[str, ...]] = {"given": ("a", "b"), "cloudcoll": ("b", "a")}
    rows = tuple(
        {**row, "order": order, "repeat": i} for i in range(3) for order in orders
    )
    model = {"8": {"given": 2e-6, "cloudcoll": 1e-6}}
    run = BenchRun(about, orders, {"grouped": "cloudcoll"}, rows, model)
    return Target([run.to_json().encode()], text(from_bench), 20_000)


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
    return Target([json.dumps(profile).encode()], text(from_profile), 20_000, 64)


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
    "archive": of_archive,
    "fabric": of_file(READERS["fabric"], json.dumps(TREE)),
    "labels": of_file(READERS["labels"], *map(json.dumps, LABELS), "a x/y\nb x/z\n"),
    "slurm": of_file(
        READERS["slurm"],
        "SwitchName=s1 Nodes=a[1-3]\nSwitchName=s2 Nodes=b LinkSpeed=40\n"
        "SwitchName=c Switches=s[1-2]\n",
        "BlockName=b1 Nodes=a[1-3]\nBlockName=b2 Nodes=b\nBlockSizes=3\n",
    ),
    "topograph": of_file(READERS["topograph"], json.dumps(TOPOGRAPH)),
    "matrix": of_file(read_matrices, ",a,b,c\na,,50,60\nb,50,,70\nc,60,70,\n"),
    "npy": of_file(three_hosts, npy(), suffix=".npy"),
    "mpigraph": of_file(lambda path: read_matrices(mpigraph=path), MPIGRAPH),
    "names": of_file(read_names, "i-1 a\ni-2,b # x\n"),
    "workload": lambda: Target(
        [json.dumps(WORKLOAD).encode()],
        text(lambda said: read_workload(said, "fuzz")),
        20_000,
        64,
    ),
    "options": of_file(options, 'hostfile = "h"\nbytes = "1M"\nfree-rank0 = true\n'),
    "rules": of_file(
        lambda path: file_rule(path, "allreduce", 8, 1024),
        "1\n2\n1\n4\n2\n0 1 0 0\n1024 3 0 0\n",
    ),
    "spool": of_spool,
    "status": lambda: Target(
        [json.dumps(STATUS).encode()],
        lambda data: bool(known_status(data, Path("fuzz"))),
    ),
    "map": lambda: Target([MAP.to_json().encode()], text(from_map), 20_000, 64),
    "bench": of_bench,
    "profile": of_profile,
    "history": of_history,
}
