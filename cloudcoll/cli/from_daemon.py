"""What a daemon that keeps these hosts' network knows, for a launch."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cloudcoll.cli.order_request import Wish
from cloudcoll.cli.output import say
from cloudcoll.daemon.client import ASK_SECONDS, ask, daemon_socket
from cloudcoll.errors import CloudcollError, UnusableError
from cloudcoll.files import (
    NOT_JSON,
    snapshot_file,
    stored_digest,
    strict_json,
    write_atomic,
)
from cloudcoll.hosts import host_set_key
from cloudcoll.launch import LaunchRequest
from cloudcoll.rankmap import RankMap

FETCH_SECONDS = 5.0
"""For a whole snapshot: some megabytes, and a probe is slower."""


def ask_daemon(
    request: LaunchRequest, wish: Wish, question: str
) -> tuple[bool, RankMap | None]:
    """Return whether a daemon vouches for these hosts' snapshot, and its map.

    The snapshot is then where the latest of these hosts is kept. A daemon that
    does not answer, or knows other hosts, is none.
    """
    socket = daemon_socket()
    told = socket and ask(socket, f"/v1/map?question={question}")
    if not socket or not told:
        return False, None
    status, body = told
    try:
        if status == 200:
            rank_map = RankMap.from_json(body.decode(), "the daemon's map")
            fits = sorted(rank_map.order) == sorted(wish.candidates(request))
            return fits, rank_map if fits else None
        news = strict_json(body)
        if status != 404 or not isinstance(news, dict):
            return False, None
        key, digest = host_set_key(request.hosts), str(news.get("snapshot"))
        return news.get("key") == key and _have(socket, key, digest), None
    except (*NOT_JSON, CloudcollError) as error:
        say(f"{error}; going on without the daemon")
        return False, None


def _have(socket: Path, key: str, digest: str) -> bool:
    """Return whether the daemon's snapshot is where ours are kept, now at last.

    Raises
    ------
    UnusableError
        It is not intact, or can't be written there.
    """
    path = snapshot_file(key)
    if path.is_file():
        with path.open("rb") as file:
            if stored_digest(file.readline(200)) == digest:
                return True
    # The daemon is another user's.
    copied = ask(socket, f"/v1/snapshot?hosts={key}", FETCH_SECONDS, ASK_SECONDS)
    if not copied or copied[0] != 200:
        return False
    # Ours, though old, is not given up for what is none, or cut short.
    _, _, payload = copied[1].partition(b"\n")
    if hashlib.sha256(payload).hexdigest() != digest:
        raise UnusableError("the daemon's snapshot is damaged")
    write_atomic(path, copied[1])
    return True
