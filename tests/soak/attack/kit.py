"""What attacks have in common: a process each, other users, the program itself."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cloudcoll.plain import plain_line

ROOT = Path(__file__).parents[3]
LIMIT_S = 10.0
"""Seconds that an attack has; what takes longer has kept the program busy."""

STRANGER = 12345
"""A user that nobody is."""

KEPT: list[Any] = []
"""What a stranger keeps open as long as it is there."""

_OURS = ("CLOUDCOLL_RSH", "CLOUDCOLL_DAEMON", "CLOUDCOLL_LAB", "CLOUDCOLL_MAP")


class Succeeded(Exception):
    """An attack reached what it was after; the message says what."""


@dataclass(frozen=True)
class Attack:
    """What is tried.

    Attributes
    ----------
    name : str
    act : callable
        Returns what was seen, or raises `Succeeded`.
    root : bool
        Whether it needs other users.
    """

    name: str
    act: Callable[[], str]
    root: bool


ATTACKS: dict[str, Attack] = {}
"""By name, in the order in which they are defined."""


def attack(*, root: bool = False) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Add a function to the attacks."""

    def added(act: Callable[[], str]) -> Callable[[], str]:
        name = act.__name__
        assert name not in ATTACKS, name
        ATTACKS[name] = Attack(name, act, root)
        return act

    return added


def hold(held: object, otherwise: str) -> None:
    """Raise `Succeeded` unless something holds."""
    if not held:
        raise Succeeded(otherwise)


def tried(one: Attack) -> tuple[str, str]:
    """Return how an attack ended, and what was seen."""
    if one.root and os.geteuid():
        return "not tried", "needs root"
    folder = Path(tempfile.mkdtemp(prefix="attack-", dir="/tmp"))
    folder.chmod(0o755)
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        _run(one, folder, writing)
    os.close(writing)
    try:
        told = b""
        if select.select([reading], [], [], LIMIT_S)[0]:
            told = os.read(reading, 1 << 16)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        shutil.rmtree(folder)
    if not told:
        return "SUCCEEDED", f"not over after {LIMIT_S:g} s"
    ending, seen = json.loads(told)
    return ending, plain_line(seen)


def _run(one: Attack, folder: Path, writing: int) -> NoReturn:
    """Try an attack in this process, which is its own; say how it ended."""
    os.setsid()
    os.chdir(folder)
    for name in ("tmp", "home"):
        (folder / name).mkdir(mode=0o755)
    (folder / "tmp").chmod(0o1777)
    for name in (*_OURS, "XDG_RUNTIME_DIR"):
        os.environ.pop(name, None)
    os.environ |= {
        "TMPDIR": str(folder / "tmp"),
        "CLOUDCOLL_HOME": str(folder / "home"),
        "PYTHONPATH": str(ROOT),
    }
    tempfile.tempdir = None
    try:
        told = ("held", one.act())
    except Succeeded as found:
        told = ("SUCCEEDED", str(found))
    except BaseException as error:
        # What the attack expected of the program is not so: a person has to look.
        traceback.print_exc()
        told = ("BROKEN", f"{type(error).__name__}: {error}")
    os.write(writing, json.dumps([told[0], told[1][:2000]]).encode())
    os._exit(0)


@contextlib.contextmanager
def stranger(act: Callable[[], Any], uid: int = STRANGER) -> Iterator[Any]:
    """Let another user do something and stay; yield what it returned, as JSON has it.

    What it puts into `KEPT` stays open meanwhile.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        told: Any = None
        try:
            os.close(reading)
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            told = act()
        except Exception as error:
            traceback.print_exc()
            told = {"error": str(error)}
        finally:
            os.write(writing, json.dumps(told).encode())
            os.close(writing)
            signal.pause()
            os._exit(0)
    os.close(writing)
    try:
        with open(reading, "rb") as file:
            yield json.loads(file.read())
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def by_stranger(act: Callable[[], Any], uid: int = STRANGER) -> Any:
    """Return what another user's function returned; it is gone afterwards."""
    with stranger(act, uid) as told:
        return told


def refused(act: Callable[[], object]) -> Callable[[], bool]:
    """Return a function that says whether the system refuses to do something."""

    def is_refused() -> bool:
        try:
            act()
        except PermissionError:
            return True
        return False

    return is_refused


def argv(*words: object) -> list[str]:
    """Return the command line of the program."""
    return [sys.executable, "-m", "cloudcoll.cli", *map(str, words)]


def program(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end; what it prints is plain and has no traceback."""
    done = subprocess.run(
        argv(*words),
        env={**os.environ, **env},
        capture_output=True,
        timeout=LIMIT_S - 2,
        check=False,
    )
    out, err = (
        part.decode("utf-8", "backslashreplace") for part in (done.stdout, done.stderr)
    )
    hold("Traceback" not in err, f"a traceback: {err[-300:]}")
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def wait_for(done: Callable[[], object], seconds: float = 5.0) -> bool:
    """Return whether something became true in time."""
    limit = time.monotonic() + seconds
    while not done():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True
