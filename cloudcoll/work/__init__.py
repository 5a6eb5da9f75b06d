"""What the commands do, as functions; and how these report to their caller."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from cloudcoll import units

PATIENCE_S = 2.0
"""Seconds of a search before anything is said about it: most take less."""


class Reporter:
    """Takes lines and progress and drops them; the command line has one that prints."""

    def say(self, line: str) -> None:
        """Take one line for the user: a doubt, a choice that was made, advice."""

    @contextlib.contextmanager
    def progress(
        self, what: str, *, patience: float | None = None
    ) -> Iterator[Callable[[float, float], None]]:
        """Yield what long work calls with how much is done, and how much there is.

        Parameters
        ----------
        what : str
            The work, as in ``probing 16 hosts``.
        patience : float, optional
            Seconds before anything is said of it, at the first news of it; 0 is at
            once. Of work without, nothing is said but to who watches.
        """
        del what, patience
        yield lambda done, planned: None

    def searching(
        self, hosts: int
    ) -> contextlib.AbstractContextManager[Callable[[float, float], None]]:
        """Return the `progress` of a search for the best order of so many hosts."""
        return self.progress(f"searching orders of {hosts} hosts", patience=PATIENCE_S)

    @contextlib.contextmanager
    def measuring(
        self, seconds: float = 0.0
    ) -> Iterator[Callable[[object, float], None]]:
        """Yield what a bench calls with each row and the seconds that are left.

        Parameters
        ----------
        seconds : float
            What it may take, told at once; 0 where nobody knows.
        """
        most = f", at most about {units.seconds(seconds)}" if seconds else ""
        patience = 0.0 if seconds else None
        with self.progress(f"measuring{most}", patience=patience) as tell:
            begun = time.monotonic()

            def on_row(row: object, left: float) -> None:
                del row
                done = time.monotonic() - begun
                tell(done, done + left)

            yield on_row

    def waiting(self, what: str) -> contextlib.AbstractContextManager[object]:
        """Return a context for work of which nobody knows how much is done.

        Parameters
        ----------
        what : str
            The work, as in ``building a lab``; told only to who watches, and only
            if it takes longer than `PATIENCE_S`.
        """
        del what
        return contextlib.nullcontext()


SILENT = Reporter()
"""For those who want the result alone."""
