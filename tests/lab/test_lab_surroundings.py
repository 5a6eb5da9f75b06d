"""Round trips, TCP's settings, cross traffic and hogs of real labs, measured."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cloudcoll import lab as labs
from cloudcoll.errors import CloudcollError
from cloudcoll.files import state_dir
from cloudcoll.lab.spec import PRESETS, CrossTraffic, quick
from cloudcoll.lab.state import VERSION, load
from cloudcoll.measured.snapshot import load_snapshot

pytestmark = pytest.mark.lab
Start = Callable[[labs.LabSpec], labs.Lab]
Inside = Callable[..., subprocess.CompletedProcess[str]]

TRIPS = """
import socket, sys, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect((sys.argv[1], 7001))
client.settimeout(5)
trips = []
for _ in range(300):
    start = time.perf_counter()
    client.send(b"x")
    client.recv(16)
    trips.append(time.perf_counter() - start)
print(sorted(trips)[30])
"""
SERVE = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 7001))
listening = socket.create_server(("", 7001))
print("ready", flush=True)
while True:
    data, sender = server.recvfrom(16)
    server.sendto(data, sender)
"""
TCP = """
import socket, struct, sys
client = socket.create_connection((sys.argv[1], 7001))
name = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 12)
rto, = struct.unpack_from("I", info, 8)
print(name.split(bytes(1))[0].decode(), rto)
"""


@pytest.fixture
def ask(inside: Inside) -> Callable[..., str]:
    """Run a script on one host that talks to a server on another."""

    def run(running: labs.Lab, source: str, target: str, script: str) -> str:
        command, env = labs.exec_argv(running, target, [sys.executable, "-c", SERVE])
        server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        with server.stdout:
            try:
                assert server.stdout.readline() == "ready\n"
                done = inside(running, source, sys.executable, "-c", script, target)
            finally:
                server.terminate()
                server.wait(30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.alone
@pytest.mark.parametrize("preset", ["cloud", "policed"])
@pytest.mark.parametrize("longer", [0.0, 400e-6], ids=["equal", "longer"])
def test_the_way_between_racks(
    lab: Start, ask: Callable[..., str], preset: str, longer: float
) -> None:
    """Tests that it is longer by what is asked for, also where wires shape."""
    running = lab(quick((2, 1), 50e6, 50e6, rtt=longer, preset=preset))
    (first, second), (third,) = running.groups
    turns = [
        [float(ask(running, first, other, TRIPS)) for other in (second, third)]
        for _ in range(3)
    ]
    # What else the machine has to do only adds to them, for some turn at a time.
    near, far = map(min, zip(*turns, strict=True))
    assert far - near == pytest.approx(longer, abs=150e-6)


def with_surroundings(spec: labs.LabSpec, **changes: Any) -> labs.LabSpec:
    """Return `spec` with changed surroundings."""
    return replace(spec, surroundings=replace(spec.surroundings, **changes))


@pytest.mark.parametrize(
    ("spec", "congestion", "least", "most"),
    [
        (quick((2,), 50e6), "cubic", 0.2, 0.3),
        (
            with_surroundings(quick((2,), 50e6), congestion="reno", rto=0.03),
            "reno",
            0.03,
            0.1,
        ),
        (quick((2,), 50e6, preset="tuned"), "cubic", 0.004, 0.1),
    ],
    ids=["cloud", "changed", "tuned"],
)
def test_tcp_is_as_asked_for(
    lab: Start,
    ask: Callable[..., str],
    spec: labs.LabSpec,
    congestion: str,
    least: float,
    most: float,
) -> None:
    """Tests what a connection says of its congestion control and its timeout."""
    running = lab(spec)
    name, rto = ask(running, "vm-01", "vm-02", TCP).split()
    assert name == congestion
    assert least <= float(rto) * 1e-6 < most


def test_a_congestion_control_that_the_kernel_has_not() -> None:
    """Tests that the error names those that there are."""
    spec = with_surroundings(quick((2,)), congestion="warp")
    with pytest.raises(CloudcollError, match=r"no congestion control 'warp' .*reno"):
        labs.up(spec, "warp")


def sent(running: labs.Lab, host: str, inside: Inside) -> int:
    """Return the bytes that have left a host's card."""
    text = inside(running, host, "cat", "/proc/self/net/dev").stdout
    line = next(line for line in text.splitlines() if "eth0:" in line)
    return int(line.partition(":")[2].split()[8])


def test_cross_traffic_loads_switches_and_no_card(lab: Start, inside: Inside) -> None:
    """Tests the rate of others' stream, between hosts that are not in the hostfile."""
    traffic = (CrossTraffic("rack-1", "rack-2", 5e6),)
    running = lab(with_surroundings(quick((2, 1), 50e6, 25e6), traffic=traffic))
    assert running.hostfile.read_text().count("\n") == 3
    assert [len(group) for group in running.groups] == [2, 1]
    labs.heal(running)  # of faults: it is none
    begin, before = time.monotonic(), sent(running, "tenant-1", inside)
    silent = sent(running, "vm-01", inside)
    while (now := sent(running, "tenant-1", inside)) < before + 5e6:
        assert time.monotonic() < begin + 30, "no traffic"
    assert (now - before) / (time.monotonic() - begin) < 7.5e6
    assert sent(running, "vm-01", inside) < silent + 1e5
    assert "traffic   rack-1 to rack-2, 40 Mbit/s" in labs.show_lab(running)


def hogs(folder: Path) -> list[str]:
    """Return the hosts of a lab on which a hog runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except OSError:
            continue  # it ended
        if "compute" in words and Path(words[-3]).parent == folder / "standing":
            found.append(Path(words[-3]).name)
    return sorted(found)


def test_hogs_are_where_the_lab_says(lab: Start) -> None:
    """Tests that as many hosts as asked for have one, for as long as the lab is up."""
    running = lab(quick((2, 3), preset="crowded", seed=3))
    assert len(running.hogged) == 2
    assert hogs(running.directory) == sorted(running.hogged)
    assert f"CPU hogs  {' '.join(running.hogged)}" in labs.show_lab(running)
    labs.down(running.name)
    assert hogs(running.directory) == []


def test_a_neighbour_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tests one line, and that no lab is left."""
    monkeypatch.setattr(
        import_module("cloudcoll.lab.faults"), "NEIGHBOUR", tmp_path / "nothing.py"
    )
    with pytest.raises(CloudcollError, match=r"does not take part: .*nothing\.py"):
        labs.up(quick((2,), preset="crowded"), "lonely")
    assert not (state_dir() / "lab" / "lonely").exists()


def test_a_spec_of_the_first_version_is_read(lab: Start) -> None:
    """Tests that what an earlier version started can be shown, broken and ended."""
    running = lab(quick((2, 1), 50e6, 50e6, rtt=3e-4, preset="tuned"))
    path = running.directory / "spec.json"
    record = json.loads(path.read_text())
    assert record.pop("version") == VERSION
    for key in ("surroundings", "hogged"):
        del record[key]
    for link in record["links"]:
        for key in ("shape", "host", "floor", "steps"):
            del link[key]
    path.write_text(json.dumps(record))
    again = labs.find(running.name)
    shaped = [link for link in running.links if link.name != labs.HEAD]
    assert [link for link in again.links if link.name != labs.HEAD] == shaped
    assert replace(again, links=()) == replace(running, links=())
    assert labs.slow(again, "vm-01", 1e6) == "vm-01: its card does 8 Mbit/s"


def test_a_spec_of_a_later_version_is_not_read(lab: Start) -> None:
    """Tests that it is not taken for something that it is not."""
    running = lab(quick((1,)))
    path = running.directory / "spec.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"version": VERSION + 1}))
    assert load(running.name) is None
    path.write_text(json.dumps(record))


def test_what_a_lab_is_like_is_kept(lab: Start, tmp_path: Path) -> None:
    """Tests that a snapshot made in it says so, as status does."""
    running = lab(quick((2, 1), 50e6, 50e6, preset="shallow"))
    output = tmp_path / "network.snap"
    argv = ["probe", "--lab", running.name, "--quick", "-o", str(output)]
    subprocess.run([sys.executable, "-m", "cloudcoll.cli", *argv], timeout=120)
    told = load_snapshot(output).metadata["lab"]
    assert told == labs.character(running)
    assert (told["preset"], told["racks"]) == ("shallow", [2, 1])
    assert told["cards"] == ["400 Mbit/s, queue: 5 ms"]


@pytest.mark.many
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_comes_up(lab: Start, inside: Inside, name: str) -> None:
    """Tests that hosts of two pods hear each other, whatever the network is like."""
    racks = ((1, 2), (1,))
    running = lab(quick(racks, 50e6, 50e6, pod_uplink=50e6, preset=name))
    assert [len(group) for group in running.groups] == [1, 2, 1]
    done = inside(running, "vm-01", sys.executable, "-c", CONNECT)
    assert done.stdout == "refused\n" * 3, done.stderr


CONNECT = """
import socket
for host in ("vm-02", "vm-03", "vm-04"):
    try:
        socket.create_connection((host, 1), timeout=10)
    except ConnectionRefusedError:
        print("refused")
"""
