from __future__ import annotations

import http.client
import queue
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

import pytest
from pki import HOUR, credentials

from cloudcoll.daemon.responses import Response
from cloudcoll.daemon.servers import LIMITS, served_by_https
from cloudcoll.tls import AGENT, DRIVER, READER, Credentials
from cloudcoll.tls.server import Limits

WAIT = 10.0
HOST = credentials(AGENT, ["127.0.0.1"])


class Front:
    """A front that repeats what it is asked, and what it says of strangers."""

    def __init__(self, limits: Limits) -> None:
        self.said: queue.Queue[str] = queue.Queue()
        self.limits = limits
        self.address = ("", 0)

    @contextmanager
    def running(self) -> Iterator[Front]:
        where = ("127.0.0.1", 0)
        with served_by_https(
            where, HOST, self._answer, self.said.put, self.limits
        ) as self.address:
            port = self.address[1]
            assert self.said.get(timeout=WAIT) == f"answers at https://127.0.0.1:{port}"
            yield self

    def _answer(self, path: str) -> Response:
        return Response(404 if path == "/none" else 200, "text/plain", path.encode())

    def get(
        self, path: str, ours: Credentials | None = None
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        """Return status, body and headers."""
        context = (ours or credentials(READER)).client()
        client = http.client.HTTPSConnection(
            *self.address, timeout=WAIT, context=context
        )
        with closing(client):
            client.request("GET", path)
            response = client.getresponse()
            return response.status, response.read(), response.headers


@pytest.fixture
def front() -> Iterator[Front]:
    with Front(LIMITS).running() as one:
        yield one


@pytest.mark.parametrize("role", [READER, DRIVER])
def test_readers_are_answered(role: str, front: Front) -> None:
    """Tests status, type and body as they were answered, for each path."""
    for path, status in (
        ("/metrics", 200),
        ("/v1/map?question=a", 200),
        ("/none", 404),
    ):
        told, body, headers = front.get(path, credentials(role))
        assert (told, body) == (status, path.encode())
        assert headers["Content-Type"] == "text/plain"
        assert headers["Server"] == "cloudcoll"
        assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_an_agent_may_not_read(front: Front) -> None:
    """Tests that a host's certificate, if stolen, opens nothing else."""
    with pytest.raises(ssl.SSLError, match="ALERT_UNSUPPORTED_CERTIFICATE"):
        front.get("/v1/snapshot", credentials(AGENT, ["vm-1"]))
    assert "for another purpose" in front.said.get(timeout=WAIT)


def test_another_role_is_told(front: Front) -> None:
    """Tests that a certificate of the CA that is for something else is refused."""
    status, body, _ = front.get("/v1/map", credentials("https://other"))
    assert status == 403
    assert b"cloudcoll:reader is needed" in body


def test_expired_and_foreign_certificates(front: Front) -> None:
    """Tests that nothing is served to them, and the log says why."""
    for client, why in (
        (credentials(READER, ends=-HOUR / 2), "has expired by our clock"),
        (credentials(READER, ca="others"), "is not signed by our CA"),
    ):
        with pytest.raises(ssl.SSLError):
            front.get("/", client)
        assert why in front.said.get(timeout=WAIT)


@pytest.mark.parametrize(
    "request_line",
    [
        b"POST /v1/map HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"/" * (1 << 17) + b" HTTP/1.1\r\n\r\n",
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
    ],
)
def test_requests_that_are_not_right(request_line: bytes, front: Front) -> None:
    """Tests that a reader's nonsense is refused, and the next one served."""
    raw = socket.create_connection(front.address, WAIT)
    context = credentials(READER).client()
    told = b""
    with (
        context.wrap_socket(raw, server_hostname="127.0.0.1") as conn,
        # It hangs up on what is too long before it is all sent.
        suppress(ssl.SSLEOFError, ConnectionError),
    ):
        conn.sendall(request_line)
        told = conn.recv(1 << 16)
    assert b"200" not in told[:20]
    assert front.get("/")[0] == 200


def test_a_request_that_trickles_in() -> None:
    """Tests that the time is that of a request, not of each of its bytes."""
    with Front(replace(LIMITS, life_s=0.5)).running() as front:
        raw = socket.create_connection(front.address, WAIT)
        context = credentials(READER).client()
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as conn:
            conn.settimeout(0.1)
            for _ in range(1000):
                try:
                    conn.sendall(b"x")
                    assert conn.recv(1) == b""
                    break
                except TimeoutError:
                    continue
                except OSError:
                    break  # a reset, if it had not read all
            else:
                raise AssertionError("it is still waiting")
