"""Answers by HTTPS, to readers and drivers that show a certificate.

The same answers as on the Unix socket, one request a connection.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from cloudcoll.daemon.responses import Response
from cloudcoll.daemon.unix import Handler, cut_after
from cloudcoll.tls import DRIVER, READER, Credentials, announce_end
from cloudcoll.tls.server import Limits, Server

LIMITS = Limits(burst=64, per_second=8.0, members=32)
"""Prometheus, browsers and jobs come more often than drivers do."""

Answerer = Callable[[str], Response]


@contextlib.contextmanager
def served_by_https(
    address: tuple[str, int],
    credentials: Credentials,
    answer: Answerer,
    say: Callable[[str], None],
    limits: Limits = LIMITS,
) -> Iterator[tuple[str, int]]:
    """Answer while the context lasts; it yields where.

    Parameters
    ----------
    address : (str, int)
    credentials : Credentials
        Their certificate has the names under which this host is reached.
    answer : callable
        Makes the answer to ``GET path`` from the path; called from other
        threads.
    say : callable
        Called with one line about each connection that was refused.
    limits : Limits

    Raises
    ------
    UsageError
        The address is taken or none of ours, or the credentials are no good.
    """
    serve = partial(_serve, answer=answer, seconds=limits.life_s)
    roles = {DRIVER, READER}
    with Server(address, credentials, roles, serve, say, _forbid, limits) as server:
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        say("answers at https://{}:{}".format(*server.address))
        try:
            yield server.address
        finally:
            server.stop()
            thread.join()


def _serve(conn: ssl.SSLSocket, name: str, *, answer: Answerer, seconds: float) -> None:
    """Answer one request, for which there are `seconds`."""
    del name
    with cut_after(seconds, conn):
        _TlsHandler(answer, conn, conn.getpeername(), None)
        announce_end(conn)


def _forbid(words: str) -> bytes:
    body = words.encode() + b"\n"
    head = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _TlsHandler(Handler):
    def __init__(self, answer: Answerer, *args: Any) -> None:
        self._answer = answer
        super().__init__(*args)

    def response_to(self, path: str) -> Response:
        return self._answer(path)
