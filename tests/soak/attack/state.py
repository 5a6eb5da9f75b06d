"""State folders that others can read, or have written: locks, stores, programs."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

from attack.kit import (
    KEPT,
    STRANGER,
    attack,
    by_stranger,
    hold,
    program,
    stranger,
)
from cloudcoll.bench.native import compile_bench
from cloudcoll.daemon.service import held
from cloudcoll.daemon.store import SCHEMA, Store
from cloudcoll.daemon.view import Point
from cloudcoll.errors import CloudcollError, UnusableError
from cloudcoll.files import write_atomic
from cloudcoll.hosts import host_set_key, parse_hosts
from cloudcoll.local_daemon import leased_hosts, leases_dir, take_lease
from cloudcoll.measured.snapshot import latest_path

HOME = Path("home")


@attack(root=True)
def keep_a_daemon_from_starting() -> str:
    """Lock the file that a user's daemon locks: to read it is enough for that."""
    lock = HOME / "daemon" / "lock"
    os.umask(0o022)
    with held(lock):
        pass

    def take() -> str:
        try:
            file = lock.open("rb")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return type(error).__name__
        KEPT.append(file)
        return "locked"

    with stranger(take) as told:
        try:
            with held(lock):
                pass
        except UnusableError as error:
            hold(False, f"the daemon does not start: {error}")
    return f"mode {stat.S_IMODE(lock.stat().st_mode):o}: {told}; the daemon starts"


@attack(root=True)
def keep_a_daemon_from_writing() -> str:
    """Hold locks on the history's files, which reading them is enough for."""
    os.umask(0o022)
    with held(HOME / "daemon" / "lock"):  # as a daemon does first
        store = Store(HOME / "daemon" / "history.db")
    store.add([Point(1e9, "up 1", 1.0)])
    paths = sorted(store.path.parent.glob("history.db*"))
    shared = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)

    def take() -> list[str]:
        locked = []
        for path in paths:
            try:
                file = path.open("rb")
                fcntl.fcntl(file, fcntl.F_SETLK, shared)
            except OSError:
                continue
            KEPT.append(file)
            locked.append(path.name)
        return locked

    with stranger(take) as told:
        begin = time.monotonic()
        try:
            store.add([Point(1e9 + 1, "up 1", 2.0)])
        except UnusableError as error:
            took = time.monotonic() - begin
            hold(False, f"{told} locked, after {took:.0f} s: {error}")
    store.close()
    return f"locked {told or 'none'}, and the daemon writes"


@attack(root=True)
def see_what_jobs_run() -> str:
    """Read or end the lease of a user's job, which says what hosts it runs on."""
    os.umask(0)
    lease = take_lease(["vm-1", "vm-2"])
    (path,) = leases_dir().glob("*.json")
    mode = stat.S_IMODE(path.stat().st_mode)

    def look() -> bool:
        return os.access(path, os.R_OK) or os.access(path, os.W_OK)

    hold(not by_stranger(look), f"a stranger reads it: mode {mode:o}")
    hold(leased_hosts() == {"vm-1", "vm-2"}, f"{leased_hosts()}")
    os.close(lease)
    return f"mode {mode:o}"


def in_time(code: str, what: str, seconds: float = 6.0) -> str:
    """Run some lines of Python that must not wait for anybody; return what is said."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        hold(False, f"{what}: it waits for ever")
        raise
    return (done.stdout + done.stderr).strip()


@attack(root=True)
def pipes_among_the_leases() -> str:
    """Put a pipe that nobody writes among the leases of a shared state folder."""
    leases_dir().mkdir()
    leases_dir().chmod(0o1777)
    pipe = leases_dir() / "1-0.json"

    def put() -> None:
        os.umask(0)
        os.mkfifo(pipe)

    by_stranger(put)
    code = "from cloudcoll.local_daemon import leased_hosts; print(leased_hosts())"
    return in_time(code, "a probe that looks for jobs")


@attack(root=True)
def pipes_in_place_of_a_daemons_files() -> str:
    """Put pipes where a shared state folder has the daemon's lock and history."""
    folder = HOME / "daemon"
    folder.mkdir()
    folder.chmod(0o777)

    def put() -> None:
        os.umask(0)
        for name in ("lock", "history.db"):
            os.mkfifo(folder / name)

    by_stranger(put)
    Path("hosts").write_text("127.0.9.1\n127.0.9.2\n")
    done = program("daemon", "--hostfile", "hosts", "--via", "local", "--once")
    hold(done.returncode in (1, 2, 3), f"exit code {done.returncode}: {done.stderr}")
    return done.stderr.strip().splitlines()[-1]


def store_of(script: str) -> Path:
    """Return a history that somebody else has made, with the right schema."""
    path = HOME / "history.db"
    with sqlite3.connect(path) as file:
        file.executescript(f"PRAGMA user_version = {SCHEMA};\n{script}")
    file.close()
    return path


READ = """
import sys
from pathlib import Path
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.view import Point
from cloudcoll.errors import CloudcollError
try:
    store = Store(Path(sys.argv[1]))
    print("read", len(store.since(0, 1000)), len(store.published(10)))
    store.add([Point(1e9, "up 1", 1.0)])
except CloudcollError as error:
    print("refused:", error)
"""

ENDLESS = """
CREATE VIEW series AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c)
    SELECT x AS id, 'up ' || x AS name FROM c;
CREATE TABLE points (series INTEGER, time REAL, value REAL);
INSERT INTO points VALUES (-1, 1e9, 1.0);
"""


@attack()
def a_history_that_never_ends() -> str:
    """Make the daemon read a view that has rows without end."""
    return in_time(
        READ.replace("sys.argv[1]", repr(str(store_of(ENDLESS)))), "a daemon"
    )


TRIGGER = """
CREATE TABLE series (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE points (series INTEGER, time REAL, value REAL);
CREATE TRIGGER evil AFTER INSERT ON points BEGIN
    INSERT INTO points WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c)
        SELECT 1, x, x FROM c;
END;
"""


@attack()
def a_history_with_triggers() -> str:
    """Make the daemon's write fill the disk, by a trigger in its store."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1<<26, 1<<26))\n"
    )
    code += READ.replace("sys.argv[1]", repr(str(store_of(TRIGGER))))
    return in_time(code, "a daemon that writes")


@attack()
def a_history_of_odd_values() -> str:
    """Fill the store with blobs, escapes, numbers without end and long names."""
    path = HOME / "history.db"
    Store(path).close()
    with sqlite3.connect(path) as file:
        for number, name in enumerate(["\x1b]0;owned\x07", "x" * 10**6, "<b>", ""]):
            file.execute("INSERT INTO series VALUES (?, ?)", (number, name))
            for time_, value in ((1e9, 9e999), (2e9, b"\xff" * 100), (3e9, "soon")):
                row = (number, time_, value)
                file.execute("INSERT INTO points VALUES (?, ?, ?)", row)
    file.close()
    return in_time(READ.replace("sys.argv[1]", repr(str(path))), "a daemon")


@attack(root=True)
def a_history_that_leads_elsewhere() -> str:
    """Have a daemon write into a user's file, by a link where its store would be."""
    dear = Path("dear")
    dear.write_text("dear" * 1000)
    folder = HOME / "daemon"
    folder.mkdir()
    folder.chmod(0o777)
    by_stranger(lambda: (folder / "history.db").symlink_to(dear.resolve()))
    try:
        Store(folder / "history.db").close()
        told = "opened"
    except CloudcollError as error:
        told = str(error)
    hold(dear.read_text() == "dear" * 1000, "the file was changed")
    return told


@attack(root=True)
def plant_a_compiled_bench() -> str:
    """Put a program of one's own where a shared state folder has the compiled bench."""
    mpicc = shutil.which("mpicc")
    if not mpicc:
        return "not tried: there is no mpicc"
    right = compile_bench(mpicc)
    name = right.name
    right.unlink()
    right.parent.chmod(0o777)
    program = right.parent / name

    def plant() -> None:
        os.umask(0)
        program.write_text("#!/bin/sh\ntouch owned\n")
        program.chmod(0o777)

    by_stranger(plant)
    try:
        compile_bench(mpicc)
        hold(False, "a folder for everybody is used")
    except CloudcollError as error:
        told = str(error)
    right.parent.chmod(0o755)
    owner = compile_bench(mpicc).stat().st_uid
    hold(owner != STRANGER, "a stranger's program is run on all hosts")
    return f"compiled anew, where the folder is closed; else: {told}"


@attack(root=True)
def lead_an_output_elsewhere() -> str:
    """Put links where a user will write a map, in a folder for everybody."""
    folder, dear = Path("tmp"), Path("dear")
    dear.write_text("dear")
    target = folder / "map.json"
    by_stranger(lambda: target.symlink_to(dear.resolve()))
    write_atomic(target, "new")
    hold(dear.read_text() == "dear", "the link was followed")
    hold(not target.is_symlink(), "the link is still there")
    return "replaced, not followed"


@attack()
def snapshots_that_are_pipes_and_devices() -> str:
    """Have `show` read what has no end, and a state folder's snapshot that waits."""
    ends = []
    for path in ("/dev/zero", "/dev/urandom"):
        done = program("show", path)
        hold(done.returncode in (1, 2, 3), f"{path}: {done.returncode}")
        ends.append(done.stderr.strip())
    return ends[0]


@attack(root=True)
def a_stored_snapshot_that_waits() -> str:
    """Put a pipe where a shared state folder has the snapshot that `run` looks for."""
    names = ["vm-1", "vm-2", "vm-3", "vm-4"]
    Path("hosts").write_text("".join(f"{name} slots=1\n" for name in names))
    hosts = parse_hosts(Path("hosts").read_text(), "hosts")
    path = latest_path(hosts)
    assert host_set_key(hosts) in path.name
    path.parent.mkdir()
    path.parent.chmod(0o777)

    def put() -> None:
        os.umask(0)
        os.mkfifo(path)

    by_stranger(put)
    Path("mpirun").write_text(
        '#!/bin/sh\n[ "$*" = --version ] && echo "mpirun (Open MPI) 5.0.11" || '
        'echo "ran $@"\n'
    )
    Path("mpirun").chmod(0o755)
    try:
        done = program("run", "--no-probe", "./mpirun", "--hostfile", "hosts", "app")
    except subprocess.TimeoutExpired:
        hold(False, "the job does not start")
        raise
    hold(done.stdout.startswith("ran"), f"{done.returncode}: {done.stderr}")
    return done.stderr.strip()
