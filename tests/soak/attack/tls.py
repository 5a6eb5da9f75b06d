"""Whoever comes to an agent or to the daemon's HTTPS with a wrong certificate."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psutil
from fuzz_tls import first_bytes
from pki import HOUR, authority, credentials
from test_https import Front
from test_resident import OURS, Resident, Wire

from attack.kit import attack, hold, program
from cloudcoll.daemon.servers import LIMITS
from cloudcoll.errors import UnusableError
from cloudcoll.probe.frames import encode
from cloudcoll.programs import agent_source
from cloudcoll.resident import greeting, read_answer
from cloudcoll.resident.dial import connect
from cloudcoll.tls import AGENT, DRIVER, READER, Credentials, reason

ADDRESS = "127.0.5.1"
HOST = credentials(AGENT, [ADDRESS])
OTHERS = authority("others")
"""Made once, before attacks have a process each."""

WRONG = {
    "of another CA": credentials(DRIVER, ca="others"),
    "that is expired": credentials(DRIVER, begins=-2 * HOUR, ends=-HOUR / 60),
    "that expired a second ago": credentials(DRIVER, ends=-timedelta(seconds=1)),
    "that is not valid yet": credentials(DRIVER, begins=HOUR, ends=2 * HOUR),
    "of a reader": credentials(READER),
    "of an agent": credentials(AGENT, ["vm-7"]),
    "of a role of one's own": credentials("cloudcoll:driver2"),
    "of a role that ends alike": credentials("evil:cloudcoll:driver"),
}


@contextlib.contextmanager
def resident() -> Iterator[Resident]:
    """Start a resident agent."""
    one = Resident(ADDRESS, HOST)
    try:
        yield one
    finally:
        one.close()


def drives(ours: Credentials, one: Resident) -> str:
    """Return why a driver is refused, empty if it is not."""
    try:
        with connect(ours.client(), ADDRESS, one.address) as conn:
            conn.sendall(greeting(agent_source()))
            read_answer(conn)
            conn.sendall(encode("prepare"))
    except (OSError, UnusableError) as error:
        return reason(error)
    return ""


@attack()
def drive_with_wrong_certificates() -> str:
    """Drive an agent with certificates of another CA, time, role or purpose."""
    with resident() as one:
        for name, ours in WRONG.items():
            why = drives(ours, one)
            hold(why, f"a certificate {name} drives")
            hold(not one.agents(), f"a certificate {name} starts an agent")
        hold(not drives(credentials(DRIVER), one), "no driver gets in any more")
    return f"{len(WRONG)} refused, the right one is served"


@attack()
def drive_without_a_certificate() -> str:
    """Drive with no certificate, with an old TLS, and with no TLS at all."""
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(HOST.ca)
    old = OURS.client()
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    told = []
    with resident() as one:
        for context in (bare, old):
            try:
                raw = socket.create_connection(one.address, 5)
                with context.wrap_socket(raw, server_hostname=ADDRESS) as conn:
                    conn.sendall(greeting(agent_source()))
                    hold(not conn.recv(100), "it was answered")
            except OSError as error:
                told.append(reason(error))
        with closing(socket.create_connection(one.address, 5)) as sock:
            sock.sendall(greeting(agent_source()))
            with contextlib.suppress(ConnectionResetError):
                hold(b"welcome" not in sock.recv(4096), "it was answered in clear")
        hold(not one.agents(), "an agent was started")
    return "; ".join(told)


@attack()
def pose_as_a_host() -> str:
    """Answer a driver in a host's place: with another's, old or a driver's key."""
    told = []
    for host in (
        credentials(AGENT, ["vm-9"]),
        credentials(AGENT, [ADDRESS], ca="others"),
        credentials(AGENT, [ADDRESS], ends=-HOUR / 2),
        credentials(AGENT, ["127.0.5.*", "*", "127.0.5"]),
    ):
        one = Resident(ADDRESS, host)
        why = drives(OURS, one)
        one.close()
        hold(why, f"a driver talks to a host with {host.cert.read_text()}")
        told.append(why)
    return "; ".join(told)


@attack()
def replay_a_driver() -> str:
    """Record all that a driver says, and say it again."""
    with resident() as one:
        wire = Wire(one.address)
        with connect(OURS.client(), ADDRESS, wire.address) as conn:
            conn.sendall(greeting(agent_source()))
            read_answer(conn)
        wire.close()
        hold("drives" in one.line(), "the driver itself was not served")
        one.line()
        for _ in range(5):
            with closing(socket.create_connection(one.address, 5)) as sock:
                sock.sendall(wire.heard)
                with contextlib.suppress(ConnectionResetError):
                    while sock.recv(4096):
                        pass
            told = one.line()
            hold("no TLS with it" in told, told)
        hold(not one.agents(), "an agent was started")
    return f"{len(wire.heard)} bytes, five times: {told}"


@attack()
def bring_a_program() -> str:
    """Have an agent run a driver's own program, with a right certificate."""
    evil = f"open({str(Path('owned').resolve())!r}, 'w')".encode()
    with resident() as one, connect(OURS.client(), ADDRESS, one.address) as conn:
        conn.sendall(greeting(evil) + b"%d\n" % len(evil) + evil)
        try:
            read_answer(conn)
            hold(False, "it was welcomed")
        except UnusableError as error:
            told = str(error)
    hold(not Path("owned").exists(), "it ran")
    return told


@attack()
def frames_of_gigabytes() -> str:
    """Announce a frame of 4 GiB, with a driver's certificate, and send on."""
    with resident() as one, connect(OURS.client(), ADDRESS, one.address) as conn:
        conn.sendall(greeting(agent_source()))
        read_answer(conn)
        hold("drives" in one.line(), "no driver")
        (agent,) = one.agents()
        with contextlib.suppress(OSError):
            conn.sendall(b"\xff\xff\xff\xff")
            for _ in range(64):
                conn.sendall(bytes(1 << 20))
        with contextlib.suppress(psutil.NoSuchProcess):
            grown = agent.memory_info().rss >> 20
            hold(grown < 100, f"the agent takes {grown} MiB")
        whole = psutil.Process(one.process.pid).memory_info().rss >> 20
    hold(whole < 200, f"the listener takes {whole} MiB")
    return f"the listener has {whole} MiB, the agent ends or has few"


@attack()
def half_handshakes_from_many_addresses() -> str:
    """Fill the listener with half handshakes of 200 addresses; a driver then comes."""
    hello = first_bytes(OURS.client())
    with resident() as one, contextlib.ExitStack() as opened:
        process = psutil.Process(one.process.pid)
        for place in range(200):
            sock = socket.create_connection(one.address, 5, (f"127.12.{place}.1", 0))
            opened.enter_context(sock)
            with contextlib.suppress(OSError):
                sock.sendall(hello[: len(hello) // 2])
        held = process.num_fds()
        begin = time.monotonic()
        why = drives(OURS, one)
        took = time.monotonic() - begin
    hold(not why, f"the driver was refused: {why}")
    hold(held < 100, f"{held} descriptors are held")
    return f"{held} descriptors held; the driver got in after {took:.1f} s"


@attack()
def trickle_a_handshake() -> str:
    """Keep a place in the listener by a byte every 0.2 s."""
    hello = first_bytes(OURS.client())
    with resident() as one, closing(socket.create_connection(one.address, 5)) as sock:
        begin = time.monotonic()
        sock.settimeout(0.2)
        for place in range(len(hello)):
            try:
                sock.send(hello[place : place + 1])
                if not sock.recv(100):
                    break
            except TimeoutError:
                took = time.monotonic() - begin
                hold(took < 7, "it is not cut off")
            except ConnectionError:
                break
    return f"cut off after {time.monotonic() - begin:.1f} s"


@attack()
def read_the_daemon_with_wrong_certificates() -> str:
    """Read a daemon by HTTPS with a host's, a foreign and an expired certificate."""
    with Front(LIMITS).running() as front:
        for ours in (
            credentials(AGENT, ["vm-1"]),
            credentials(READER, ca="others"),
            credentials(READER, ends=-HOUR / 2),
            credentials("https://other"),
        ):
            try:
                status, _, _ = front.get("/v1/snapshot", ours)
            except OSError:
                continue
            hold(status == 403, f"it answers {status}")
        status, _, _ = front.get("/v1/map", credentials(READER))
    hold(status == 200, "a reader is not served")
    return "four refused, a reader is served"


@attack()
def smuggle_requests() -> str:
    """Send paths that lead out, two requests in one, bodies and endless heads."""
    said = [
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/map?question=%2e%2e%2f%2e%2e%2fetc%2fpasswd HTTP/1.0\r\n\r\n",
        b"POST /v1/map HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / H",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /\r\nX: y HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000,
        b"GET " + b"/" * 100_000,
    ]
    statuses = []
    with Front(LIMITS).running() as front:
        for one in said:
            raw = socket.create_connection(front.address, 5)
            context = credentials(READER).client()
            with context.wrap_socket(raw, server_hostname="127.0.0.1") as conn:
                told = b""
                with contextlib.suppress(OSError):
                    conn.sendall(one)
                    conn.settimeout(1)
                    while part := conn.recv(1 << 16):
                        told += part
            hold(b"root:" not in told, "it sent a file")
            hold(told.count(b"HTTP/1.") <= 1, "two answers")
            statuses.append(told[9:12].decode() or "none")
    return "answers: " + " ".join(statuses)


@attack()
def use_a_key_that_others_can_read() -> str:
    """Have an agent start with a key that is open to everybody."""
    key = Path("key")
    key.write_bytes(HOST.key.read_bytes())
    key.chmod(0o644)
    words = (f"--cert={HOST.cert}", "--key=key", f"--ca={HOST.ca}")
    done = program("agent", *words, "--listen", f"{ADDRESS}:0")
    hold(done.returncode == 2, f"exit code {done.returncode}")
    return done.stderr.strip()


@attack()
def keys_under_an_open_umask() -> str:
    """Read keys that `agent certs` has made under umask 0."""
    os.umask(0)
    Path("hosts").write_text("vm-1\n")
    done = program("agent", "certs", "--hosts", "hosts", "-o", "certs")
    hold(done.returncode == 0, done.stderr)
    keys = [path for path in Path("certs").rglob("*") if "key" in path.name]
    modes = {path.stat().st_mode & 0o777 for path in keys}
    hold(keys and modes == {0o600}, f"{len(keys)} keys with modes {modes}")
    return f"{len(keys)} keys, all of mode 600"
