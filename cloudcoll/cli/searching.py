"""Progress of a search on stderr: shared by the commands that solve."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cloudcoll.cli.output import progress_wanted, say

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_S = 2.0
"""Seconds of a search before anything is said about it."""


@contextlib.contextmanager
def search_progress(hosts: int) -> Iterator[Callable[[int, int], None]]:
    """Yield what a search tells its progress: a bar for who watches, else one line.

    Parameters
    ----------
    hosts : int
        That are to be ordered.
    """
    begin = time.monotonic()
    shown: list[Progress | None] = []
    with contextlib.ExitStack() as stack:

        def tell(done: int, planned: int) -> None:
            if time.monotonic() - begin < PATIENCE_S:
                return
            if not shown:
                shown.append(_show(stack, hosts))
            if bar := shown[0]:
                bar.update(bar.task_ids[0], completed=done, total=planned)

        yield tell


def _show(stack: contextlib.ExitStack, hosts: int) -> Progress | None:
    what = f"searching orders of {hosts} hosts"
    if not progress_wanted():
        say(what)
        return None
    from rich.console import Console
    from rich.progress import Progress

    bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
    bar.add_task(what, total=None)
    return bar
