from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest
from pki import credentials

from cloudcoll.resident.relay import Relay, Relays, relay
from cloudcoll.tls import AGENT, DRIVER, is_cut

WAIT = 10.0
Pair = tuple[ssl.SSLSocket, ssl.SSLSocket]


def joined() -> Pair:
    """Return two ends of a TLS connection, the first of which is the listener's."""
    one, two = socket.socketpair()
    one.settimeout(WAIT)
    two.settimeout(WAIT)
    host = credentials(AGENT, ["vm-1"])
    here = host.server().wrap_socket(
        one,
        server_side=True,
        do_handshake_on_connect=False,
        suppress_ragged_eofs=False,
    )
    shaking = threading.Thread(target=here.do_handshake)
    shaking.start()
    there = credentials(DRIVER).client().wrap_socket(two, server_hostname="vm-1")
    shaking.join(WAIT)
    return here, there


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = joined()
    with here, there:
        yield here, there


class Ends:
    """A relay in a thread, and the program's ends of its pipes."""

    def __init__(self, conn: ssl.SSLSocket, first: bytes = b"") -> None:
        self._source, self.output = os.pipe()
        self.input, self._sink = os.pipe()
        self.error: OSError | None = None
        self._thread = threading.Thread(target=self._run, args=(conn, first))
        self._thread.start()

    def _run(self, conn: ssl.SSLSocket, first: bytes) -> None:
        try:
            relay(conn, self._source, self._sink, first)
        except OSError as error:
            self.error = error
        os.close(self._sink)

    def read_all(self) -> bytes:
        """Return all that comes until the relay ends."""
        with open(self.input, "rb", closefd=False) as stream:
            return stream.read()

    def close(self) -> None:
        self._thread.join(WAIT)
        assert not self._thread.is_alive()
        for descriptor in (self._source, self.input):
            os.close(descriptor)


def test_both_ways_at_once(pair: Pair) -> None:
    """Tests that megabytes that cross each other arrive whole and in order."""
    here, there = pair
    rng = random.Random(1)
    left, right = rng.randbytes(3 << 20), rng.randbytes(3 << 20)
    one, two = Ends(here), Ends(there)
    seen: dict[str, bytes] = {}

    def read(name: str, end: Ends, size: int) -> None:
        with open(end.input, "rb", closefd=False) as stream:
            seen[name] = stream.read(size)

    def write(end: Ends, data: bytes) -> None:
        with open(end.output, "wb", closefd=False) as stream:
            stream.write(data)

    work = [
        threading.Thread(target=write, args=(one, left)),
        threading.Thread(target=write, args=(two, right)),
        threading.Thread(target=read, args=("there", two, len(left))),
        threading.Thread(target=read, args=("here", one, len(right))),
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(WAIT)
    assert seen == {"there": left, "here": right}
    for end in (one, two):
        os.close(end.output)
        end.close()
    assert one.error is None


def test_what_was_done_with_its_other_end_ends_nothing(pair: Pair) -> None:
    """Tests a turn in which the program has said something, and so has the other end.

    The first of both events passes all on; as the program reads nothing, nobody waits
    for the connection when the second one is looked at.
    """
    here, there = pair
    (source, output), (source_of_program, sink) = os.pipe(), os.pipe()
    os.set_blocking(sink, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(sink, bytes(1 << 16))
    ended: list[OSError | None] = []
    with Relays() as relays:
        relays.add(Relay(here, source, sink), ended.append)
        os.write(output, b"from the program")
        there.sendall(b"from the other end")
        relays.turn()
        assert ended == []
        assert there.recv(100) == b"from the program"
        there.close()  # without a word: nobody has to wait for the program
        relays.turn()
        assert [type(error) for error in ended] == [ConnectionResetError]
    for descriptor in (source, output, source_of_program, sink):
        os.close(descriptor)


def test_the_end_of_output_is_announced(pair: Pair) -> None:
    """Tests that what a program says last arrives, and then that it has ended."""
    here, there = pair
    end = Ends(here, first=b"program")
    assert os.read(end.input, 100) == b"program"
    there.sendall(b"question")
    assert os.read(end.input, 100) == b"question"
    os.write(end.output, b"last")
    os.close(end.output)
    assert there.recv(100) == b"last"
    assert there.recv(100) == b""
    assert end.read_all() == b""
    end.close()
    assert end.error is None


@pytest.mark.parametrize("announced", [True, False])
def test_how_the_other_end_goes(announced: bool, pair: Pair) -> None:
    """Tests that a connection that is cut is told from one that has ended."""
    here, there = pair
    end = Ends(here)
    there.sendall(b"half a frame")
    if announced:
        there.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            there.unwrap()
    there.close()
    assert end.read_all() == b"half a frame"
    os.close(end.output)
    end.close()
    assert is_cut(end.error) != announced


def test_memory_is_bounded(pair: Pair) -> None:
    """Tests that what nobody reads is not taken from who writes."""
    here, there = pair
    end = Ends(here)
    there.settimeout(0.5)
    # Nobody reads `end.input`: pipe, relay and kernel fill up, then it stands.
    with pytest.raises(TimeoutError):
        there.sendall(bytes(64 << 20))
    there.close()
    os.close(end.output)
    while os.read(end.input, 1 << 20):
        pass
    end.close()


def test_a_program_that_takes_nothing_is_not_waited_for(pair: Pair) -> None:
    """Tests that a relay that is stuck hears that its connection is gone."""
    here, there = pair
    end = Ends(here)
    there.settimeout(0.5)
    with pytest.raises(TimeoutError):
        there.sendall(bytes(64 << 20))
    socket.socket.shutdown(there, socket.SHUT_RDWR)
    end._thread.join(WAIT)
    assert isinstance(end.error, ConnectionResetError)
    os.close(end.output)
    end.close()


def test_one_that_is_stuck_holds_up_no_other() -> None:
    """Tests that relays in one thread go on beside one whose program reads nothing."""
    ends: list[int] = []
    told: list[tuple[str, OSError | None]] = []
    with Relays() as relays, contextlib.ExitStack() as open_ends:

        def add(name: str) -> tuple[ssl.SSLSocket, int, int]:
            here, there = joined()
            open_ends.enter_context(here)
            open_ends.enter_context(there)
            (source, output), (answer, sink) = os.pipe(), os.pipe()
            ends.extend((source, output, answer, sink))
            one = Relay(here, source, sink)
            relays.add(one, lambda error: told.append((name, error)))
            there.setblocking(False)
            return there, output, answer

        stuck, _, _ = add("stuck")
        with contextlib.suppress(ssl.SSLWantWriteError):
            while True:
                stuck.send(bytes(1 << 16))
                relays.turn()
        there, output, answer = add("other")
        there.send(b"question")
        _turn_until(relays, answer)
        assert os.read(answer, 100) == b"question"
        os.close(output)
        ends.remove(output)
        while not told:
            relays.turn()
        assert told == [("other", None)]
        socket.socket.shutdown(stuck, socket.SHUT_RDWR)
        while len(relays):
            relays.turn()
        assert isinstance(told[1][1], ConnectionResetError)
    for end in ends:
        os.close(end)


def _turn_until(relays: Relays, descriptor: int) -> None:
    while not select.select([descriptor], [], [], 0)[0]:
        assert select.select([relays], [], [], WAIT)[0]
        relays.turn()
