"""One paced TCP stream; runs on the lab's hosts (standard library only).

    traffic.py receive FLOW SECONDS                     prints the port it listens on
    traffic.py send    FLOW SECONDS HOST PORT RATE      RATE in bytes/s

Each goes to the background when it listens or is connected, and ends after
SECONDS, or soon after the file FLOW is removed.
"""

from __future__ import annotations

import os
import socket
import sys
import time

CHUNK = 64 * 1024
POLL = 0.2
"""Seconds between two looks at the file, and the longest a call may block."""


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


def main() -> None:
    """Do what the command line says."""
    role, flow, seconds, *rest = sys.argv[1:]
    until = time.monotonic() + float(seconds)
    try:
        if role == "receive":
            receive(flow, until)
        else:
            send(flow, until, (rest[0], int(rest[1])), float(rest[2]))
    finally:
        if os.path.exists(flow):
            os.unlink(flow)


if __name__ == "__main__":
    main()
