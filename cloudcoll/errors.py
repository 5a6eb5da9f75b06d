"""The errors CloudColl raises on purpose, each with the exit code it ends in.

A message is one line: what was asked, what exists, what to do next. What nobody
catches before, ``cloudcoll.cli.commands`` prints, and exits.
"""

from __future__ import annotations

from collections.abc import Iterable


class CloudcollError(Exception):
    """Base of every error that is the user's to read, not a bug of ours."""

    exit_code = 1


class UsageError(CloudcollError):
    """The command line or a file named on it does not make sense."""

    exit_code = 2


class UnusableError(CloudcollError):
    """Nothing usable: no host answered, or a result file is not intact."""

    exit_code = 3


class LaunchError(CloudcollError):
    """CloudColl itself failed before the user's program was started."""

    exit_code = 125


def nearest(wrong: str, names: Iterable[str]) -> str:
    """Return ``did you mean ring? `` for an unknown name; empty if none is near."""
    from difflib import get_close_matches

    near = " or ".join(get_close_matches(wrong, list(names), n=2))
    return f"did you mean {near}? " if near else ""


def known_names(wrong: str, names: Iterable[str]) -> str:
    """Return the words that follow an unknown name: what it may mean, what exists.

    Parameters
    ----------
    wrong : str
        The name that was asked for.
    names : iterable of str
        Those that there are.

    Examples
    --------
    >>> known_names("ri ng", ["ring", "tree"])
    "(did you mean ring? known: ring, tree)"
    """
    names = list(names)
    return f"({nearest(wrong, names)}known: {', '.join(names)})"
