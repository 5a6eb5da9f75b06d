"""Host lists in files that a launcher reads itself."""

from __future__ import annotations

import os
from collections.abc import Callable

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host, read_hosts

Reader = Callable[[str, str], tuple[Host, ...]]
"""Path, and a format of `cloudcoll.hosts` -> hosts."""


def read(path: str, format: str) -> tuple[Host, ...]:
    """Return the hosts of a file, in the order of its lines.

    Raises
    ------
    CloudcollError
        It does not parse, or is a pipe: reading would take it from the launcher.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise LaunchError(f"{path} is not a regular file: give the hosts in one")
    return read_hosts(path, format=format)
