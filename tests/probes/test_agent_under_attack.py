from __future__ import annotations

import os
import random
import select
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from driven import KEY, WAIT, Driven

from cloudcoll.agentfile import agent_source
from probes import agent

OTHER = "ab" * 16


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


def request(key: str, number: int, size: int = agent.PACKET) -> bytes:
    head = agent.PING.pack(bytes.fromhex(key), agent.REQUEST, 1, 0, number)
    return head.ljust(size, b"\0")


def echoed(port: int, packets: list[bytes], key: str) -> list[bytes]:
    """Send datagrams; return what comes back until a last, right one is answered.

    One socket's datagrams keep their order on loopback: what is not there by
    then is not coming.
    """
    last = request(key, 65_535)
    reply = last[:16] + bytes([agent.REPLY]) + last[17:]
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


def refused(port: int, data: bytes) -> bool:
    """Return whether a TCP connection that says this is closed at once."""
    with closing(socket.create_connection(("127.0.0.1", port), WAIT)) as sock:
        sock.sendall(data)
        try:
            return sock.recv(1) == b""
        except ConnectionResetError:
            return True


def test_packets_of_an_earlier_session_are_rejected(driven: Driven) -> None:
    """Tests that a replay of all that a probe sent gets no answer in the next."""
    requests = [request(KEY, number) for number in range(100)]
    replies = echoed(driven.prepare()["udp"], requests, KEY)
    assert len(replies) == len(requests)
    later = Driven()
    try:
        ports = later.prepare(key=OTHER)
        assert echoed(ports["udp"], requests + replies, OTHER) == []
        assert refused(ports["tcp"], agent.HELLO.pack(bytes.fromhex(KEY), 0))
    finally:
        later.close()


def test_no_reply_is_longer_than_its_request(driven: Driven) -> None:
    """Tests that nobody can have more sent to a third host than they send."""
    rng = random.Random(11)
    packets = []
    for number in range(150):
        size = rng.choice([0, 16, 63, 64, 64, 65, 1400, rng.randrange(1400)])
        key = rng.choice([KEY, KEY, OTHER])
        packets.append(request(key, number, max(size, agent.PING.size))[:size])
    replies = echoed(driven.prepare()["udp"], packets, KEY)
    right = [p for p in packets if len(p) == agent.PACKET and p[:16].hex() == KEY]
    assert [reply[17:] for reply in replies] == [packet[17:] for packet in right]
    assert all(len(reply) == agent.PACKET for reply in replies)


def test_a_scan_leaves_room_for_members(driven: Driven) -> None:
    """Tests that hundreds of connects hold 64 at most, and peers still get in."""
    ports = driven.prepare()
    descriptors = Path(f"/proc/{driven.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    address = ("127.0.0.1", ports["tcp"])
    scan = [socket.create_connection(address, WAIT) for _ in range(300)]
    member = socket.create_connection(address, WAIT)
    try:
        member.sendall(agent.HELLO.pack(bytes.fromhex(KEY), 0) + b"data")
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
    life = b"STRANGER_LIFE = %.1f"
    source = agent_source()
    assert life % 5.0 in source
    driven = Driven(source.replace(life % 5.0, life % 0.5))
    try:
        port = driven.prepare()["tcp"]
        with closing(socket.create_connection(("127.0.0.1", port), WAIT)) as sock:
            for byte in bytes.fromhex(KEY):
                sock.send(bytes([byte]))
                if select.select([sock], [], [], 0.2)[0]:
                    break
            assert sock.recv(1) == b""
        assert driven.process.poll() is None
    finally:
        driven.close()


def test_junk_on_both_ports_changes_nothing(driven: Driven) -> None:
    """Tests that random datagrams and streams neither end nor bloat an agent."""
    ports = driven.prepare()
    rng = random.Random(10)
    for _ in range(20):
        junk = [rng.randbytes(rng.randrange(1400)) for _ in range(100)]
        assert echoed(ports["udp"], junk, KEY) == []
        assert refused(ports["tcp"], rng.randbytes(rng.randrange(1, 4000)))
    assert driven.process.poll() is None
    assert len(os.listdir(f"/proc/{driven.process.pid}/fd")) < 16
