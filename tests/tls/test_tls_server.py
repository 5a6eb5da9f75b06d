from __future__ import annotations

import contextlib
import queue
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pki import HOUR, credentials

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.resident.dial import connect
from cloudcoll.tls import (
    AGENT,
    DRIVER,
    READER,
    Credentials,
    announce_end,
    is_cut,
    reason,
    server,
)
from cloudcoll.tls.server import USUAL, Limits, Server

WAIT = 10.0
EAGER = Limits(burst=1000, pace_s=0.0, life_s=WAIT)
HOST = credentials(AGENT, ["127.0.0.1"])


class Served:
    """A server that answers a member with its name, and what it says of others."""

    def __init__(self, limits: Limits = EAGER, host: Credentials = HOST) -> None:
        self.said: queue.Queue[str] = queue.Queue()
        self.server = Server(
            ("127.0.0.1", 0),
            host,
            {DRIVER},
            self._serve,
            self.said.put,
            str.encode,
            limits,
        )
        self.address = self.server.address

    def _serve(self, conn: ssl.SSLSocket, name: str) -> None:
        conn.sendall(name.encode())
        conn.settimeout(WAIT)
        while conn.recv(100):
            pass

    def tells(self) -> str:
        return self.said.get(timeout=WAIT)

    def refuses(self, ours: Credentials) -> str:
        """Return why a client is not served, in the words it is shown."""
        try:
            told = self.talks(ours).decode()
        except (OSError, UnusableError) as error:
            return reason(error)
        assert told != DRIVER, "it was served"
        return told

    def talks(self, ours: Credentials) -> bytes:
        """Return what a client is told first."""
        with connect(ours.client(), "127.0.0.1", self.address) as conn:
            return conn.recv(100)

    @contextmanager
    def running(self) -> Iterator[None]:
        with self.server as server:
            thread = threading.Thread(target=server.run)
            thread.start()
            try:
                yield
            finally:
                server.stop()
                thread.join(WAIT)
        assert not thread.is_alive()


@contextmanager
def serving(limits: Limits = EAGER, host: Credentials = HOST) -> Iterator[Served]:
    served = Served(limits, host)
    with served.running():
        yield served


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as one:
        yield one


def ended(sock: socket.socket) -> bool:
    """Return whether the other end closes within the time of a test."""
    sock.settimeout(WAIT)
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(4096):
            pass  # an alert
    return True


def test_a_driver_is_served(served: Served) -> None:
    """Tests that whoever has the role is told apart by name."""
    assert served.talks(credentials(DRIVER)) == DRIVER.encode()
    assert served.talks(credentials(DRIVER, ["night-shift"])) == b"night-shift"


@pytest.mark.parametrize(
    ("client", "told", "logged"),
    [
        (
            credentials(DRIVER, ca="others"),
            "it refuses us: our certificate is not signed by its CA",
            "its certificate is not signed by our CA",
        ),
        (
            credentials(DRIVER, begins=-2 * HOUR, ends=-HOUR),
            "it refuses us: our certificate has expired by its clock",
            "its certificate has expired by our clock (",
        ),
        (
            credentials(DRIVER, begins=HOUR, ends=2 * HOUR),
            "it refuses us: our certificate is not valid (yet) by its clock",
            "its certificate is not valid yet by our clock (",
        ),
        (
            credentials(AGENT, ["vm-7"]),
            "it refuses us: our certificate is for another purpose",
            "its certificate is for another purpose",
        ),
        (
            credentials(READER),
            f"the certificate of '{READER}' is for {READER}: {DRIVER} is needed",
            f"the certificate of '{READER}' is for {READER}: {DRIVER} is needed",
        ),
    ],
)
def test_others_are_refused(
    client: Credentials, told: str, logged: str, served: Served
) -> None:
    """Tests what both ends say of a certificate that is no good, in one line."""
    assert served.refuses(client) == told
    line = served.tells()
    assert line.startswith(f"127.0.0.1: {logged}")
    assert "\n" not in line
    assert served.talks(credentials(DRIVER)) == DRIVER.encode()


def test_no_certificate_at_all(served: Served) -> None:
    """Tests that a client that shows nothing gets nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(HOST.ca)
    raw = socket.create_connection(served.address, WAIT)
    with (
        context.wrap_socket(raw, server_hostname="127.0.0.1") as conn,
        pytest.raises(ssl.SSLError) as caught,
    ):
        conn.recv(1)
    assert reason(caught.value) == "it refuses us: we showed no certificate"
    assert served.tells() == "127.0.0.1: it shows no certificate"


def test_no_session_is_resumed(served: Served) -> None:
    """Tests that TLS 1.2 is no way around showing a certificate that is still good."""
    context = credentials(DRIVER).client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def dialled(session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
        raw = socket.create_connection(served.address, WAIT)
        return context.wrap_socket(raw, server_hostname="127.0.0.1", session=session)

    with dialled() as first:
        assert first.recv(100) == DRIVER.encode()
        assert first.session
        assert not first.session.has_ticket
        with dialled(first.session) as second:
            refusal = second.recv(100).decode()
    assert refusal == (
        "no session is resumed: each connection has to show its certificate"
    )
    assert served.tells() == f"127.0.0.1: {refusal}"


def test_an_old_version_of_tls(served: Served) -> None:
    """Tests that TLS 1.1 is not spoken, whatever a client offers."""
    context = credentials(DRIVER).client()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1 "):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1 "):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(served.address, WAIT) as raw,
        pytest.raises(ssl.SSLError) as caught,
    ):
        context.wrap_socket(raw, server_hostname="127.0.0.1")
    assert reason(caught.value) == "it refuses us: it speaks another version of TLS"
    assert "unsupported protocol" in served.tells()


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (credentials(AGENT, ["127.0.0.2"]), "its certificate is another host's"),
        (credentials(AGENT, ["127.0.0.1"], ca="others"), "not signed by our CA"),
        (credentials(AGENT, ["127.0.0.1"], ends=-HOUR / 2), "has expired by our clock"),
        (
            credentials(AGENT, ["127.0.0.1"], begins=HOUR, ends=2 * HOUR),
            "not valid yet by our clock",
        ),
        (credentials(DRIVER, ["127.0.0.1"]), f"is for {DRIVER}: {AGENT} is needed"),
    ],
)
def test_a_host_that_is_another(host: Credentials, words: str) -> None:
    """Tests that a driver talks to the host that it means, and to no other."""
    with serving(host=host) as served:
        told = served.refuses(credentials(DRIVER))
    assert words in told
    assert "\n" not in told


def test_a_daemon_is_both(served: Served) -> None:
    """Tests that one certificate drives agents and serves readers, if it is to."""
    both = credentials(DRIVER, ["127.0.0.1"])
    assert served.talks(both) == b"127.0.0.1"
    with serving(host=both) as front:
        raw = socket.create_connection(front.address, WAIT)
        client = credentials(DRIVER).client()
        with client.wrap_socket(raw, server_hostname="127.0.0.1") as conn:
            assert conn.recv(100) == DRIVER.encode()


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.0\r\n\r\n", b"\n" * 99, b"\x16\x03\x01\xff\xff" + b"x" * 99]
)
def test_what_is_not_tls(said: bytes, served: Served) -> None:
    """Tests that whoever speaks something else is sent away at once."""
    with closing(socket.create_connection(served.address, WAIT)) as sock:
        sock.sendall(said)
        assert ended(sock)
    assert served.tells().startswith("127.0.0.1: ")
    assert served.talks(credentials(DRIVER)) == DRIVER.encode()


def test_a_check_of_the_port_is_no_line(served: Served) -> None:
    """Tests that who connects and goes is not in the log, while the next one is."""
    with closing(socket.create_connection(served.address, WAIT)) as check:
        check.shutdown(socket.SHUT_WR)
        assert ended(check)
    with closing(socket.create_connection(served.address, WAIT)) as junk:
        junk.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert ended(junk)
    assert served.tells() == "127.0.0.1: what it says is not TLS"


def client_hello() -> bytes:
    """Return what a client of TLS says first."""
    out = ssl.MemoryBIO()
    client = credentials(DRIVER).client()
    session = client.wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return out.read()


@given(st.data())
def test_first_bytes_of_any_kind(data: st.DataObject) -> None:
    """Tests that TLS refuses or waits for more, whatever a stranger says first."""
    said = bytearray(client_hello())
    places = st.integers(0, len(said) - 1)
    for place in data.draw(st.lists(places, min_size=1, max_size=8)):
        said[place] = data.draw(st.integers(0, 255))
    said = said[: data.draw(places)] + data.draw(st.binary(max_size=40))
    heard = ssl.MemoryBIO()
    session = HOST.server().wrap_bio(heard, ssl.MemoryBIO(), server_side=True)
    heard.write(said)
    with pytest.raises(ssl.SSLError):
        session.do_handshake()


def test_a_handshake_that_trickles_in() -> None:
    """Tests that the time is that of a handshake, not of each of its bytes."""
    with serving(replace(EAGER, life_s=0.5)) as served:
        with closing(socket.create_connection(served.address, WAIT)) as sock:
            for byte in client_hello():
                sock.send(bytes([byte]))
                if select.select([sock], [], [], 0.1)[0]:
                    break
            assert ended(sock)
        assert served.tells() == "127.0.0.1: no answer in time"


def test_half_a_handshake_is_a_place_for_the_next() -> None:
    """Tests that of too many strangers the oldest goes, and a member gets in."""
    limits = replace(EAGER, strangers=8, per_source=1000)
    with serving(limits) as served, ExitStack() as stack:
        half = [
            stack.enter_context(closing(socket.create_connection(served.address, WAIT)))
            for _ in range(30)
        ]
        for sock in half:
            sock.sendall(client_hello()[:50])
        assert served.talks(credentials(DRIVER)) == DRIVER.encode()
        # The member took a place too.
        assert all(ended(sock) for sock in half[: 30 - limits.strangers + 1])
        assert len(served.server._strangers) == limits.strangers - 1
        last = half[-1]
        last.setblocking(False)
        with pytest.raises(BlockingIOError):
            last.recv(1)


def test_as_many_strangers_as_the_security_notes_say() -> None:
    """Tests the usual limit: after 64, of several addresses, the first has to go."""
    limits = replace(USUAL, pace_s=0.0, life_s=3 * WAIT)
    with serving(limits) as served, ExitStack() as stack:
        ours = [(f"127.0.0.{2 + number % 9}", 0) for number in range(64)]
        first, second, *_ = [
            stack.enter_context(
                closing(socket.create_connection(served.address, WAIT, source))
            )
            for source in ours
        ]
        # A member is a stranger too until it has shown its certificate.
        assert served.talks(credentials(DRIVER)) == DRIVER.encode()
        assert ended(first)
        second.setblocking(False)
        with pytest.raises(BlockingIOError):
            second.recv(1)


def test_a_place_is_free_again_after_who_was_gone_at_once() -> None:
    """Tests that who breaks off before the handshake begins counts no more."""
    served = Served(replace(EAGER, per_source=1))
    # It talks and hangs up while nobody accepts connections yet.
    hasty = socket.create_connection(served.address, WAIT)
    hasty.sendall(b"hello")
    hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    hasty.close()
    with served.running():
        assert served.tells().startswith(("a connection was lost", "127.0.0.1: "))
        assert served.talks(credentials(DRIVER)) == DRIVER.encode()


def test_one_source_cannot_take_all_places() -> None:
    """Tests the cap of one address, while another one gets in."""
    with serving(replace(EAGER, per_source=3)) as served, ExitStack() as stack:
        held = [
            stack.enter_context(closing(socket.create_connection(served.address, WAIT)))
            for _ in range(4)
        ]
        assert ended(held[-1])
        host, port = served.address
        other = socket.create_connection((host, port), WAIT, ("127.0.0.77", 0))
        with (
            credentials(DRIVER)
            .client()
            .wrap_socket(
                stack.enter_context(closing(other)), server_hostname="127.0.0.1"
            ) as conn
        ):
            assert conn.recv(100) == DRIVER.encode()


def test_a_source_that_comes_too_often() -> None:
    """Tests that connections beyond the burst are closed before any handshake."""
    with serving(replace(EAGER, burst=2, per_second=0.0)) as served:
        for _ in range(2):
            assert served.talks(credentials(DRIVER)) == DRIVER.encode()
        with closing(socket.create_connection(served.address, WAIT)) as sock:
            assert ended(sock)
        assert served.refuses(credentials(DRIVER)) == "closed the connection"


def test_a_flood_does_not_keep_others_waiting() -> None:
    """Tests that who is closed out is done with long before a member's 5 s are over."""
    with (
        serving(replace(EAGER, burst=2, per_second=0.0)) as served,
        ExitStack() as stack,
    ):
        for _ in range(20):
            flood = socket.create_connection(served.address, WAIT, ("127.0.0.77", 0))
            stack.enter_context(closing(flood))
        assert served.talks(credentials(DRIVER)) == DRIVER.encode()


def test_members_have_a_cap_too() -> None:
    """Tests that one member more than may be is refused, until another goes."""
    ours = credentials(DRIVER)
    with serving(replace(EAGER, members=1)) as served:
        with connect(ours.client(), "127.0.0.1", served.address) as first:
            assert first.recv(100) == DRIVER.encode()
            assert served.refuses(ours) == "1 others are here already"
            assert served.tells() == "127.0.0.1: 1 others are here already"
            with pytest.raises(ssl.SSLError) as caught:
                first.unwrap()  # it has heard of our end, and ends
            assert is_cut(caught.value)
        assert served.talks(ours) == DRIVER.encode()


def test_the_end_is_everyones() -> None:
    """Tests that no connection outlives the server, and its port is free."""
    with serving() as served:
        conn = connect(credentials(DRIVER).client(), "127.0.0.1", served.address)
        stranger = socket.create_connection(served.address, WAIT)
        assert conn.recv(100) == DRIVER.encode()
    with conn, stranger:
        conn.settimeout(WAIT)
        with pytest.raises(OSError, match="EOF"):
            conn.recv(1)
        assert ended(stranger)
    assert served.said.empty()  # our own end is no failure of theirs
    with closing(socket.create_server(served.address)) as again:
        assert again.getsockname() == served.address


def test_who_serves_is_waited_for() -> None:
    """Tests that the server's end comes after what its threads still have to do."""
    done: list[str] = []
    begun = threading.Event()

    class Slow(Served):
        def _serve(self, conn: ssl.SSLSocket, name: str) -> None:
            begun.set()
            with contextlib.suppress(OSError):
                conn.recv(1)
            threading.Event().wait(0.1)  # as one that writes a file at its end
            done.append(name)

    served = Slow()
    with served.running():
        conn = connect(credentials(DRIVER).client(), "127.0.0.1", served.address)
        assert begun.wait(WAIT)
    conn.close()
    assert done == [DRIVER]


def test_who_is_refused_can_read_why_whatever_it_still_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that what nobody reads does not make a reset of the last word."""
    monkeypatch.setattr(server, "PART_SECONDS", WAIT)

    class Full(Served):
        def _serve(self, conn: ssl.SSLSocket, name: str) -> None:
            raise UnusableError("too much of it")

    served = Full()
    with served.running():
        conn = connect(credentials(DRIVER).client(), "127.0.0.1", served.address)
        with conn:
            assert conn.recv(100) == b"too much of it"
            raw = socket.socket(fileno=conn.detach())
        with closing(raw):
            raw.settimeout(WAIT)
            assert not raw.recv(1)
            # More than the kernel would take on behalf of one that is gone.
            raw.sendall(bytes(32 << 20))


def test_who_is_refused_cannot_go_on_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that what nobody reads is taken for the time of a last word, no longer."""
    monkeypatch.setattr(server, "PART_SECONDS", 0.05)

    def flood(raw: socket.socket) -> None:
        for _ in range(1 << 16):  # 4 GiB: more than that time has room for
            raw.sendall(bytes(1 << 16))

    with serving(replace(EAGER, members=0)) as served:
        with connect(credentials(DRIVER).client(), "127.0.0.1", served.address) as conn:
            assert conn.recv(100) == b"0 others are here already"
            raw = socket.socket(fileno=conn.detach())
        raw.settimeout(WAIT)
        with closing(raw), pytest.raises(OSError, match=r"reset|Broken pipe"):
            flood(raw)


def test_an_end_is_announced_to_who_does_not_answer() -> None:
    """Tests that who serves is done though the other end never says that it is, too."""
    done = threading.Event()

    class Brief(Served):
        def _serve(self, conn: ssl.SSLSocket, name: str) -> None:
            conn.settimeout(None)
            announce_end(conn)
            done.set()

    served = Brief()
    with (
        served.running(),
        connect(credentials(DRIVER).client(), "127.0.0.1", served.address) as conn,
    ):
        assert done.wait(WAIT)
        assert conn.recv(1) == b""


def test_who_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the server ends in its time, whatever its threads still do."""
    monkeypatch.setattr(server, "END_SECONDS", 0.05)
    begun, over = threading.Event(), threading.Event()
    join, joined = threading.Thread.join, {}

    def noted(thread: threading.Thread, timeout: float) -> None:
        joined[thread] = timeout
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", noted)

    class Endless(Served):
        def _serve(self, conn: ssl.SSLSocket, name: str) -> None:
            begun.set()
            over.wait(3 * WAIT)

    served = Endless()
    with served.running():
        conn = connect(credentials(DRIVER).client(), "127.0.0.1", served.address)
        assert begun.wait(WAIT)
    (thread,) = served.server._threads
    assert thread.is_alive()
    assert joined[thread] <= 0.05
    assert thread.daemon  # nor does Python wait for it when the program ends
    conn.close()
    over.set()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_an_address_of_version_6() -> None:
    """Tests that a listener there says where it is, like any other."""
    limits = Server(("::1", 0), HOST, {DRIVER}, print, print, str.encode)
    with limits as server:
        host, port = server.address
        assert host == "::1"
        with closing(socket.create_connection((host, port), WAIT)) as sock:
            assert sock.getpeername()[:2] == server.address


def test_a_port_in_use(served: Served) -> None:
    """Tests that a port that is taken is named, and who has it goes on."""
    _, port = served.address
    with pytest.raises(UsageError, match=f"127.0.0.1:{port}: Address already in use"):
        Server(served.address, HOST, {DRIVER}, print, print, str.encode)
    assert served.talks(credentials(DRIVER)) == DRIVER.encode()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_nobody(host: str) -> None:
    """Tests that an address that is not this host's is refused in one line."""
    with pytest.raises(UsageError, match=f"cannot listen on {host}:0") as caught:
        Server((host, 0), HOST, {DRIVER}, print, print, str.encode)
    assert "\n" not in str(caught.value)
