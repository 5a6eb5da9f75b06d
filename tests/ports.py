"""A port for a server that can't choose its own, as torch's stores and sshd."""

from __future__ import annotations

import random
import socket
from pathlib import Path

GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")


def own_port(address: str = "127.0.0.1") -> int:
    """Return a free port that nobody gets by chance until it is used.

    A port that the kernel gave and that was closed again may be given to the next
    test, or be the near end of its connections: this one is below those given out.
    """
    lowest_given = int(GIVEN_OUT.read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, lowest_given)
        with socket.socket() as one:
            try:
                one.bind((address, port))
            except OSError:
                continue
            return port
