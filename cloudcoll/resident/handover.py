"""How a host's three pipes get from a driver to the process that serves them.

One message of a Unix socket for each host: words in JSON, and the far ends of
what would be a program's stdin, stdout and stderr.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence

LIMIT = 4096
"""Bytes of the words of a message."""
PIPES = 3


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a socket that keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def hand_over(control: socket.socket, words: Sequence[str], pipes: list[int]) -> None:
    """Send a host's words and the ends of its pipes, which stay the caller's to close.

    Raises
    ------
    OSError
        Nobody takes them.
    """
    socket.send_fds(control, [json.dumps(words).encode()], pipes)


def taken_over(control: socket.socket) -> tuple[list[str], list[int]] | None:
    """Return the next host's words and its stdin, stdout and stderr.

    None at the end of `control`: the driver is gone. A host for whose pipes we have
    no descriptors left is passed over: the driver sees that they are closed.
    """
    while said := (got := socket.recv_fds(control, LIMIT, PIPES))[0]:
        if len(got[1]) == PIPES:
            return json.loads(said), got[1]
        for pipe in got[1]:
            os.close(pipe)
    return None
