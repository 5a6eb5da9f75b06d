"""The kernel's counters of what a host has sent."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
from needs import IPV6

from benchmarks.byte_audit import sockets
from cloudcoll import lab as labs

FOLDER = os.path.dirname(sockets.__file__)
SIZE = 1_234_567
SERVER = """
import socket, sys
with socket.create_server(("", 0)) as server:
    print(server.getsockname()[1], flush=True)
    stream, _ = server.accept()
    left = int(sys.argv[1])
    while left:
        left -= len(stream.recv(left))
    stream.sendall(b"all")
    stream.recv(1)
"""
CLIENT = """
import json, socket, struct, sys
sys.path.append(sys.argv[4])
from sockets import bytes_sent, card_payload
port, size, prefix = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
address = socket.gethostbyname("vm-02")
with socket.create_connection((prefix + address, port), timeout=120) as stream:
    before = card_payload()
    stream.sendall(bytes(size))
    stream.recv(3)
    found = [address, bytes_sent(), card_payload() - before]
    # tcpi_bytes_retrans of linux/tcp.h.
    info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    print(json.dumps([*found, struct.unpack_from("Q", info, 208)[0]]))
"""
# Holds less than TCP hands down at once: packets are dropped, and sent again.
SHORT_QUEUE = (
    *("tc", "qdisc", "replace", "dev", "eth0", "root"),
    *("tbf", "rate", "200mbit", "burst", "10kb", "limit", "6kb"),
)

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.lab
@pytest.mark.parametrize(
    ("prefix", "queue"), [("", ()), ("::ffff:", ()), ("", SHORT_QUEUE)]
)
def test_sockets_know_what_was_sent(
    lab: Callable[[labs.LabSpec], labs.Lab],
    inside: Run,
    prefix: str,
    queue: tuple[str, ...],
) -> None:
    """Tests bytes by destination against what was sent, and against the card's."""
    if prefix and not os.path.exists(sockets.TCP6):
        IPV6.skip()
    where = lab(labs.quick((2,)))
    if queue:
        inside(where, "vm-01", *queue).check_returncode()
    server = [sys.executable, "-c", SERVER, str(SIZE)]
    argv, env = labs.exec_argv(where, "vm-02", server)
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        client = [sys.executable, "-c", CLIENT, port, str(SIZE), prefix, FOLDER]
        done = inside(where, "vm-01", *client)
        # If the client failed, it would wait for one.
        process.kill()
    assert done.returncode == 0, done.stderr
    address, sent, by_card, again = json.loads(done.stdout)
    # A handshake counts for one where the host's own queue dropped packets.
    assert sent[address] - SIZE in ((0, 1) if queue else (0,))
    assert list(sent) == [address]
    # The handshake's options are not those of the packets after it.
    # On a busy machine TCP may send its last packet again before it hears of it.
    assert by_card - SIZE in range(-99, 100 + (0 if queue else again))


def test_a_connection_within_the_host_is_left_out() -> None:
    """Tests that what never leaves a host is not counted as sent."""
    before = sockets.bytes_sent().get("127.0.0.1", 0)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=10) as stream,
    ):
        stream.sendall(b"x" * 1000)
        assert sockets.bytes_sent().get("127.0.0.1", 0) == before == 0


def test_what_is_not_there_is_named() -> None:
    """Tests a card that does not exist, and a family of sockets that does not."""
    with pytest.raises(OSError, match="no network card 'eth77' here"):
        sockets.card_payload("eth77")
    with pytest.raises(OSError, match="no list of sockets"):
        list(sockets._dump(99))
