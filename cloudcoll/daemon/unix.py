"""Answers on a Unix socket, to this user and root alone; and how to ask there.

Plain HTTP/1.0 or 1.1, one request a connection: ``curl --unix-socket`` does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

from cloudcoll.daemon.answers import Answer, answer
from cloudcoll.daemon.asking import reachable
from cloudcoll.daemon.handler import Handler, cut_after
from cloudcoll.daemon.view import View
from cloudcoll.errors import UnusableError

REQUEST_SECONDS = 5.0
"""A request that takes longer, its answer included, is dropped."""
AT_ONCE = 32
"""Requests that are answered at the same time; others are turned away."""


@contextlib.contextmanager
def served(path: Path, view: Callable[[], View], *, all_users: bool) -> Iterator[None]:
    """Answer on the socket at `path` while the context lasts.

    A socket that a killed daemon left is replaced: who may be here is for the
    store's lock to say.

    Parameters
    ----------
    path : Path
    view : callable
        Returns what is known now; called from other threads.
    all_users : bool
        Answer every user of this machine, not only this one and root.

    Raises
    ------
    UnusableError
        There can be no socket at `path`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with reachable(path) as short:
            path.unlink(missing_ok=True)
            server = _Server(short, view, all_users)
            path.chmod(0o666 if all_users else 0o600)
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
        path.unlink(missing_ok=True)


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = AT_ONCE

    def __init__(self, path: str, view: Callable[[], View], all_users: bool) -> None:
        self.view = view
        self.all_users = all_users
        self._free = threading.Semaphore(AT_ONCE)
        super().__init__(path, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        known = self.all_users or peer_uid(request) in (0, os.geteuid())
        return known and self._free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            with cut_after(REQUEST_SECONDS, request):
                super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(Handler):
    server: _Server

    def told(self, path: str) -> Answer:
        return answer(path, self.server.view())


def peer_uid(connection: socket.socket) -> int:
    """Return the user at the other end, as the kernel has it (SO_PEERCRED)."""
    size = struct.calcsize("3i")
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", told)[1])
