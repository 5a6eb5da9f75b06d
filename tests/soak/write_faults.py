"""What files are after SIGKILL, and after a disk was full or read-only.

    python tests/soak/write_faults.py kills   # at 500 moments of each file's writes
    python tests/soak/write_faults.py disk    # a tmpfs of 1 MiB that gets full

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from writers import KINDS, Kind

from cloudcoll.errors import CloudcollError

LONGEST_S = 0.03
"""A kill comes before."""
OWN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount")


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
            run(["mount", "-o", "remount,bind,ro", at])
        said = _refusal(kind, at)
        if full:
            (at / "fill").unlink()
        else:
            run(["mount", "-o", "remount,bind,rw", at])
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
