r"""Text that came from elsewhere, made harmless for whoever reads it.

A host's last words, a name in a file or a daemon's answer may hold what moves a
terminal's cursor, sets its title or turns the direction of writing round, and a
newline in it could begin a line that passes for one of ours. So everything that is
printed, and every report, goes through `plain_line`, which shows as ``\x1b`` or
``\u202e`` what `str.isprintable` is false for: control characters, all formatting
characters of Unicode, what is no character at all, and spaces that look like others.

Lines are made plain one by one, before they are put together and coloured: a newline
inside a line is always someone else's.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence


def plain_line(text: str) -> str:
    r"""Return a line as it can be shown; newlines in it are shown as ``\n``.

    Tabs stay: they begin no line. A backslash stays one, too, since this is to be
    read by people, not to be read back.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)


def plain_text(text: str) -> str:
    """Return lines that are put together already as they can be shown.

    For forms in which a newline of someone else's can't be, as in a launcher's host
    file, or means nothing.
    """
    return "\n".join(map(plain_line, text.split("\n")))


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of words in columns, each as wide as its widest word."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(w.ljust(n) for w, n in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def say(message: str) -> None:
    """Print one line about what happens to stderr."""
    # If it can't be written (a full disk), there is nobody to tell, and words are
    # no reason to keep a job from running.
    with contextlib.suppress(OSError):
        print(f"cloudcoll: {plain_line(message)}", file=sys.stderr, flush=True)
