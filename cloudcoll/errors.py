"""The errors CloudColl raises on purpose, each with the exit code it ends in.

A message is one line: what was asked, what exists, what to do next. Only
``cloudcoll.cli.main`` catches these, prints the message and exits.
"""

from __future__ import annotations


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
