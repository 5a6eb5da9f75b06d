"""Bytes between a TLS connection and a program's two pipes."""

from __future__ import annotations

import contextlib
import os
import select
import ssl

from cloudcoll.tls import announce_end

CHUNK = 1 << 16


def relay(conn: ssl.SSLSocket, source: int, sink: int, first: bytes = b"") -> None:
    """Pass bytes on, both ways, until either end has no more.

    What cannot be passed on is not read: memory is bounded by two chunks.

    Parameters
    ----------
    conn : ssl.SSLSocket
        Its end is announced to the other side; closing it is the caller's.
    source, sink : int
        Descriptors of pipes: what is read goes to `conn`, what `conn` has to
        `sink`.
    first : bytes
        Goes to `sink` before all else.

    Raises
    ------
    OSError
        The connection broke, or was closed without being announced.
    """
    conn.setblocking(False)
    for pipe in (source, sink):
        os.set_blocking(pipe, False)
    arrived, leaving = first, b""
    while True:
        moved = False
        with _unless_stuck():
            leaving = leaving or os.read(source, CHUNK)
            if not leaving:
                announce_end(conn)
                return
        with _unless_stuck():
            if leaving:
                leaving = leaving[conn.send(leaving) :]
                moved = True
        with _unless_stuck():
            arrived = arrived or conn.recv(CHUNK)
            if not arrived:
                return
        with _unless_stuck():
            if arrived:
                arrived = arrived[os.write(sink, arrived) :]
                moved = True
        if not moved:
            _wait(conn, source, sink, arrived, leaving)


def _unless_stuck() -> contextlib.suppress:
    """Suppress what says that a descriptor is not ready."""
    return contextlib.suppress(
        BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError
    )


def _wait(
    conn: ssl.SSLSocket, source: int, sink: int, arrived: bytes, leaving: bytes
) -> None:
    """Wait until something can be passed on, or the kernel has ended `conn`."""
    waiting = select.poll()
    events = (0 if arrived else select.POLLIN) | (select.POLLOUT if leaving else 0)
    waiting.register(conn, events)
    if not leaving:
        waiting.register(source, select.POLLIN)
    if arrived:
        waiting.register(sink, select.POLLOUT)
    for descriptor, _ in waiting.poll():
        if descriptor == conn.fileno() and not events:
            # Told unasked: nobody is there for whom to wait on the program.
            raise ConnectionResetError
