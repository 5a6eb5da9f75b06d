"""The seal of a job's datagrams: in Python, in C, and in the shell of each rank."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.launch import LaunchPlan, choose_inbox, shim
from cloudcoll.launch.roll import calling_roll, closed
from cloudcoll.launch.seal import COOKIE, Seal, new_secret, siphash
from cloudcoll.launch.wrapper import HOST, KEY, Inbox, Mailbox, listening

PUBLISHED = {
    0: 0x726FDB47DD0E0E31,
    1: 0x74F839C593DC67FD,
    2: 0x0D6C8009D9A94F5A,
    3: 0x85676696D7FB7E2D,
    4: 0xCF2794E0277187B7,
    5: 0x18765564CD99A68D,
    6: 0xCBC9466E58FEE3CE,
    7: 0xAB0200F58B01D137,
    8: 0x93F5F5799A932462,
    9: 0x9E0082DF0BA9E4B0,
    15: 0xA129CA6149BE45E5,
}
"""Of the bytes 0, 1, 2, ... under the key 0, 1, ..., 15: the last is in appendix A of
the paper, all are vectors_sip64 of https://github.com/veorq/SipHash."""

SECRET = "c00c1ec00c1ec00c" + "0706050403020100" + "0f0e0d0c0b0a0908"
"""The cookie is nobody's; the key is that of the vectors."""

secrets = st.binary(min_size=24, max_size=24).map(bytes.hex)
texts = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=80)


@pytest.fixture(scope="module")
def sealing(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """What the shim is built from, as a library of its own."""
    path = tmp_path_factory.mktemp("seal") / "seal.so"
    source = Path(shim.__file__).with_name("seal.c")
    words = ["cc", "-shared", "-fPIC", "-std=gnu11", "-o", str(path), str(source)]
    subprocess.run(words, check=True, timeout=120)
    library = ctypes.CDLL(str(path))
    library.mac_of.restype = ctypes.c_uint64
    library.mac_of.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    return library


def read_by_c(sealing: ctypes.CDLL, secret: str) -> ctypes.Array[ctypes.c_char]:
    """Return the ``struct seal`` of a secret."""
    seal = ctypes.create_string_buffer(64)
    assert sealing.read_secret(seal, secret.encode()) == 1
    return seal


@pytest.mark.parametrize("length", PUBLISHED)
def test_the_published_vectors(sealing: ctypes.CDLL, length: int) -> None:
    """Tests that both implementations that can take any bytes are SipHash-2-4."""
    data = bytes(range(length))
    key = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
    assert siphash(key, data) == PUBLISHED[length]
    seal = read_by_c(sealing, SECRET)
    assert sealing.mac_of(seal, data, length) == PUBLISHED[length]


@given(secret=secrets, text=texts, places=texts)
def test_c_and_python_agree(
    sealing: ctypes.CDLL, secret: str, text: str, places: str
) -> None:
    """Tests that what one of them seals the other opens, and nothing that differs."""
    seal, theirs = Seal(secret), read_by_c(sealing, secret)
    assert sealing.mac_of(theirs, text.encode(), len(text)) == int(seal.mac(text), 16)
    for sent in (closed(seal, "4f no"), closed(seal, f"4f all {places}")):
        assert sealing.is_sealed(theirs, sent) == 1
        for at in range(len(sent)):
            other = sent[:at] + bytes([sent[at] ^ 1]) + sent[at + 1 :]
            # The blank behind the cookie says nothing.
            assert sealing.is_sealed(theirs, other) == (at in {COOKIE, COOKIE + 17})
        assert sealing.is_sealed(theirs, sent[:-1]) == 0
    assert sealing.is_sealed(theirs, b"") == 0


@pytest.mark.parametrize("secret", ["", "0" * 47, "0" * 49, "g" * 48, "0" * 47 + "G"])
def test_what_is_no_secret(sealing: ctypes.CDLL, secret: str) -> None:
    """Tests that a rank without a secret does not take another for one."""
    assert sealing.read_secret(ctypes.create_string_buffer(64), secret.encode()) == 0


@pytest.fixture
def inbox() -> Inbox:
    return replace(choose_inbox(), addresses=("127.0.0.1",))


@pytest.fixture
def mailbox(inbox: Inbox) -> Iterator[Mailbox]:
    opened = Mailbox(inbox)
    yield opened
    opened.close()


def test_the_shell_agrees(inbox: Inbox, mailbox: Mailbox, tmp_path: Path) -> None:
    """Tests that names of any length arrive, whatever rank, locale and key."""
    name = tmp_path / "name"
    expected = {}
    for rank in range(30):
        rank = rank * 37 % 30 * 10 ** (rank % 5)
        expected[rank] = f"vm-{'x' * (rank % 29)}.{rank}"
        name.write_text(expected[rank] + "\n")
        line = inbox.line("PMI_RANK").replace(HOST, str(name))
        env = {inbox.variable: inbox.secret, "PMI_RANK": str(rank), "LC_ALL": "C.UTF-8"}
        subprocess.run(["bash", "-pc", line], env=env, check=True, timeout=120)
    assert mailbox.seen() == expected


@given(secret=secrets)
def test_any_key_in_the_shell(secret: str) -> None:
    """Tests keys whose halves are negative numbers to a shell."""
    inbox = replace(choose_inbox(), secret=secret, addresses=("127.0.0.1",))
    mailbox = Mailbox(inbox)
    env = {inbox.variable: secret, "PMI_RANK": "1"}
    line = inbox.line("PMI_RANK").replace(HOST, "/proc/self/comm")
    subprocess.run(["bash", "-pc", line], env=env, check=True, timeout=120)
    assert mailbox.seen() == {1: "bash"}
    mailbox.close()


def test_without_a_secret(inbox: Inbox, mailbox: Mailbox) -> None:
    """Tests that a rank that was handed no variables says nothing, and runs."""
    command = inbox.wrap(("echo", "fine"), "PMI_RANK")
    env = {"PMI_RANK": "1", "PATH": os.environ["PATH"]}
    ended = subprocess.run(command, env=env, capture_output=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"fine\n", b"")
    assert mailbox.seen() == {}


def test_by_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests the way for launchers that write all variables into command lines."""
    file = tmp_path / "it's here" / "key"
    (tmp_path / "it's here").mkdir()
    inbox = replace(choose_inbox(), addresses=("127.0.0.1",), variable="")
    inbox = replace(inbox, file=str(file))
    plan = LaunchPlan(("app",), inbox=inbox)
    assert plan.environment == {}
    file.write_text(plan.written[inbox.file])
    mailbox = Mailbox(inbox)
    env = {"PMI_RANK": "1", "PATH": os.environ["PATH"]}
    subprocess.run(inbox.wrap(("true",), "PMI_RANK"), env=env, check=True, timeout=120)
    assert set(mailbox.seen()) == {1}
    mailbox.close()


def test_secrets_are_not_shown(inbox: Inbox) -> None:
    """Tests that neither a plan as text nor its command line has the secret."""
    plan = LaunchPlan(inbox.wrap(("app",), "RANK"), inbox=inbox)
    assert plan.environment == {f"OMPI_{KEY}": inbox.secret}
    assert not any(inbox.secret[at : at + 8] in repr(plan) for at in range(0, 48, 8))


def test_a_flood_takes_no_room(inbox: Inbox, mailbox: Mailbox) -> None:
    """Tests that reports arrive behind a hundred times what would fit of others'."""
    own, *_ = listening(replace(inbox, port=choose_inbox().port))
    room = own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    own.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", inbox.port))
        forged = Seal(new_secret()).close(f"at 1 {'x' * 200}")
        for _ in range(min(100 * room // len(forged), 200_000)):
            sender.send(forged)
        sender.send(Seal(inbox.secret).close("at 1 a"))
    assert mailbox.seen() == {1: "a"}


def test_who_knows_the_cookie_keeps_nobody_busy(
    inbox: Inbox, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that one look at the reports ends, however many forged ones come."""
    monkeypatch.setattr("cloudcoll.launch.wrapper.MOST_AT_ONCE", 3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", inbox.port))
        copied = Seal(inbox.secret[:COOKIE] + new_secret()[COOKIE:])
        for _ in range(5):
            sender.send(copied.close("at 1 evil"))
        sender.send(Seal(inbox.secret).close("at 1 a"))
    assert mailbox.seen() == {}
    assert mailbox.seen() == {1: "a"}


def test_the_roll_hears_no_strangers(inbox: Inbox) -> None:
    """Tests that forged calls are neither answered nor counted, nor keep ranks out."""
    said: list[str] = []
    seal, forger = Seal(inbox.secret), Seal(new_secret())
    copied = Seal(inbox.secret[:COOKIE] + new_secret()[COOKIE:])
    with (
        calling_roll(inbox, said.append) as outcome,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as rank,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        for one in (rank, stranger):
            one.settimeout(30)
            one.connect(("127.0.0.1", inbox.port))
        for at in range(20_000):
            by = (forger, copied)[at % 2]
            stranger.send(by.close(f"here w 0 1 {at:x} 1 0"))
            stranger.send(by.close(f"here w 0 2 {at:x} 1 0"))
        rank.send(seal.close("here w 0 1 beef 1 0"))
        assert rank.recv(256) == closed(seal, "beef all 0*1")
        assert (outcome(), said) == ("", [])
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.recv(256)


def test_a_copied_call_is_answered_to_its_rank(inbox: Inbox) -> None:
    """Tests that whoever sends a copy of a call gets nothing, however often."""
    seal, said = Seal(inbox.secret), list[str]()
    with (
        calling_roll(inbox, said.append),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as rank,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        for one in (rank, stranger):
            one.settimeout(30)
            one.connect(("127.0.0.1", inbox.port))
        call = seal.close("here w 0 1 beef 1 0")
        rank.send(call)
        assert rank.recv(256) == closed(seal, "beef all 0*1")
        stranger.send(call)
        assert rank.recv(256) == closed(seal, "beef all 0*1")
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.recv(256)
