"""Whether a test may run beside those of other processes, or runs alone.

What measures the emulated network needs the machine's cores: tests marked ``alone``
wait for the tests that other processes of pytest-xdist are at, and hold up the next.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


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
