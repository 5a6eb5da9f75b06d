"""Results to stdout, words to stderr: shared by the commands, and the only way out.

All of it is made plain here (`cloudcoll.plain`), wherever it came from.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from cloudcoll import work
from cloudcoll.plain import plain_line, plain_text, say
from cloudcoll.work import Reporter

if TYPE_CHECKING:
    from rich.progress import Progress

    from cloudcoll.measured.snapshot import NetworkSnapshot

__all__ = [
    "TERMINAL",
    "discard_stdout",
    "line_width",
    "open_standard_files",
    "print_json",
    "print_lines",
    "print_picture",
    "print_snapshot",
    "print_text",
    "print_usage_error",
    "progress_wanted",
    "say",
]


def open_standard_files() -> None:
    """Open what is closed of stdin, stdout and stderr as the null device.

    Else the next file opened would stand in its place, in the job as well.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for at, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(at, "r" if at == 0 else "w"))  # noqa: SIM115


def discard_stdout() -> None:
    """Drop what is still to be written to stdout, which can't be."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_lines(
    lines: Iterable[str], paint: Callable[[str], str] | None = None
) -> None:
    """Print result lines to stdout; a newline in one of them is shown, not printed.

    `paint` colours a line after it was made plain, so that it has no colours but ours.
    """
    plain = map(plain_line, lines)
    click.echo("\n".join(map(paint, plain) if paint else plain))


def print_text(text: str) -> None:
    """Print a text with its newlines to stdout: a file that others will read."""
    click.echo(plain_text(text), nl=False)


def print_json(value: Any) -> None:
    """Print a result as JSON to stdout; strict JSON, so no NaN."""
    import json

    # All but printable ASCII is escaped in it.
    click.echo(json.dumps(value, indent=1, allow_nan=False))


def print_snapshot(snapshot: NetworkSnapshot, *, as_json: bool) -> None:
    """Print what a snapshot says to stdout."""
    from cloudcoll.report.snapshot import snapshot_json, snapshot_lines

    if as_json:
        print_json(snapshot_json(snapshot))
    else:
        print_lines(snapshot_lines(snapshot, line_width()))


def print_picture(snapshot: NetworkSnapshot, order: Sequence[str]) -> None:
    """Print the racks of a snapshot to stdout, and an order's way through them."""
    from cloudcoll.report.findings import honest_fabric
    from cloudcoll.report.heatmap import color_wanted
    from cloudcoll.report.snapshot import paint_lanes, picture_lines

    lines = picture_lines(honest_fabric(snapshot), order, line_width())
    paint = paint_lanes if color_wanted(sys.stdout.isatty()) else None
    print_lines(["", *lines], paint)


def line_width() -> int:
    """Return the columns of the terminal, or as COLUMNS says; 80 for neither."""
    import shutil

    return shutil.get_terminal_size().columns


def print_usage_error(error: click.ClickException) -> None:
    """Print to stderr what click has to say of a command line, its words in a line."""
    words = plain_line(" ".join(error.format_message().split()))
    context: click.Context | None = getattr(error, "ctx", None)
    names = [p.human_readable_name for p in context.command.params] if context else []
    unknown = isinstance(error.__cause__ or error, click.NoSuchOption)
    if unknown and "LAUNCHER" in names:
        words += " Options of the launcher stand behind it."
    click.UsageError(words, context).show()


def progress_wanted() -> bool:
    """Return whether someone watches stderr."""
    return sys.stderr.isatty()


class Terminal(Reporter):
    """Prints words to stderr, and a bar there while someone watches it."""

    def say(self, line: str) -> None:
        """Print a line."""
        say(line)

    @contextlib.contextmanager
    def progress(
        self, what: str, *, patience: float | None = None
    ) -> Iterator[Callable[[float, float], None]]:
        """Yield what moves a bar; where nobody watches, one line after `patience`."""
        begin = time.monotonic()
        shown: list[Progress | None] = []
        with contextlib.ExitStack() as stack:

            def tell(done: float, planned: float) -> None:
                if time.monotonic() - begin < (patience or 0.0):
                    return
                if not shown:
                    shown.append(_bar(stack, what) if progress_wanted() else None)
                    if patience is not None and not shown[0]:
                        say(what)
                if bar := shown[0]:
                    bar.update(bar.task_ids[0], completed=done, total=planned)

            if not patience:
                tell(0, 1)
            yield tell

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show how long work has taken, once that is longer than patience."""
        if not progress_wanted():
            yield
            return
        with contextlib.ExitStack() as stack:
            timer = threading.Timer(work.PATIENCE_S, _bar, (stack, what, True))
            timer.start()
            try:
                yield
            finally:
                timer.cancel()
                # If it shows a bar just now, the stack takes it away again.
                timer.join()


def _bar(stack: contextlib.ExitStack, what: str, endless: bool = False) -> Progress:
    """Show a bar on stderr until the stack is closed.

    With the time left, or if nobody knows that with the time since it began.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    time_column = TimeElapsedColumn() if endless else TimeRemainingColumn()
    columns = (TextColumn(what), BarColumn(), time_column)
    bar = stack.enter_context(
        Progress(*columns, console=Console(stderr=True), transient=True)
    )
    bar.add_task("", total=None)
    (task,) = bar.tasks
    if endless and task.start_time is not None:
        task.start_time -= work.PATIENCE_S
    return bar


TERMINAL = Terminal()
