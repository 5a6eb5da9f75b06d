"""What others do on a lab's hosts: one paced TCP stream, or a hog of CPU time.

Runs on the hosts, so it needs the standard library only.

    neighbour.py receive FILE SECONDS                   prints the port it listens on
    neighbour.py send    FILE SECONDS HOST PORT RATE    RATE in bytes/s
    neighbour.py compute FILE SECONDS

Each goes to the background when it listens, is connected or begins, and ends
after SECONDS, or soon after FILE is removed.
"""

from __future__ import annotations

import os
import socket
import sys
import time

CHUNK = 64 * 1024
POLL = 0.2
"""Seconds between two looks at the file, and the longest a call may block."""
STRETCH = 5_000_000
"""Turns of an empty loop between two looks: a tenth of a second or two."""


def go_to_background() -> None:
    """Let the caller go on: it waits for this process, and for its output."""
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):
        os.dup2(null, file)


def receive(flow: str, until: float) -> None:
    """Accept one stream and throw its bytes away."""
    with socket.create_server(("", 0)) as server:
        print(server.getsockname()[1], flush=True)
        go_to_background()
        server.settimeout(max(0.0, until - time.monotonic()))
        stream, _ = server.accept()
    with stream:
        stream.settimeout(POLL)
        while time.monotonic() < until and os.path.exists(flow):
            try:
                if not stream.recv(CHUNK):
                    return
            except TimeoutError:
                continue


def send(flow: str, until: float, address: tuple[str, int], rate: float) -> None:
    """Send zeros at `rate` bytes/s."""
    chunk = bytes(CHUNK)
    with socket.create_connection(address, timeout=10) as stream:
        go_to_background()
        stream.settimeout(POLL)
        start = time.monotonic()
        sent = 0
        while time.monotonic() < until and os.path.exists(flow):
            ahead = sent / rate - (time.monotonic() - start)
            if ahead > 0:
                time.sleep(min(ahead, POLL))
                continue
            try:
                sent += stream.send(chunk)
            except TimeoutError:
                continue


def compute(file: str, until: float) -> None:
    """Take the time of a core."""
    go_to_background()
    # Linux shares the cores out among sessions first (sched(7), autogroup): it is
    # to take its share whatever else the session does that started the lab.
    os.setsid()
    while time.monotonic() < until and os.path.exists(file):
        for _ in range(STRETCH):
            pass


def main() -> None:
    """Do what the command line says."""
    role, flow, seconds, *rest = sys.argv[1:]
    until = time.monotonic() + float(seconds)
    try:
        if role == "receive":
            receive(flow, until)
        elif role == "compute":
            compute(flow, until)
        else:
            send(flow, until, (rest[0], int(rest[1])), float(rest[2]))
    finally:
        if os.path.exists(flow):
            os.unlink(flow)


if __name__ == "__main__":
    main()
