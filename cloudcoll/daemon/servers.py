"""HTTP for those who ask: on a Unix socket for this user and root alone, and by TLS.

HTTP/1.0 or 1.1, one request a connection: ``curl --unix-socket`` does. By HTTPS the
same answers go to readers and drivers that show a certificate.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import stat
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

from cloudcoll.daemon.responses import Response, answer
from cloudcoll.daemon.view import View
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.local_daemon import reachable
from cloudcoll.tls import DRIVER, READER, Credentials, announce_end
from cloudcoll.tls.server import Limits, Server, cut

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
"""The status page loads nothing and runs no scripts."""


@contextlib.contextmanager
def cut_after(seconds: float, conn: socket.socket) -> Iterator[None]:
    """End a connection if the context lasts longer.

    A timeout of the connection's own is for each read: a client that sends byte by
    byte would stay. Whoever reads or writes then finds that it has ended.
    """
    alarm = threading.Timer(seconds, cut, (conn,))
    alarm.daemon = True
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()


Answerer = Callable[[str], Response]


class Handler(BaseHTTPRequestHandler):
    """Answers ``GET`` by what makes the answer of a path."""

    def __init__(self, answer: Answerer, *args: Any) -> None:
        self._answer = answer
        super().__init__(*args)

    def do_GET(self) -> None:
        """Send the answer."""
        response = self._answer(self.path)
        self.send_response(response.status)
        self.send_header("Content-Type", response.type)
        self.send_header("Content-Length", str(len(response.body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(response.body)

    def version_string(self) -> str:
        """Keep the version of Python to ourselves."""
        return "cloudcoll"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: requests come all the time."""


REQUEST_SECONDS = 5.0
"""A request that takes longer, its answer included, is dropped."""
AT_ONCE = 32
"""Requests that are answered at the same time, in places that users share fairly;
as many more may be ending."""
WAITING = 1024
"""Connections that the kernel keeps until it is their turn; each is taken or turned
away in some 50 us, so that whoever comes last waits for less than `ASK_SECONDS`."""


@contextlib.contextmanager
def served(path: Path, view: Callable[[], View], *, all_users: bool) -> Iterator[None]:
    """Answer on the socket at `path` while the context lasts.

    A socket that a killed daemon of this user left is replaced: who may be here is
    for the store's lock to say. Nothing else is: UsageError. `view` is called from
    other threads; with `all_users` not only this user and root are answered.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with reachable(path) as short:
            _make_way(path, short)
            server = _Server(short, view, all_users)
            path.chmod(0o666 if all_users else 0o600)
            ours = path.lstat()
    except OSError as error:
        raise UnusableError(
            f"cannot listen at {path}: {error.strerror} (choose another with --socket)"
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.lstat(), ours):
                path.unlink()


def _make_way(path: Path, short: str) -> None:
    """Remove the socket that a killed daemon of this user left; refuse all else."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(there.st_mode):
        what = "exists and is no socket"
    elif there.st_uid != os.geteuid():
        what = "is another user's socket"
    elif _in_use(short):
        what = "is a socket that another program listens at"
    else:
        path.unlink()
        return
    raise UsageError(f"{path} {what}: choose another with --socket, or remove it")


def _in_use(short: str) -> bool:
    with socket.socket(socket.AF_UNIX) as knock:
        knock.setblocking(False)
        try:
            knock.connect(short)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # too busy for us, or of another kind
    return True


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = WAITING

    def __init__(self, path: str, view: Callable[[], View], all_users: bool) -> None:
        self.all_users = all_users
        self._lock = threading.Lock()
        self._users: dict[socket.socket, int] = {}  # whose each is, oldest first
        self._ending: set[socket.socket] = set()
        super().__init__(path, partial(Handler, lambda asked: answer(asked, view())))

    def verify_request(self, request: Any, client_address: Any) -> bool:
        user = peer_uid(request)
        if not self.all_users and user not in (0, os.geteuid()):
            return False
        with self._lock:
            if len(self._users) >= AT_ONCE and not self._make_room(user):
                return False
            self._users[request] = user
        return True

    def _make_room(self, user: int) -> bool:
        """Cut the oldest connection of the user who has most, if `user` has fewer.

        So whoever takes all places loses them to others one by one, and needs none
        of them to be kept free.
        """
        counts = Counter(self._users.values())
        greediest = max(counts, key=counts.__getitem__)
        if counts[user] >= counts[greediest] or len(self._ending) >= AT_ONCE:
            return False
        oldest = next(conn for conn, whose in self._users.items() if whose == greediest)
        del self._users[oldest]
        self._ending.add(oldest)
        cut(oldest)
        return True

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with cut_after(REQUEST_SECONDS, request):
            super().process_request_thread(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Give its place back, too, however it ended."""
        with self._lock:
            self._users.pop(request, None)
            self._ending.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def peer_uid(connection: socket.socket) -> int:
    """Return the user at the other end, as the kernel has it (SO_PEERCRED)."""
    size = struct.calcsize("3i")
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", packed)[1])


LIMITS = Limits(burst=64, per_second=8.0, members=32)
"""Prometheus, browsers and jobs come more often than drivers do."""


@contextlib.contextmanager
def served_by_https(
    address: tuple[str, int],
    credentials: Credentials,
    answer: Answerer,
    say: Callable[[str], None],
    limits: Limits = LIMITS,
) -> Iterator[tuple[str, int]]:
    """Answer while the context lasts; it yields where.

    The certificate of `credentials` has the names under which this host is reached.
    `answer` makes the answer to ``GET path``, in other threads; `say` gets a line about
    each connection that was refused.
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
        Handler(answer, conn, conn.getpeername(), None)
        announce_end(conn)


def _forbid(words: str) -> bytes:
    body = words.encode() + b"\n"
    head = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
