from __future__ import annotations

import socket
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import UnusableError
from cloudcoll.resident import (
    LENGTH,
    answer,
    check_greeting,
    greeting,
    read_answer,
    read_greeting,
)

PROGRAM = b"print('measure')\n"


@given(st.binary(max_size=2 * LENGTH) | st.just(greeting(PROGRAM)))
def test_only_the_same_program_is_driven(said: bytes) -> None:
    """Tests that a host runs its own copy for whoever has the same one."""
    if said == greeting(PROGRAM):
        check_greeting(said, PROGRAM)
        assert len(said) == LENGTH
    else:
        with pytest.raises(UnusableError):
            check_greeting(said, PROGRAM)


def test_versions_that_differ_are_named() -> None:
    """Tests that another version is told from what is no driver at all."""
    with pytest.raises(UnusableError, match="different versions"):
        check_greeting(greeting(PROGRAM + b"#"), PROGRAM)
    with pytest.raises(UnusableError, match="not a driver"):
        check_greeting(b"GET / HTTP/1.1", PROGRAM)


@pytest.mark.parametrize("said", [b"", b"short", greeting(PROGRAM) + b"frames"])
def test_no_more_is_read_than_a_greeting(said: bytes) -> None:
    """Tests that frames that follow stay where they are."""
    one, two = socket.socketpair()
    with closing(one), closing(two):
        two.sendall(said)
        two.shutdown(socket.SHUT_WR)
        assert read_greeting(one, 10.0) == said[:LENGTH]
        assert one.recv(100) == said[LENGTH:]


def test_a_greeting_has_its_time() -> None:
    """Tests that a greeting that trickles in is not waited for."""
    one, two = socket.socketpair()
    with closing(one), closing(two):
        two.sendall(b"cloud")
        with pytest.raises(TimeoutError):
            read_greeting(one, 0.05)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"no room\n", "no room"),
        (b"\x1b[2J\x07red\n", "[2Jred"),
        (b"x" * 10_000, "x" * 256),
        (b"", "closed the connection"),
    ],
)
def test_what_a_listener_answers(line: bytes, words: str) -> None:
    """Tests that a refusal is shown, bounded and without control characters."""
    one, two = socket.socketpair()
    with closing(one), closing(two):
        two.sendall(line)
        two.shutdown(socket.SHUT_WR)
        with pytest.raises(UnusableError) as caught:
            read_answer(one)
        assert str(caught.value).startswith(words)


def test_what_follows_a_welcome_stays() -> None:
    """Tests that the first frame is not read with the answer."""
    one, two = socket.socketpair()
    with closing(one), closing(two):
        two.sendall(answer() + b"\ncloudcoll-agent 1\n")
        read_answer(one)
        assert one.recv(100) == b"\ncloudcoll-agent 1\n"
