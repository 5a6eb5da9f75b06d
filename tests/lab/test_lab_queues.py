"""What the lab's links do with packets, measured in a lab of all kinds of links."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import pytest

from cloudcoll import lab as labs

# A queue is measured by what passes it.
pytestmark = [pytest.mark.lab, pytest.mark.alone]

RATE = 12.5e6
"""Bytes/s of every limited link: a hundred Mbit/s leave the cores time for all else."""
KINDS = """
congestion = "cubic"
nic = "100mbit"
[[group]]
name = "open"
hosts = 2
nic = "unlimited"
[[group]]
name = "short"
hosts = 1
queue = "5ms"
[[group]]
name = "deep"
hosts = 1
queue = "60ms"
[[group]]
name = "seen"
hosts = 1
queue = "60ms"
backpressure = true
[[group]]
name = "packets"
hosts = 1
queue = "64p"
[[group]]
name = "codel"
hosts = 1
queue = "codel"
[[group]]
name = "policer"
hosts = 1
queue = "policer:128K"
[[group]]
name = "uplink"
hosts = 2
nic = "unlimited"
uplink = "100mbit"
queue = "40ms"
[[group]]
name = "jittery"
hosts = 1
nic = "unlimited"
nic_jitter = "20ms"
"""
PACKETS_WAIT = 64 * 1514 / RATE
"""Seconds that a packet waits behind 64 others."""

SINK = """
import socket, threading
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.bind(("", 7001))
waste = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
waste.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
waste.bind(("", 7002))
count = [0]

def swallow():
    while True:
        count[0] += len(waste.recv(2048)) + 42  # headers of Ethernet, IP and UDP

def discard(stream):
    while stream.recv(1 << 16):
        pass

def serve():
    with socket.create_server(("", 7003), backlog=64) as server:
        print("ready", flush=True)
        while True:
            stream, _ = server.accept()
            threading.Thread(target=discard, args=[stream], daemon=True).start()

threading.Thread(target=swallow, daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
while True:
    data, sender = echo.recvfrom(16)
    echo.sendto(data + b" %d" % count[0], sender)
"""

LOAD = """
import json, os, signal, socket, sys, time
target, how = sys.argv[1:3]
rate, seconds = map(float, sys.argv[3:])

def blast():
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect((target, 7002))
    data, sent, start = bytes(1472), 0, time.monotonic()
    while True:
        due = rate * (time.monotonic() - start)
        while sent < due:
            sender.send(data)
            sent += 1514
        time.sleep(0.0005)

def stream():
    sender = socket.create_connection((target, 7003))
    while True:
        sender.sendall(bytes(1 << 16))

children = []
for work in {"idle": [], "udp": [blast], "tcp": [stream] * 2}[how]:
    children.append(os.fork())
    if not children[-1]:
        work()
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect((target, 7001))
sent, answers, begin = [], [], time.monotonic()
try:
    while time.monotonic() < begin + seconds:
        sent.append(time.monotonic())
        client.send(b"%d" % (len(sent) - 1))
        client.settimeout(0.003)
        try:
            while True:
                number, count = map(int, client.recv(64).split())
                now = time.monotonic()
                answers.append((sent[number], now - sent[number], now, count))
        except TimeoutError:
            pass
finally:
    for child in children:
        os.kill(child, signal.SIGKILL)
late = [answer for answer in answers if answer[0] > begin + seconds / 2]
(_, _, first, before), (_, _, last, after) = late[0], late[-1]
print(json.dumps({
    "trips": [trip for _, trip, _, _ in late],
    "rate": (after - before) / (last - first),
}))
"""


Measure = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measure]:
    """Measure round trips from a group's host to another's, under a load."""
    folder = tmp_path_factory.mktemp("kinds")
    path = folder / "kinds.toml"
    path.write_text(KINDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDCOLL_HOME", str(folder))
        running = labs.up(labs.read_spec(path), "kinds")
        names = [line.split('"')[1] for line in KINDS.splitlines() if "name" in line]
        groups = dict(zip(names, running.groups, strict=True))

        def start(host: str, *argv: str) -> subprocess.Popen[str]:
            command, env = labs.exec_argv(running, host, [sys.executable, "-c", *argv])
            # Each test has a home of its own.
            env["CLOUDCOLL_HOME"] = str(folder)
            return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

        sinks: dict[str, subprocess.Popen[str]] = {}

        def run(
            source: str, target: str, how: str, seconds: float = 1.0
        ) -> dict[str, Any]:
            """Measure in the second half of some seconds."""
            ends = groups[source][0], groups[target][-1]
            if ends[1] not in sinks:
                sinks[ends[1]] = sink = start(ends[1], SINK)
                assert sink.stdout is not None
                assert sink.stdout.readline() == "ready\n"
            load = start(ends[0], LOAD, ends[1], how, str(1.4 * RATE), str(seconds))
            said: dict[str, Any] = json.loads(load.communicate(timeout=120)[0])
            return said

        try:
            yield run
        finally:
            for sink in sinks.values():
                sink.terminate()
                sink.communicate(timeout=120)
            labs.down("kinds")


@pytest.mark.many
@pytest.mark.parametrize("inward", [False, True], ids=["out", "in"])
@pytest.mark.parametrize(
    ("group", "wait"),
    [
        *(("short", 0.005), ("deep", 0.06), ("uplink", 0.04)),
        ("packets", PACKETS_WAIT),
    ],
)
def test_a_queue_is_as_deep_as_said(
    measure: Measure, group: str, wait: float, inward: bool
) -> None:
    """Tests the rate, and the wait in a full queue, of cards and of an uplink."""
    said = measure(*(("open", group) if inward else (group, "open")), "udp")
    assert said["rate"] == pytest.approx(RATE, rel=0.1)
    assert 0.8 * wait < median(said["trips"]) < 1.25 * wait + 1e-3


@pytest.mark.parametrize("inward", [False, True], ids=["out", "in"])
def test_a_policer_drops_and_does_not_delay(measure: Measure, inward: bool) -> None:
    """Tests that what is too much is gone, and the rest on time."""
    said = measure(*(("open", "policer") if inward else ("policer", "open")), "udp")
    assert said["rate"] == pytest.approx(RATE, rel=0.1)
    # The bucket alone, as a queue, would be 10 ms.
    assert median(said["trips"]) < 3e-3


@pytest.mark.parametrize("inward", [False, True], ids=["out", "in"])
def test_codel_keeps_the_wait_short(measure: Measure, inward: bool) -> None:
    """Tests that TCP's data wait about 5 ms where the queue holds 120 ms."""
    said = measure(*(("open", "codel") if inward else ("codel", "open")), "tcp")
    assert 2e-3 < median(said["trips"]) < 20e-3


def test_codel_has_an_end(measure: Measure) -> None:
    """Tests that data which nothing slows down wait behind a thousand packets."""
    said = measure("codel", "open", "udp")
    limit = 1000 * 1514 / RATE
    assert 0.8 * limit < median(said["trips"]) < 1.1 * limit


def test_tcp_fills_a_deep_queue(measure: Measure) -> None:
    """Tests that a host does not see what waits: its TCP fills the queue."""
    said = measure("deep", "open", "tcp")
    assert 0.5 * 0.06 < median(said["trips"]) < 1.25 * 0.06


def test_backpressure_keeps_a_hosts_own_queue_short(measure: Measure) -> None:
    """Tests that a full card which the host sees holds its TCP back."""
    said = measure("seen", "open", "tcp")
    assert median(said["trips"]) < 0.3 * 0.06


def test_an_idle_queue_is_short(measure: Measure) -> None:
    """Tests that the deepest queue takes no time while it is empty."""
    assert median(measure("deep", "open", "idle", seconds=0.3)["trips"]) < 5e-3


def test_jitter_scatters_round_trips(measure: Measure) -> None:
    """Tests that both directions of a card add up to 20 ms, in order."""
    trips = sorted(measure("jittery", "open", "idle")["trips"])
    low, high = trips[len(trips) // 10], trips[-len(trips) // 10]
    assert high - low > 5e-3
    assert 5e-3 < median(trips) < 45e-3
