from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import ROOT

from cloudcoll.daemon import servers
from cloudcoll.daemon.servers import peer_uid, served
from cloudcoll.daemon.view import View
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.local_daemon import ask, daemon_socket, reachable

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
    monkeypatch.setattr(servers, "peer_uid", lambda connection: os.geteuid() + 1)
    assert ask(daemon, "/v1/status", PATIENCE_S) is None


def test_every_user_where_that_is_wanted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a daemon for all users of a machine answers them."""
    monkeypatch.setattr(servers, "peer_uid", lambda connection: os.geteuid() + 1)
    with served(path, lambda: EMPTY, all_users=True):
        assert ask(path, "/v1/status", PATIENCE_S) is not None
        assert path.stat().st_mode & 0o777 == 0o666


def test_a_request_that_comes_byte_by_byte(
    daemon: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that it has to be there in time as a whole."""
    monkeypatch.setattr(servers, "REQUEST_SECONDS", 0.1)
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


HOG = """
held = []
for number in range(10**9):
    while len(held) < 64:
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].connect(sys.argv[1])
    if not number:
        print("here", flush=True)
    for ended in select.select(held, [], [])[0]:
        held.remove(ended)
        ended.close()
"""
"""Holds as many connections as it gets, and asks nothing."""

ASKER = """
answers = 0
for _ in range(20):
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(sys.argv[1])
        asker.settimeout(20)
        try:
            asker.sendall(b"GET /healthz HTTP/1.0\\r\\n\\r\\n")
            answers += asker.recv(12) == b"HTTP/1.0 503"
        except OSError:
            pass
print(answers)
"""
"""Asks 20 times, one after the other, and prints how often it was answered."""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="cloudcoll-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def as_user(uid: int, code: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program of another user's, which gets the path of a socket."""
    # Not by Popen's own `user`: Python may lie where others can't read it.
    become = f"import os; os.setgroups([]); os.setgid({uid}); os.setuid({uid})\n"
    program = f"import select, socket, sys\n{become}{code}"
    argv = [sys.executable, "-ISc", program, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@ROOT.mark
def test_one_user_takes_no_place_from_others(open_folder: Path) -> None:
    """Tests that all questions of a user are answered while another holds on."""
    path = open_folder / "sock"
    with (
        served(path, lambda: EMPTY, all_users=True),
        as_user(12345, HOG, path) as hog,
    ):
        assert hog.stdout
        assert hog.stdout.readline() == "here\n"
        with as_user(12346, ASKER, path) as asker:
            assert asker.communicate(timeout=300)[0] == "20\n"


class Crowd:
    """Connections of users to a server, which has to let them in or turn them away.

    Parameters
    ----------
    server : _Server
        Serves nobody: connections stay as long as they are not ended.
    patch : pytest.MonkeyPatch
    stack : contextlib.ExitStack
        Closes all of them.
    """

    def __init__(
        self,
        server: servers._Server,
        patch: pytest.MonkeyPatch,
        stack: contextlib.ExitStack,
    ) -> None:
        self._server = server
        self._stack = stack
        self._users: dict[socket.socket, int] = {}
        patch.setattr(servers, "peer_uid", self._users.__getitem__)

    def comes(self, user: int) -> socket.socket | None:
        """Return the server's end of a user's new connection, None if refused."""
        near, _ = map(self._stack.enter_context, socket.socketpair(socket.AF_UNIX))
        self._users[near] = user
        return near if self._server.verify_request(near, None) else None

    def come(self, users: list[int]) -> list[socket.socket]:
        """Let several in."""
        return [conn for user in users if (conn := self.comes(user))]

    def goes(self, conn: socket.socket) -> None:
        """End a connection as the server does when it is done with it."""
        self._server.shutdown_request(conn)


def cut_off(conn: socket.socket) -> bool:
    """Return whether the server has ended a connection, whose other end has not."""
    return bool(select.select([conn], [], [], 0.0)[0])


@pytest.fixture
def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    """Users of a server that has four places."""
    monkeypatch.setattr(servers, "AT_ONCE", 4)
    monkeypatch.chdir(tmp_path)
    with (
        contextlib.ExitStack() as stack,
        servers._Server("sock", lambda: EMPTY, all_users=True) as server,
    ):
        yield Crowd(server, monkeypatch, stack)


def test_whoever_has_most_gives_a_place_up(crowd: Crowd) -> None:
    """Tests that it is the oldest, and that the greedy get none of others."""
    first, *others = crowd.come([1, 1, 1, 1])
    assert len(others) == 3
    assert crowd.comes(1) is None
    guest = crowd.comes(2)
    assert guest is not None
    assert cut_off(first)
    assert crowd.comes(1) is None
    assert not any(map(cut_off, [*others, guest]))


def test_one_place_each(crowd: Crowd) -> None:
    """Tests that where all have one, the oldest goes for a user who has none."""
    first, *others = crowd.come([1, 2, 3, 4])
    assert crowd.comes(4) is None
    assert crowd.comes(5)
    assert cut_off(first)
    assert not any(map(cut_off, others))


def test_places_come_back(crowd: Crowd) -> None:
    """Tests that whatever has ended leaves its place to the next of anybody's."""
    held = crowd.come([1, 1, 1, 1])
    for _ in range(9):
        crowd.goes(held.pop(0))
        held += crowd.come([1])
        assert len(held) == 4
        assert crowd.comes(1) is None


def test_what_is_ending_has_a_bound(crowd: Crowd) -> None:
    """Tests that connections which are cut, but not over yet, are not without end."""
    held = crowd.come([1, 1, 1, 1])
    assert len(crowd.come([2, 2, 3, 3])) == 4
    assert crowd.comes(9) is None
    assert sum(map(cut_off, held)) == 3
    crowd.goes(held[0])
    assert crowd.comes(9)


@pytest.mark.parametrize("kind", ["file", "folder", "link", "link to nothing"])
def test_what_is_no_socket_stays(path: Path, tmp_path: Path, kind: str) -> None:
    """Tests that a daemon takes nothing away to listen in its place."""
    path.parent.mkdir()
    target = tmp_path / "dear"
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("dear")
    else:
        path.symlink_to(target)
    if kind == "link":
        target.write_text("dear")
    before = path.lstat()
    with (
        pytest.raises(UsageError, match=r"exists and is no socket: .* --socket"),
        served(path, lambda: EMPTY, all_users=False),
    ):
        pytest.fail("it listened")
    assert os.path.samestat(path.lstat(), before)
    if "file" in kind or kind == "link":
        assert path.read_text() == "dear"


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_in_use_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: socket.SocketKind
) -> None:
    """Tests that an agent of ssh's, say, is not replaced."""
    path.parent.mkdir()
    monkeypatch.chdir(path.parent)
    with socket.socket(socket.AF_UNIX, kind) as other:
        other.bind(path.name)
        if kind == socket.SOCK_STREAM:
            other.listen()
        with (
            pytest.raises(UsageError, match="that another program listens at"),
            served(path, lambda: EMPTY, all_users=False),
        ):
            pytest.fail("it listened")
        assert path.is_socket()


@ROOT.mark
def test_the_socket_of_another_user_stays(path: Path) -> None:
    """Tests that what another user left is not replaced, not even by root."""
    path.parent.mkdir()
    with (
        socket.socket(socket.AF_UNIX) as left,
        reachable(path) as short,
    ):
        left.bind(short)
    os.chown(path, 12345, 12345)
    with (
        pytest.raises(UsageError, match="is another user's socket"),
        served(path, lambda: EMPTY, all_users=False),
    ):
        pytest.fail("it listened")
    assert path.is_socket()


def test_what_took_our_place_stays(path: Path) -> None:
    """Tests that a daemon takes only its own socket away when it ends."""
    with served(path, lambda: EMPTY, all_users=False):
        path.unlink()
        path.write_text("dear")
    assert path.read_text() == "dear"


def test_a_moment_of_many_questions(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that whoever asks waits where the kernel has no room just then."""
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as busy, contextlib.ExitStack() as stack:
        monkeypatch.chdir(path.parent)
        busy.bind(path.name)
        busy.listen(0)
        first = stack.enter_context(socket.socket(socket.AF_UNIX))
        first.connect(path.name)

        def answer() -> None:
            busy.accept()[0].close()
            with busy.accept()[0] as conn:
                conn.recv(1024)
                conn.sendall(b"HTTP/1.0 200 OK\r\n\r\nhere")

        soon = threading.Timer(0.2, answer)
        soon.start()
        assert ask(path, "/healthz", PATIENCE_S) == (200, b"here")
        soon.join()
