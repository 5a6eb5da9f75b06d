from __future__ import annotations

import contextlib
import itertools
import os
import random
import select
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from driven import (
    KEY,
    TO_FIRST,
    TO_SECOND,
    WAIT,
    Driven,
    greet,
    task_of,
    whole,
    with_life,
)

from probes import agent

OTHER = "ab" * 16
SLOTS = itertools.count(1000)
"""Of requests that ask whether what went before has arrived."""


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the lock files of agents that are killed out of the system's /tmp."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def driven() -> Iterator[Driven]:
    one = Driven()
    yield one
    one.close()


@pytest.fixture
def patient() -> Iterator[Driven]:
    """Return an agent on whose strangers this machine may be slow."""
    one = with_life(60.0)
    yield one
    one.close()


def both(key: str, number: int, slot: int = 1, host: int = 0) -> tuple[bytes, bytes]:
    """Return a request and its reply."""
    head = agent.PING.pack(slot, 0, number)
    return agent.exchange(bytes.fromhex(key), host, head)


def request(key: str, number: int) -> bytes:
    return both(key, number)[0]


def echoed(port: int, packets: list[bytes], key: str) -> list[bytes]:
    """Send datagrams; return what comes back until a last, right one is answered.

    One socket's datagrams keep their order on loopback: what is not there by
    then is not coming.
    """
    last, reply = both(key, 0, next(SLOTS))
    back: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(WAIT)
        sock.connect(("127.0.0.1", port))
        for packet in packets:
            sock.send(packet)
        sock.send(last)
        while not back or back[-1] != reply:
            back.append(sock.recv(2000))
    return back[:-1]


def is_reset(sock: socket.socket) -> bool:
    """Return whether a connection ends by a reset, after the agent's own nonce."""
    try:
        while sock.recv(1000):
            pass
    except ConnectionResetError:
        return True
    return False


def refused(port: int, data: bytes, source: str = "127.0.0.1") -> bool:
    """Return whether a TCP connection that says this gets no further."""
    address = ("127.0.0.1", port)
    with (
        contextlib.suppress(ConnectionError),  # reset, as soon as it is there
        socket.create_connection(address, WAIT, (source, 0)) as sock,
    ):
        sock.sendall(data)
        return is_reset(sock)
    return True


def recorded() -> bytes:
    """Return all that a host with the session key says to begin a stream."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        member = threading.Thread(target=greet, args=(ours,))
        member.start()
        nonce, own = whole(theirs, agent.NONCE), b"o" * agent.NONCE
        proof = agent.prove(bytes.fromhex(KEY), b"accept", 0, nonce + own)
        theirs.sendall(agent.ANSWER.pack(own, proof))
        said = whole(theirs, agent.HELLO.size)
        member.join(WAIT)
    assert said == agent.greeting(task_of(), 0, nonce + own, TO_FIRST.number)
    return nonce + said


def test_packets_of_an_earlier_session_are_rejected(driven: Driven) -> None:
    """Tests that a replay of all that a probe sent gets no answer in the next."""
    requests = [request(KEY, number) for number in range(100)]
    replies = echoed(driven.prepare()["udp"], requests, KEY)
    assert len(replies) == len(requests)
    later = with_life(0.5)
    try:
        ports = later.prepare(key=OTHER)
        assert echoed(ports["udp"], requests + replies, OTHER) == []
        assert refused(ports["tcp"], recorded())
    finally:
        later.close()


def test_no_reply_is_longer_than_its_request(driven: Driven) -> None:
    """Tests that nobody can have more sent to a third host than they send."""
    rng = random.Random(11)
    packets = []
    for number in range(150):
        size = rng.choice([0, 16, 63, 64, 64, 65, 1400, rng.randrange(1400)])
        key = rng.choice([KEY, KEY, OTHER])
        packets.append(request(key, number)[:size].ljust(size, b"\0"))
    replies = echoed(driven.prepare()["udp"], packets, KEY)
    right = [
        packet
        for number, packet in enumerate(packets)
        if packet == request(KEY, number)
    ]
    assert len(right) > 20
    assert [reply[1:9] for reply in replies] == [packet[1:9] for packet in right]
    assert all(len(reply) == agent.PACKET for reply in replies)


@pytest.mark.slow
def test_a_scan_leaves_room_for_members(driven: Driven) -> None:
    """Tests that hundreds of connects hold 64 at most, and peers still get in."""
    ports = driven.prepare()
    driven.meet(ports)
    descriptors = Path(f"/proc/{driven.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    address = ("127.0.0.1", ports["tcp"])
    scan = [socket.create_connection(address, WAIT) for _ in range(300)]
    member = socket.create_connection(address, WAIT)
    try:
        greet(member)
        member.sendall(b"data")
        # Connections are accepted in order: the scan was, when this one is.
        assert refused(ports["tcp"], b"x" * agent.HELLO.size)
        assert len(list(descriptors.iterdir())) <= before + agent.STRANGERS + 1
        assert echoed(ports["udp"], [], KEY) == []
        member.setblocking(False)
        with pytest.raises(BlockingIOError):
            member.recv(1)  # still open, and nothing to say
    finally:
        for sock in (*scan, member):
            sock.close()
    assert driven.process.poll() is None


def test_a_slow_stranger_has_its_time() -> None:
    """Tests that a key that trickles in does not keep a connection open."""
    driven = with_life(0.5)
    try:
        port = driven.prepare()["tcp"]
        with closing(socket.create_connection(("127.0.0.1", port), WAIT)) as sock:
            for byte in bytes.fromhex(KEY):
                sock.send(bytes([byte]))
                if select.select([sock], [], [], 0.2)[0]:
                    break
            assert is_reset(sock)
        assert driven.process.poll() is None
    finally:
        driven.close()


def test_junk_on_both_ports_changes_nothing() -> None:
    """Tests that random datagrams and streams neither end nor bloat an agent."""
    driven = with_life(0.1)
    try:
        pelt(driven)
    finally:
        driven.close()


def pelt(driven: Driven) -> None:
    ports = driven.prepare()
    driven.meet(ports)
    rng = random.Random(10)
    for _ in range(20):
        junk = [rng.randbytes(rng.randrange(1400)) for _ in range(100)]
        assert echoed(ports["udp"], junk, KEY) == []
        assert refused(ports["tcp"], rng.randbytes(rng.randrange(1, 4000)))
    assert driven.process.poll() is None
    assert len(os.listdir(f"/proc/{driven.process.pid}/fd")) < 16


Guess = Callable[[bytes], bytes]
GUESSES: dict[str, Guess] = {
    "silent": lambda right: b"",
    "short": lambda right: right[:-1],
    "wrong from its first byte": lambda right: bytes(b ^ 255 for b in right),
    "wrong after its first byte": lambda right: right[:1] + bytes(len(right) - 1),
    "wrong after half": lambda right: right[: len(right) // 2].ljust(len(right)),
    "wrong in its last bit": lambda right: right[:-1] + bytes([right[-1] ^ 1]),
    "too long": lambda right: bytes(len(right)) + b"x" * 1000,
}


def attempt(address: tuple[str, int], guess: Guess, source: str) -> socket.socket:
    """Connect, and say what is to be tried in place of a right greeting."""
    sock = socket.create_connection(address, WAIT, (source, 0))
    nonce = b"n" * agent.NONCE
    sock.sendall(nonce)
    own, _ = agent.ANSWER.unpack(whole(sock, agent.ANSWER.size))
    sock.sendall(guess(agent.greeting(task_of(), 0, nonce + own, TO_FIRST.number)))
    return sock


def test_nothing_tells_how_much_of_a_greeting_was_right() -> None:
    """Tests that all wrong greetings end alike, in the order in which they came.

    So what ends sooner than another one began sooner, whatever it has said.
    """
    driven = with_life(0.5)
    rng = random.Random(19)
    names = rng.sample(sorted(GUESSES) * 8, k=8 * len(GUESSES))
    open_: dict[socket.socket, tuple[int, float]] = {}
    ended: list[int] = []
    try:
        address = ("127.0.0.1", driven.prepare()["tcp"])
        for place, name in enumerate(names):
            begin = time.monotonic()
            sock = attempt(address, GUESSES[name], f"127.1.{place}.1")
            open_[sock] = (place, begin)
        while open_:
            found, _, _ = select.select(list(open_), [], [], WAIT)
            assert found, [names[place] for place, _ in open_.values()]
            for sock in sorted(found, key=lambda one: open_[one][0]):
                place, begin = open_.pop(sock)
                assert time.monotonic() - begin >= 0.5, names[place]
                assert is_reset(sock), names[place]
                sock.close()
                ended.append(place)
        assert ended == list(range(len(names)))
        assert driven.process.poll() is None
    finally:
        for sock in open_:
            sock.close()
        driven.close()


def answers(port: int, source: str) -> bool:
    """Return whether the agent still talks to an address."""
    address = ("127.0.0.1", port)
    with (
        contextlib.suppress(ConnectionError),  # reset, as soon as it is there
        socket.create_connection(address, WAIT, (source, 0)) as sock,
    ):
        sock.sendall(b"n" * agent.NONCE)
        return len(whole(sock, agent.ANSWER.size)) == agent.ANSWER.size
    return False


def fail(port: int, source: str) -> None:
    """Give as many wrong greetings as close the door to an address."""
    for _ in range(agent.FAILURES):
        assert refused(port, b"x" * (agent.NONCE + agent.HELLO.size), source)


def test_failures_shut_the_door() -> None:
    """Tests that an address that failed is not heard again, and others are.

    Nor is it shut to those of the hosts, to those from which a right request came,
    and to those from which a right greeting came.
    """
    driven = with_life(0.1)
    stranger, asker, sender, host = (f"127.2.{i}.1" for i in range(4))
    try:
        ports = driven.prepare()
        tcp, udp = ports["tcp"], ports["udp"]
        driven.meet(ports, host)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((asker, 0))
            sock.settimeout(WAIT)
            for number in range(2):  # the first is noted before the second is read
                sock.sendto(both(KEY, number, 77)[0], ("127.0.0.1", udp))
                assert sock.recv(100) == both(KEY, number, 77)[1]
        address = ("127.0.0.1", tcp)
        with closing(socket.create_connection(address, WAIT, (sender, 0))) as sock:
            greet(sock)
            assert answers(tcp, sender)  # by then it was let in
        for source in (stranger, asker, sender, host):
            fail(tcp, source)
        assert not answers(tcp, stranger)
        assert all(answers(tcp, one) for one in (asker, sender, host, "127.2.9.1"))
    finally:
        driven.close()


def test_who_hangs_up_has_not_failed(patient: Driven) -> None:
    """Tests that streams whose time is up too early are not held against a host."""
    port, source = patient.prepare()["tcp"], "127.6.0.1"
    for _ in range(2 * agent.FAILURES):
        sock = socket.create_connection(("127.0.0.1", port), WAIT, (source, 0))
        sock.sendall(b"n" * agent.NONCE)
        assert len(whole(sock, agent.ANSWER.size)) == agent.ANSWER.size
        agent.reset(sock)
    assert answers(port, source)


def test_strangers_do_not_take_the_places_of_hosts(patient: Driven) -> None:
    """Tests that a host that is slow has its time while others come and go."""
    ports = patient.prepare()
    host, address = "127.3.0.1", ("127.0.0.1", ports["tcp"])
    patient.meet(ports, host)
    descriptors = Path(f"/proc/{patient.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    member = socket.create_connection(address, WAIT, (host, 0))
    crowd = [
        socket.create_connection(address, WAIT, (f"127.4.{i}.1", 0))
        for i in range(2 * agent.STRANGERS)
    ]
    try:
        greet(crowd[-1])  # accepted in order: all others were
        greet(member)
        assert len(list(descriptors.iterdir())) <= before + agent.STRANGERS + 2
        assert all(map(is_reset, crowd[:10]))
    finally:
        for sock in (*crowd, member):
            sock.close()
    assert patient.process.poll() is None


def test_one_address_has_few_places(patient: Driven) -> None:
    """Tests that a stranger's connections take each other's places, nobody else's."""
    address = ("127.0.0.1", patient.prepare()["tcp"])
    quiet = socket.create_connection(address, WAIT, ("127.5.0.1", 0))
    most = max(agent.STRANGERS_ALIKE, task_of().streams)
    loud = [
        socket.create_connection(address, WAIT, ("127.5.1.1", 0))
        for _ in range(most + agent.FAILURES)
    ]
    try:
        assert all(map(is_reset, loud[: agent.FAILURES]))
        greet(quiet)
    finally:
        for sock in (quiet, *loud):
            sock.close()


def test_forged_datagrams_get_no_answer(driven: Driven) -> None:
    """Tests each bit of a request, and what another host was asked or has replied."""
    right, reply = both(KEY, 5)
    forged = []
    for bit in range(8 * len(right)):
        packet = bytearray(right)
        packet[bit // 8] ^= 1 << bit % 8
        forged.append(bytes(packet))
    for_another = both(KEY, 5, host=1)
    turned = [bytes([agent.REQUEST]) + reply[1:], bytes([agent.REPLY]) + right[1:]]
    udp = driven.prepare()["udp"]
    packets = [*forged, *for_another, reply, *turned]
    for first in range(0, len(packets), 50):  # no more than a socket holds
        assert echoed(udp, packets[first : first + 50], KEY) == []
    assert echoed(udp, [right], KEY) == [reply]


def test_replays_get_no_answer(driven: Driven) -> None:
    """Tests that a request is answered once, and none that came before it."""
    udp = driven.prepare()["udp"]
    packets = [request(KEY, number) for number in range(4)]
    first = echoed(udp, [packets[0], packets[0], packets[2]], KEY)
    assert first == [both(KEY, 0)[1], both(KEY, 2)[1]]
    assert echoed(udp, packets, KEY) == [both(KEY, 3)[1]]


def test_what_is_expected_is_worked_out_beforehand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that a proof in a slot takes none of its time, and others come too."""
    ours, theirs = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in "12")
    task = task_of(samples=3, ports=2, warm_up=1)
    members: set[str] = set()
    reflector = agent.Reflector(ours, task, members)
    expected = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    worked_out: list[bytes] = []
    exchange = agent.exchange

    def noted(key: bytes, host: int, head: bytes) -> tuple[bytes, bytes]:
        worked_out.append(head)
        return exchange(key, host, head)

    def run() -> None:
        with contextlib.suppress(TimeoutError):
            reflector.run()

    reflector.expect(TO_FIRST)
    monkeypatch.setattr(agent, "exchange", noted)
    with ours, theirs:
        ours.bind(("127.0.0.1", 0))
        ours.settimeout(1.0)
        theirs.settimeout(WAIT)
        thread = threading.Thread(target=run)
        thread.start()
        for place in [*expected, (1, 2)]:
            head = agent.PING.pack(TO_FIRST.number, *place)
            asked, reply = exchange(task.key, task.position, head)
            theirs.sendto(asked, ours.getsockname())
            assert theirs.recv(100) == reply
        assert worked_out == [head]
        for place in [*expected, (1, 3)]:  # replays, but for the last
            head = agent.PING.pack(TO_FIRST.number, *place)
            asked, reply = exchange(task.key, task.position, head)
            theirs.sendto(asked, ours.getsockname())
        assert theirs.recv(100) == reply
        thread.join(WAIT)
    assert members == {"127.0.0.1"}


def test_the_key_does_not_cross_the_network() -> None:
    """Tests that neither datagrams nor streams hold any part of the session key."""
    key = bytes.fromhex(KEY)
    seen = [recorded(), *both(KEY, 1)]
    seen.append(agent.prove(key, b"accept", 0, bytes(2 * agent.NONCE)))
    for said in seen:
        assert all(key[i : i + 4] not in said for i in range(len(key) - 3))


@pytest.mark.parametrize("said", [b"220 mail.example ESMTP ready\r\n" * 3, b""])
def test_flows_go_to_nobody_else(said: bytes) -> None:
    """Tests that who does not prove the session key is sent a nonce and no more."""
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        conn, _ = listener.accept()
        with conn:
            heard.append(whole(conn, agent.NONCE))
            conn.sendall(said[: agent.ANSWER.size])
            try:
                # It may have hung up already: what it said then was all.
                conn.shutdown(socket.SHUT_WR)
                heard.append(conn.recv(1))
            except OSError:
                heard.append(b"")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        task = task_of(streams=1)
        limit = agent.clock() + int(WAIT * 1e9)
        with pytest.raises(OSError, match="no host of this probe"):
            agent.transmit(listener.getsockname(), task, TO_SECOND, limit)
        thread.join(WAIT)
    assert [len(part) for part in heard] == [agent.NONCE, 0]
