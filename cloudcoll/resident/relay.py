"""Bytes between TLS connections and programs' pipes."""

from __future__ import annotations

import contextlib
import os
import select
import ssl
from collections.abc import Callable

from cloudcoll.tls import announce_end

CHUNK = 1 << 16
"""More than a record of TLS: nothing of one stays behind where no poll sees it."""

OnEnd = Callable[[OSError | None], None]


class Relay:
    """Passes bytes on between a connection and two pipes, both ways.

    What cannot be passed on is not read: memory is bounded by two chunks. What the
    pipe `source` has goes to `conn`, what that has to `sink`, with `first` before all
    else. The end of `conn` is announced to the other side; closing it is the caller's.
    """

    def __init__(
        self, conn: ssl.SSLSocket, source: int, sink: int, first: bytes = b""
    ) -> None:
        self._conn, self._source, self._sink = conn, source, sink
        self._arrived, self._leaving = first, b""
        conn.setblocking(False)
        for pipe in (source, sink):
            os.set_blocking(pipe, False)

    def move(self) -> bool:
        """Pass on what is there; return whether more may come.

        OSError if the connection broke, or was closed without being announced.
        """
        with _unless_stuck():
            self._leaving = self._leaving or os.read(self._source, CHUNK)
            if not self._leaving:
                announce_end(self._conn)
                return False
        with _unless_stuck():
            if self._leaving:
                self._leaving = self._leaving[self._conn.send(self._leaving) :]
        with _unless_stuck():
            self._arrived = self._arrived or self._conn.recv(CHUNK)
            if not self._arrived:
                return False
        with _unless_stuck():
            if self._arrived:
                self._arrived = self._arrived[os.write(self._sink, self._arrived) :]
        return True

    def awaited(self) -> dict[int, int]:
        """Return the descriptors to wait for, and epoll's events of each.

        Of none, the connection's end is heard all the same.
        """
        events = 0 if self._arrived else select.EPOLLIN
        events |= select.EPOLLOUT if self._leaving else 0
        waiting = {self._conn.fileno(): events}
        if not self._leaving:
            waiting[self._source] = select.EPOLLIN
        if self._arrived:
            waiting[self._sink] = select.EPOLLOUT
        return waiting


class Relays:
    """Any number of relays in one thread; none holds up another."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._owner: dict[int, Relay] = {}
        self._awaited: dict[Relay, dict[int, int]] = {}
        self._on_end: dict[Relay, OnEnd] = {}

    def __enter__(self) -> Relays:
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()

    def __len__(self) -> int:
        return len(self._on_end)

    def fileno(self) -> int:
        """Return a descriptor that can be read when `turn` has something to do."""
        return self._epoll.fileno()

    def add(self, one: Relay, on_end: OnEnd) -> None:
        """Serve one more, until `on_end` is told that it has ended, and of what."""
        self._awaited[one], self._on_end[one] = {}, on_end
        self._move(one)

    def turn(self) -> None:
        """Wait until something can be passed on, and pass it on."""
        for descriptor, events in self._epoll.poll():
            one = self._owner.get(descriptor)
            if one is None:
                continue  # it has ended meanwhile
            if self._awaited[one][descriptor]:
                self._move(one)
            elif events & (select.EPOLLERR | select.EPOLLHUP):
                # Told unasked: nobody is there for whom to wait on the program. Other
                # events were asked for when the turn began, and are done with.
                self._end(one, ConnectionResetError())

    def _move(self, one: Relay) -> None:
        try:
            if one.move():
                self._wait(one, one.awaited())
            else:
                self._end(one, None)
        except OSError as error:
            self._end(one, error)

    def _end(self, one: Relay, error: OSError | None) -> None:
        self._wait(one, {})
        del self._awaited[one]
        self._on_end.pop(one)(error)

    def _wait(self, one: Relay, wanted: dict[int, int]) -> None:
        """Have the kernel wake us for `wanted` of this one, and for nothing else."""
        before = self._awaited[one]
        for descriptor in before.keys() - wanted:
            self._epoll.unregister(descriptor)
            del self._owner[descriptor]
        for descriptor, events in wanted.items():
            if descriptor not in before:
                self._epoll.register(descriptor, events)
                self._owner[descriptor] = one
            elif events != before[descriptor]:
                self._epoll.modify(descriptor, events)
        self._awaited[one] = wanted


def relay(conn: ssl.SSLSocket, source: int, sink: int, first: bytes = b"") -> None:
    """Pass bytes on as `Relay`, until either end has no more."""
    ended: list[OSError | None] = []
    with Relays() as relays:
        relays.add(Relay(conn, source, sink, first), ended.append)
        while not ended:
            relays.turn()
    if ended[0]:
        raise ended[0]


def _unless_stuck() -> contextlib.suppress:
    """Suppress what says that a descriptor is not ready."""
    return contextlib.suppress(
        BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError
    )
