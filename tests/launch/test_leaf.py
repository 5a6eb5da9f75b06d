from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchPlan, LaunchRequest
from cloudcoll.launch.leaf import Inbox, Mailbox, choose_inbox, own_addresses, own_shell
from cloudcoll.launch.openmpi.orte import OpenMpi4
from cloudcoll.launch.readback import reading_back


@pytest.fixture
def inbox() -> Inbox:
    """Return an inbox that other machines don't reach."""
    return Inbox(("127.0.0.1",), choose_inbox().port, "secret")


@pytest.fixture
def mailbox(inbox: Inbox) -> Iterator[Mailbox]:
    opened = Mailbox(inbox)
    yield opened
    opened.close()


def run(command: tuple[str, ...], cwd: Path, **env: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_rank_reports_and_becomes_the_program(
    inbox: Inbox, mailbox: Mailbox, tmp_path: Path
) -> None:
    """Tests that rank and host arrive, and the program finds its words alone."""
    words = ("a b", "$HOME", "", "--", "'")
    program = ("sh", "-c", 'printf "%s\\n" "$@"; exit 7', "sh", *words)
    # A start-up file of the user's is not ours to run.
    (tmp_path / "rc").write_text("echo from the start-up file\n")
    env = {"PMI_RANK": "3", "BASH_ENV": str(tmp_path / "rc")}
    code, out, err = run(inbox.wrap(program, "PMI_RANK"), tmp_path, **env)
    assert (code, out.split("\n"), err) == (7, [*words, ""], "")
    assert mailbox.seen() == {3: platform.node()}


def test_program_is_the_same_process(inbox: Inbox, tmp_path: Path) -> None:
    """Tests that no shell stays around and variables are as they were."""
    show = ("env",)
    plain = run(show, tmp_path, SHLVL="5", n="1")[1]
    wrapped = run(inbox.wrap(show, "PMI_RANK"), tmp_path, SHLVL="5", n="1")[1]
    own = {"_", "PWD", "OLDPWD"}
    lines = [
        {line for line in text.splitlines() if line.partition("=")[0] not in own}
        for text in (plain, wrapped)
    ]
    assert lines[0] == lines[1]
    process = subprocess.Popen(
        inbox.wrap(("sleep", "60"), "PMI_RANK"), cwd=tmp_path, stdout=subprocess.PIPE
    )
    with process:
        process.terminate()
        assert process.wait(timeout=20) == -15


def test_exported_functions_survive(inbox: Inbox, tmp_path: Path) -> None:
    """Tests that names no shell can assign to, as bash's functions, arrive."""
    odd = {"BASH_FUNC_module%%": "() {  echo mine; }", "a.b": "1"}
    assert own_shell({"A1_b": ""}) == ("sh", "-c")
    keeps = replace(inbox, shell=own_shell({**odd, "PATH": ""}))
    command = keeps.wrap(("bash", "-c", "module; env"), "PMI_RANK")
    code, out, err = run(command, tmp_path, **odd)
    assert (code, err) == (0, "")
    assert out.startswith("mine\n")
    assert "a.b=1\n" in out


def test_program_in_the_working_directory(inbox: Inbox, tmp_path: Path) -> None:
    """Tests that a program is found where srun and Hydra find it."""
    (tmp_path / "own-app").write_text("#!/bin/sh\necho mine $1\n")
    (tmp_path / "own-app").chmod(0o755)
    command = inbox.wrap(("own-app", "x"), "PMI_RANK")
    assert run(command, tmp_path) == (0, "mine x\n", "")
    assert run(inbox.wrap(("no-such-app",), "PMI_RANK"), tmp_path)[0] == 127


def test_nobody_listens(inbox: Inbox, tmp_path: Path) -> None:
    """Tests that a report that can't be delivered changes nothing."""
    unreachable = Inbox(("127.0.0.1", "255.255.255.255"), inbox.port, "x")
    command = unreachable.wrap(("echo", "fine"), "PMI_RANK")
    assert run(command, tmp_path, PMI_RANK="0") == (0, "fine\n", "")


@given(st.lists(st.binary(max_size=80), max_size=5))
def test_strangers_are_not_heard(messages: list[bytes]) -> None:
    """Tests that only what carries the token counts, whatever else comes."""
    inbox = Inbox(("127.0.0.1",), choose_inbox().port, "secret")
    mailbox = Mailbox(inbox)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.0.1", inbox.port))
            for message in (*messages, b"other 0 a", b"secret -1 a", b"secret 5 b\n"):
                sender.send(message)
        assert mailbox.seen() == {5: "b"}
    finally:
        mailbox.close()


def test_port_that_is_taken(inbox: Inbox, mailbox: Mailbox) -> None:
    """Tests that a job whose ranks can't be heard is told so, and runs."""
    plan = LaunchPlan(("true",), placement=("a",), inbox=inbox)
    said: list[str] = []
    with reading_back(plan, said.append) as check:
        assert check is None
    assert said == [
        f"cannot hear where ranks start: port {inbox.port}: Address already in use"
    ]
    assert mailbox.seen() == {}


def test_reports_are_compared(inbox: Inbox) -> None:
    """Tests that nothing is said before all ranks were heard."""
    hosts = (Host("a"), Host("b"))
    request = LaunchRequest(OpenMpi4(), ("mpirun",), 1, hosts, "F", (1, 1))
    plan = LaunchPlan(("x",), placement=("a", "b"), request=request, inbox=inbox)
    with (
        reading_back(plan, pytest.fail) as check,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        assert check is not None
        assert check() is None
        sender.connect(("127.0.0.1", inbox.port))
        sender.send(b"secret 0 b.x.org\n")
        assert check() is None
        sender.send(b"secret 1 a.x.org\n")
        assert check() == ("the order did not take: rank 0 runs on b, planned on a")


def test_addresses() -> None:
    """Tests that an inbox names addresses that are this machine's."""
    for address in own_addresses():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind((address, 0))
    assert choose_inbox().token != choose_inbox().token
