from __future__ import annotations

import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from driven import prepare_frame
from pki import HOUR, credentials

from cloudcoll.cli import main
from cloudcoll.errors import UnusableError
from cloudcoll.hosts import Host
from cloudcoll.probe.frames import Decoder, encode
from cloudcoll.probe.plan import plan_probes
from cloudcoll.probe.runner import run_probe
from cloudcoll.probe.shell import Tls
from cloudcoll.programs import agent_source, parcel
from cloudcoll.resident import Carrier, greeting, read_answer
from cloudcoll.resident.dial import connect
from cloudcoll.tls import AGENT, DRIVER, Credentials

WAIT = 10.0
OURS = credentials(DRIVER)
# A shell may have started us with SIGINT ignored.
START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from cloudcoll.cli import main; sys.exit(main())"
)


def words(ours: Credentials, port: int | str = 0) -> list[str]:
    named = [f"--{name}={getattr(ours, name)}" for name in ("cert", "key", "ca")]
    return [*named, *([f"--port={port}"] if port else [])]


class Resident:
    """``cloudcoll agent --listen`` as a process, on a loopback address."""

    def __init__(self, address: str, host: Credentials, port: int = 0) -> None:
        command = [sys.executable, "-c", START, "agent", *words(host)]
        self.process = subprocess.Popen(
            [*command, "--listen", f"{address}:{port}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        self.address = (address, int(self.line().rpartition(":")[2]))

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self._lines.put(line.rstrip("\n"))

    def line(self) -> str:
        """Return the next line of its log."""
        return self._lines.get(timeout=WAIT)

    def rest(self) -> list[str]:
        """Return all other lines, after its end."""
        self._reading.join(WAIT)
        return list(self._lines.queue)

    def agents(self) -> list[psutil.Process]:
        found: list[psutil.Process] = psutil.Process(self.process.pid).children()
        return found

    def close(self) -> None:
        self.process.kill()
        self._reading.join(WAIT)
        with self.process:  # closes its pipes
            pass


Start = Callable[..., Resident]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start residents; every one is ended after the test."""
    started: list[Resident] = []

    def one(address: str, host: Credentials | None = None, port: int = 0) -> Resident:
        host = host or credentials(AGENT, [address])
        started.append(Resident(address, host, port))
        return started[-1]

    yield one
    for resident in started:
        resident.close()


class Driver:
    """The driver's end by hand, up to the agent's first frame."""

    def __init__(self, resident: Resident) -> None:
        address, port = resident.address
        transport = Tls(OURS, port)
        self.carrier = Carrier(transport.dialler())
        self.carrier.__enter__()
        self._host = self.carrier.start(address, address)
        self._decoder = Decoder()
        self.write(parcel(agent_source()))
        assert self.next_frame()["type"] == "hello"

    def write(self, data: bytes) -> None:
        self._host.stdin.write(data)

    def next_frame(self) -> dict[str, object]:
        frames: list[dict[str, object]] = []
        while not frames:
            data = self._host.stdout.read(1 << 16)
            assert data
            frames = self._decoder.feed(data)
        return frames[0]

    def close(self) -> tuple[bytes, bytes]:
        """Close all pipes; return what the agent's end still said, and why it ended."""
        self._host.stdin.close()
        with self._host.stdout as out, self._host.stderr as err:
            said = out.read(), err.read()
        self.carrier.__exit__()
        assert self.carrier.process.returncode is not None
        return said


@pytest.fixture
def drive() -> Iterator[Callable[[Resident], Driver]]:
    """Drive agents; no driver's process outlives the test."""
    drivers: list[Driver] = []

    def one(resident: Resident) -> Driver:
        drivers.append(Driver(resident))
        return drivers[-1]

    yield one
    for driver in drivers:
        driver.carrier.__exit__()


Drive = Callable[[Resident], Driver]


@pytest.mark.alone  # beside other tests hosts starve, and pairs have no result
def test_a_probe_by_resident_agents(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests a whole probe without any shell; nothing stays open after it."""
    first = start("127.0.5.1")
    port = first.address[1]
    residents = [first, *(start(f"127.0.5.{i}", port=port) for i in (2, 3))]
    where = ["probe", "-w", "127.0.5.[1-3]", "--via", "tls", "--quick", "--json"]
    assert main([*where, *words(OURS, port)]) == 0
    said = capsys.readouterr()
    assert '"transport": "tls"' in said.out
    assert said.err == ""
    for resident in residents:
        assert resident.line().endswith("drives the agent")
        assert resident.line().endswith("has gone")
        assert resident.agents() == []
        process = psutil.Process(resident.process.pid)
        # The line comes first, then the connection's end.
        deadline = time.monotonic() + 10
        while len(found := process.net_connections()) > 1:
            assert time.monotonic() < deadline, found
            time.sleep(0.01)
        (left,) = found
        assert left.status == psutil.CONN_LISTEN
        assert left.laddr.port == port


def test_probe_sockets_are_a_probes(start: Start, drive: Drive) -> None:
    """Tests that an agent has no socket before `prepare`, and none after the end."""
    resident = start("127.0.5.1")
    driver = drive(resident)
    (agent,) = resident.agents()
    assert agent.net_connections() == []
    frame = prepare_frame(address="127.0.5.1")
    driver.write(encode("prepare", **frame))
    ports = driver.next_frame()
    kinds = {(one.type, one.laddr.port) for one in agent.net_connections()}
    assert kinds == {
        (socket.SOCK_DGRAM, ports["udp"]),
        (socket.SOCK_STREAM, ports["tcp"]),
    }
    gone = os.pidfd_open(agent.pid)
    driver.close()
    assert select.select([gone], [], [], WAIT)[0]
    os.close(gone)


@pytest.mark.many
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_driver_that_dies_frees_the_agent(
    how: signal.Signals, start: Start, drive: Drive
) -> None:
    """Tests that an agent ends with its driver, however that ends."""
    resident = start("127.0.5.1")
    driver = drive(resident)
    (agent,) = resident.agents()
    gone = os.pidfd_open(agent.pid)
    driver.carrier.process.send_signal(how)
    assert select.select([gone], [], [], WAIT)[0]
    os.close(gone)
    driver.close()
    drive(resident).close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all(how: signal.Signals, start: Start, drive: Drive) -> None:
    """Tests that neither agent nor driver outlives a listener that is stopped."""
    resident = start("127.0.5.1")
    driver = drive(resident)
    (agent,) = resident.agents()
    gone = os.pidfd_open(agent.pid)
    resident.process.send_signal(how)
    assert resident.process.wait(WAIT) == 128 + how
    assert select.select([gone], [], [], WAIT)[0]
    os.close(gone)
    out, why = driver.close()
    assert (out, why.rpartition(b": ")[2]) == (b"", b"closed the connection\n")
    drives, *end = resident.rest()
    assert drives.endswith("drives the agent")
    assert end == ["cloudcoll: interrupted"]


def test_a_listener_that_is_killed_leaves_no_agent(start: Start, drive: Drive) -> None:
    """Tests that an agent ends with its listener even if that is killed."""
    resident = start("127.0.5.1")
    driver = drive(resident)
    (agent,) = resident.agents()
    gone = os.pidfd_open(agent.pid)
    resident.process.kill()
    assert select.select([gone], [], [], WAIT)[0]
    os.close(gone)
    driver.close()


def test_an_agent_that_dies_is_the_drivers_to_see(start: Start, drive: Drive) -> None:
    """Tests that a driver hears of an agent's end, and the listener goes on."""
    resident = start("127.0.5.1")
    driver = drive(resident)
    resident.agents()[0].kill()
    driver.close()
    assert resident.line().endswith("drives the agent")
    assert resident.line().endswith("has gone")
    drive(resident).close()


def probe(hosts: tuple[Host, ...], ours: Credentials, port: int) -> str:
    """Return why nothing could be measured."""
    transport = Tls(ours, port)
    with pytest.raises(UnusableError) as caught:
        run_probe(hosts, plan_probes(hosts), transport)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("host", "ours", "said"),
    [
        (None, credentials(DRIVER, ca="others"), "our certificate is not signed by"),
        (None, credentials(DRIVER, ends=-HOUR / 2), "our certificate has expired by"),
        (None, credentials(DRIVER, trusts="others"), "is not signed by our CA"),
        (credentials(AGENT, ["vm-9"]), OURS, "its certificate is another host's"),
        (
            credentials(AGENT, ["127.0.5.1"], begins=HOUR, ends=2 * HOUR),
            OURS,
            "its certificate is not valid yet by our clock",
        ),
    ],
)
def test_wrong_certificates_are_told(
    host: Credentials | None, ours: Credentials, said: str, start: Start
) -> None:
    """Tests the line that a user of `probe` sees, of either end's certificate."""
    resident = start("127.0.5.1", host)
    hosts = (Host("127.0.5.1"), Host("127.0.5.2"))
    message = probe(hosts, ours, resident.address[1])
    assert said in message
    assert "127.0.5.2: 127.0.5.2:" in message
    assert "nothing listens there: is 'cloudcoll agent --listen' running?" in message
    assert resident.agents() == []


def test_a_host_that_lies_about_its_name(start: Start) -> None:
    """Tests that a name in the list is what counts, not what an address shows."""
    resident = start("127.0.5.1", credentials(AGENT, ["vm-1", "127.0.5.1"]))
    hosts = (Host("vm-2", "127.0.5.1"), Host("vm-3", "127.0.5.1"))
    message = probe(hosts, OURS, resident.address[1])
    for name in ("vm-2", "vm-3"):
        assert f"certificate is not valid for '{name}'" in message


def test_another_version_is_refused(start: Start) -> None:
    """Tests that a driver cannot bring a program of its own."""
    resident = start("127.0.5.1")
    with connect(OURS.client(), "127.0.5.1", resident.address) as conn:
        conn.sendall(greeting(b"import os; os.unlink('/')"))
        with pytest.raises(UnusableError, match="different versions: install the same"):
            read_answer(conn)
    assert resident.line().startswith("cloudcoll: 127.0.0.1: driver and agent are of")
    assert resident.agents() == []


class Wire:
    """Passes one connection on and keeps what the driver's side said."""

    def __init__(self, there: tuple[str, int]) -> None:
        self.heard = b""
        self._listener = socket.create_server((there[0], 0))
        self.address = self._listener.getsockname()
        self._there = there
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        one, _ = self._listener.accept()
        with closing(one), closing(socket.create_connection(self._there)) as two:
            ends = {one: two, two: one}
            while True:
                for sock in select.select(list(ends), [], [], WAIT)[0]:
                    data = sock.recv(1 << 16)
                    if sock is one:
                        self.heard += data
                    if not data:
                        return
                    ends[sock].sendall(data)

    def close(self) -> None:
        self._thread.join(WAIT)
        self._listener.close()
        assert not self._thread.is_alive()


def test_a_replay_starts_nothing(start: Start) -> None:
    """Tests that all that a driver once said, said again, drives nobody."""
    resident = start("127.0.5.1")
    wire = Wire(resident.address)
    with connect(OURS.client(), "127.0.5.1", wire.address) as conn:
        conn.sendall(greeting(agent_source()))
        read_answer(conn)
    wire.close()
    assert resident.line().endswith("drives the agent")
    assert len(wire.heard) > 500
    resident.line()
    with closing(socket.create_connection(resident.address, WAIT)) as sock:
        sock.sendall(wire.heard)
        sock.settimeout(WAIT)
        try:
            while sock.recv(4096):
                pass  # its half of a handshake, of which we have no key
        except ConnectionResetError:
            pass
    assert resident.line().startswith("cloudcoll: 127.0.0.1: no TLS with it: ")
    assert resident.agents() == []


@pytest.mark.parametrize("cut", [1, 3, 4, 40])
def test_a_frame_cut_short_is_not_obeyed(cut: int, start: Start) -> None:
    """Tests that an agent whose driver is cut off in a frame just ends."""
    resident = start("127.0.5.1")
    with connect(OURS.client(), "127.0.5.1", resident.address) as conn:
        conn.sendall(greeting(agent_source()))
        read_answer(conn)
        conn.sendall(encode("prepare", **prepare_frame(address="127.0.5.1"))[:cut])
        decoder = Decoder()
        assert decoder.feed(conn.recv(1 << 16)) or decoder.feed(conn.recv(1 << 16))
    assert resident.line().endswith("drives the agent")
    assert resident.line() == "cloudcoll: 127.0.0.1: closed the connection"
    assert resident.agents() == []


def test_a_key_is_neither_in_arguments_nor_environment(
    start: Start, drive: Drive
) -> None:
    """Tests that only paths are where others can read them, nor is it in logs."""
    resident = start("127.0.5.1")
    driver = drive(resident)
    secret = OURS.key.read_text().splitlines()[1].encode()
    for pid in (
        driver.carrier.process.pid,
        resident.process.pid,
        resident.agents()[0].pid,
    ):
        for name in ("cmdline", "environ"):
            seen = Path(f"/proc/{pid}/{name}").read_bytes()
            assert seen
            assert secret not in seen
    driver.close()
