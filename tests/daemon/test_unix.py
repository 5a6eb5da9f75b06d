from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudcoll.daemon import unix
from cloudcoll.daemon.asking import ask, daemon_socket, reachable
from cloudcoll.daemon.unix import peer_uid, served
from cloudcoll.daemon.view import View
from cloudcoll.errors import UnusableError

EMPTY = View(version="1", now=0.0, started=0.0)
PATIENCE_S = 20.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A socket's name that is too long for an address."""
    return tmp_path / ("x" * 120) / "daemon.sock"


@pytest.fixture
def daemon(path: Path) -> Iterator[Path]:
    """A socket that answers."""
    with served(path, lambda: EMPTY, all_users=False):
        yield path


def test_a_request_is_answered(daemon: Path) -> None:
    """Tests a status over a path longer than a socket's address."""
    told = ask(daemon, "/v1/status", PATIENCE_S)
    assert told is not None
    assert told[0] == 200
    assert b'"phase": "empty"' in told[1]
    assert daemon.stat().st_mode & 0o777 == 0o600


def test_another_user_is_turned_away(
    daemon: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that whoever is neither this user nor root gets no answer."""
    monkeypatch.setattr(unix, "peer_uid", lambda connection: os.geteuid() + 1)
    assert ask(daemon, "/v1/status", PATIENCE_S) is None


def test_every_user_where_that_is_wanted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a daemon for all users of a machine answers them."""
    monkeypatch.setattr(unix, "peer_uid", lambda connection: os.geteuid() + 1)
    with served(path, lambda: EMPTY, all_users=True):
        assert ask(path, "/v1/status", PATIENCE_S) is not None
        assert path.stat().st_mode & 0o777 == 0o666


def test_a_request_that_comes_byte_by_byte(
    daemon: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that it has to be there in time as a whole."""
    monkeypatch.setattr(unix, "REQUEST_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as client:
        with reachable(daemon) as short:
            client.connect(short)
        assert any(ended(client) for _ in range(200))


def ended(client: socket.socket) -> bool:
    """Send a byte more; return whether the other end has gone."""
    try:
        client.send(b"G")
    except BrokenPipeError:
        return True
    return bool(select.select([client], [], [], 0.02)[0])


def test_the_kernel_says_who_asks() -> None:
    """Tests the credentials of a connection of our own."""
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        assert peer_uid(here) == os.geteuid()


def test_what_a_killed_daemon_left_is_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a socket without a listener is in nobody's way."""
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        monkeypatch.chdir(path.parent)
        left.bind(path.name)
    assert path.exists()
    assert ask(path, "/healthz", PATIENCE_S) is None
    with served(path, lambda: EMPTY, all_users=False):
        assert ask(path, "/healthz", PATIENCE_S) == (503, b"nothing confirmed\n")
    assert not path.exists()


def test_no_daemon_no_answer(path: Path) -> None:
    """Tests that an absent socket, and an absent folder, say nothing."""
    assert daemon_socket() is None
    assert ask(path, "/healthz") is None


def test_a_silent_daemon_is_left_soon(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a listener that never answers is taken for none."""
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as mute:
        monkeypatch.chdir(path.parent)
        mute.bind(path.name)
        mute.listen()
        assert ask(path, "/healthz") is None


def test_a_socket_that_cannot_be(tmp_path: Path) -> None:
    """Tests that a file in the folder's place is told in one line."""
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "sock"
    with (
        pytest.raises(UnusableError, match=r"cannot listen at .*--socket"),
        served(path, lambda: EMPTY, all_users=False),
    ):
        pytest.fail("it listened")
