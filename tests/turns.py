"""Whether a test may run beside those of other processes, or runs alone.

What measures the emulated network needs the machine's cores: tests marked ``alone``
wait for the tests that other processes of pytest-xdist are at, and hold up the next.
Where other programs have the cores, they are skipped.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

STATE = Path("/proc/stat")
SAMPLES, APART_S = 10, 0.01
"""Of how many look for a core: what looks for a millisecond makes no machine busy."""


def is_quiet() -> bool:
    """Whether there is a core for each of those that compute on this machine now."""
    running = []
    for _ in range(SAMPLES):
        found = re.search(r"^procs_running (\d+)", STATE.read_text(), re.MULTILINE)
        running.append(int(found[1]) if found else 0)
        time.sleep(APART_S)
    return statistics.median(running) <= (os.cpu_count() or 1)


class Quiet:
    """Waits for a quiet machine, once only if it does not become one."""

    def __init__(self, patience_s: float = 20.0) -> None:
        self._patience_s = patience_s

    def comes(self) -> bool:
        """Whether the machine is quiet, now or soon."""
        until = time.monotonic() + self._patience_s
        while not is_quiet():
            if time.monotonic() > until:
                self._patience_s = 0.0
                return False
        return True


@contextmanager
def turn(folder: Path, alone: bool) -> Iterator[None]:
    """Hold a place in the room while a test runs, or all of it.

    Whoever wants to be alone keeps the door shut while those inside leave: so it is
    not kept waiting by those who come later.

    Parameters
    ----------
    folder : Path
        All processes of a run have the same.
    alone : bool
    """
    with (folder / "door").open("a") as door, (folder / "room").open("a") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield


class Place:
    """Where one process runs its tests, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn: ExitStack | None = None

    @contextmanager
    def test(self, alone: bool, next_alone: bool) -> Iterator[None]:
        """Have a `turn`; stay where the next test, too, is to be alone.

        The others need not begin tests in between, whose end it would have to wait for.
        """
        if self._turn is None:
            self._turn = ExitStack()
            self._turn.enter_context(turn(self._folder, alone))
        try:
            yield
        finally:
            if not (alone and next_alone):
                self._turn.close()
                self._turn = None


class AloneAtTheEnd(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests go to processes file by file, but all that run alone to one.

    Scattered over a run, each of those would wait for what the others are at.
    """

    def __init__(self, config: pytest.Config, log: object, folder: Path) -> None:
        super().__init__(config, log)
        self._folder = folder

    @staticmethod
    def tell(folder: Path, items: list[pytest.Item]) -> None:
        """Tell which tests run alone: only processes that run tests know."""
        (folder / "alone").write_text(json.dumps([item.nodeid for item in items]))

    @cached_property
    def _alone(self) -> frozenset[str]:
        return frozenset(json.loads((self._folder / "alone").read_text()))

    def _split_scope(self, nodeid: str) -> str:
        return "alone" if nodeid in self._alone else str(super()._split_scope(nodeid))
