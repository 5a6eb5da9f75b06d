from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefixed import run

from cloudcoll.daemon.servers import served
from cloudcoll.daemon.view import MapView, View
from cloudcoll.files import snapshot_file
from cloudcoll.hosts import Host, host_set_key
from cloudcoll.local_daemon import leases_dir, socket_path
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.rankmap import RankMap
from cloudcoll.work.order import collective_words, question_key
from cloudcoll.work.sent import choose

NAMES = ("a", "b", "c", "d")
HOSTS = tuple(map(Host, NAMES))
LAUNCHER = (
    '#!/bin/sh\n[ "$*" = --version ] && echo "mpirun (Open MPI) 5.0.11" || echo "$@"\n'
)
JOB = ("--no-probe", "-v", "./mpirun", "--hostfile", "hosts", "app")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a launcher and a list of hosts."""
    path = tmp_path / "mpirun"
    path.write_text(LAUNCHER)
    path.chmod(0o755)
    (tmp_path / "hosts").write_text("".join(f"{name} slots=1\n" for name in NAMES))
    return tmp_path


def view(tmp_path: Path, *, order: str = "", key: str = "") -> View:
    """Return what a daemon knows: a snapshot of racks a, c and b, d, or a map too."""
    racks = [
        Node(rack, tuple(Node(name, (), 50e6, 50e6) for name in rack), 50e6, 50e6)
        for rack in ("ac", "bd")
    ]
    # Two days old: fresh by the daemon's word alone.
    made = NetworkSnapshot(
        HOSTS,
        fabric=Fabric(Node("core", tuple(racks))),
        created=time.time() - 2 * 86400,
    )
    digest = made.save(tmp_path / "other" / "snap").digest
    chosen = choose("allreduce", "auto", "openmpi@5.0.11", (1,) * 4, 16 << 20)
    words = collective_words("allreduce", 16 << 20, chosen)
    question = question_key(words, NAMES, (1,) * 4)
    maps = (MapView(question, RankMap(tuple(order), (1,) * 4)),) if order else ()
    return View(
        version="1",
        now=0.0,
        started=0.0,
        key=key or host_set_key(HOSTS),
        snapshot=tmp_path / "other" / "snap",
        digest=digest,
        confirmed=0.0,
        stale_after=60.0,
        maps=maps,
    )


def test_the_daemons_map_is_taken(folder: Path) -> None:
    """Tests that a job starts in the order that a daemon keeps for it."""
    known = view(folder, order="adcb")
    with served(socket_path(), lambda: known, all_users=False):
        code, out, err = run(folder, *JOB)
    assert (code, out.count("--map-by seq")) == (0, 1)
    assert "order: a d c b" in err


def test_the_daemons_snapshot_is_taken(folder: Path) -> None:
    """Tests another question: its snapshot is copied, and fresh by its word."""
    known = view(folder)
    with served(socket_path(), lambda: known, all_users=False):
        first, second = run(folder, *JOB), run(folder, *JOB, python="-X importtime")
    for code, _, err in (first, second):
        assert code == 0
        assert "order: a c b d" in err
        assert " h old" not in err
    assert known.snapshot
    kept = snapshot_file(host_set_key(HOSTS)).read_bytes()
    assert kept == known.snapshot.read_bytes()
    assert "numpy" not in second[2]


def test_a_damaged_snapshot_is_not_taken(folder: Path) -> None:
    """Tests that the file that was there stays, and the job starts."""
    known = view(folder)
    ours = snapshot_file(host_set_key(HOSTS))
    ours.parent.mkdir(parents=True)
    ours.write_bytes(b"old")
    assert known.snapshot
    known.snapshot.write_bytes(known.snapshot.read_bytes()[:-1])
    with served(socket_path(), lambda: known, all_users=False):
        code, out, err = run(folder, *JOB)
    assert (code, out) == (0, "--hostfile hosts app\n")
    assert "the daemon's snapshot is damaged; going on without" in err
    assert ours.read_bytes() == b"old"


@contextlib.contextmanager
def talker(*, endless: bool) -> Iterator[None]:
    """Listen where the daemon does, and answer one request with noise."""
    socket_path().parent.mkdir(parents=True, exist_ok=True)

    def talk() -> None:
        conn, _ = listener.accept()
        with conn, contextlib.suppress(OSError):
            conn.sendall(b"\0garbage\r\n" * 100)
            while endless:
                conn.sendall(bytes(1 << 16))

    with socket.create_server(str(socket_path()), family=socket.AF_UNIX) as listener:
        thread = threading.Thread(target=talk)
        thread.start()
        yield
        thread.join(timeout=120)


@pytest.mark.parametrize("endless", [False, True])
def test_who_talks_nonsense_is_no_daemon(folder: Path, endless: bool) -> None:
    """Tests that a job starts as without one, whatever its socket says for ever."""
    with talker(endless=endless):
        code, out, err = run(folder, *JOB)
    assert (code, out) == (0, "--hostfile hosts app\n")
    assert "no snapshot of the 4 hosts" in err


@pytest.mark.parametrize("what", ["other hosts", "no map of these", "stale", "mute"])
def test_a_daemon_that_is_no_help(folder: Path, what: str) -> None:
    """Tests that the job starts as without one."""
    known = view(folder, order="wxyz" if what == "no map of these" else "", key="k")
    if what == "stale":
        known = View(version="1", now=0.0, started=0.0)
    if what == "mute":
        socket_path().parent.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(socket_path()))
            mute.listen()
            code, out, err = run(folder, *JOB)
    else:
        with served(socket_path(), lambda: known, all_users=False):
            code, out, err = run(folder, *JOB)
    assert (code, out) == (0, "--hostfile hosts app\n")
    assert "no snapshot of the 4 hosts" in err


def test_a_job_tells_the_daemon_its_hosts(folder: Path) -> None:
    """Tests the lease that a job holds while it runs."""
    known = view(folder, order="adcb")
    show = LAUNCHER.replace('echo "$@"', f"cat {leases_dir()}/*")
    (folder / "mpirun").write_text(show)
    with served(socket_path(), lambda: known, all_users=False):
        code, out, _ = run(folder, *JOB)
    assert code == 0
    assert json.loads(out) == list(NAMES)
    run(folder, *JOB)
    assert len(list(leases_dir().iterdir())) == 1
