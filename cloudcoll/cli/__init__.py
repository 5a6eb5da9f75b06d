"""The command line: one file per command, each thin."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence


class Interrupted(KeyboardInterrupt):
    """A signal that asks us to stop, raised where the program stands.

    What cleans up on Ctrl-C then cleans up on SIGTERM and SIGHUP too.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: see `commands.run`."""
    try:
        # Most of a start goes by in this import: Ctrl-C may come in the midst of it.
        from cloudcoll.cli.commands import run

        return run(argv)
    except KeyboardInterrupt as stop:
        # Not `say`, of whose imports there may be half.
        with contextlib.suppress(OSError):
            print("cloudcoll: interrupted", file=sys.stderr)
        return 128 + (stop.number if isinstance(stop, Interrupted) else 2)
