"""One request over HTTP, answered from its path."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

from cloudcoll.daemon.responses import Answer
from cloudcoll.tls.server import cut

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
"""The status page loads nothing and runs no scripts."""


@contextlib.contextmanager
def cut_after(seconds: float, conn: socket.socket) -> Iterator[None]:
    """End a connection if the context lasts longer.

    A timeout of the connection's own is for each read: a client that sends byte by
    byte would stay.

    Parameters
    ----------
    seconds : float
    conn : socket
        Whoever reads or writes then finds that it has ended.
    """
    alarm = threading.Timer(seconds, cut, (conn,))
    alarm.daemon = True
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()


class Handler(BaseHTTPRequestHandler):
    """Answers ``GET`` by what `told` makes of the path."""

    def told(self, path: str) -> Answer:
        """Return the answer to ``GET path``."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Send the answer."""
        told = self.told(self.path)
        self.send_response(told.status)
        self.send_header("Content-Type", told.type)
        self.send_header("Content-Length", str(len(told.body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(told.body)

    def version_string(self) -> str:
        """Keep the version of Python to ourselves."""
        return "cloudcoll"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: requests come all the time."""
