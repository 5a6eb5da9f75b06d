from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchPlan, LaunchRequest, written_files
from cloudcoll.launch.openmpi import OpenMpi4
from cloudcoll.launch.readback import ReadBack, reading_back
from cloudcoll.launch.seal import COOKIE, Seal, new_secret
from cloudcoll.launch.wrapper import (
    Inbox,
    Mailbox,
    choose_inbox,
    listening,
    own_addresses,
    own_shell,
)


@pytest.fixture
def inbox() -> Inbox:
    """Return an inbox that other machines don't reach."""
    return replace(choose_inbox(), addresses=("127.0.0.1",))


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
        timeout=120,
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
    env[inbox.variable] = inbox.secret
    code, out, err = run(inbox.wrap(program, "PMI_RANK"), tmp_path, **env)
    assert (code, out.split("\n"), err) == (7, [*words, ""], "")
    assert mailbox.seen() == {3: platform.node()}


def test_program_is_the_same_process(inbox: Inbox, tmp_path: Path) -> None:
    """Tests that no shell stays around and variables are as they were."""
    show = ("env",)
    plain = run(show, tmp_path, SHLVL="5", n="1")[1]
    env = {"SHLVL": "5", "n": "1", inbox.variable: inbox.secret}
    wrapped = run(inbox.wrap(show, "PMI_RANK"), tmp_path, **env)[1]
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
        assert process.wait(timeout=120) == -15


def test_exported_functions_survive(inbox: Inbox, tmp_path: Path) -> None:
    """Tests that names no shell can assign to, as bash's functions, arrive."""
    odd = {"BASH_FUNC_module%%": "() {  echo mine; }", "a.b": "1"}
    assert own_shell({"A1_b": ""}) == ("/bin/sh", "-c")
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
    unreachable = replace(inbox, addresses=("127.0.0.1", "255.255.255.255"))
    command = unreachable.wrap(("echo", "fine"), "PMI_RANK")
    env = {inbox.variable: inbox.secret, "PMI_RANK": "0"}
    assert run(command, tmp_path, **env) == (0, "fine\n", "")


@given(st.lists(st.binary(max_size=80), max_size=5))
def test_strangers_are_not_heard(messages: list[bytes]) -> None:
    """Tests that only what is sealed counts, whatever else comes."""
    inbox = replace(choose_inbox(), addresses=("127.0.0.1",))
    mailbox, seal = Mailbox(inbox, 6), Seal(inbox.secret)
    other = Seal(inbox.secret[:COOKIE] + new_secret()[COOKIE:])
    said = [
        "at -1 a",
        "at 6 a",
        "at 1",
        "at 1 a b",
        "at 1 a\n",
        "at 1 -a",
        "at 1 \x1b[2J",
    ]
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.0.1", inbox.port))
            for message in (
                *messages,
                *(inbox.secret[:COOKIE].encode() + b" " + text for text in messages),
                other.close("at 0 a"),
                *map(seal.close, [*said, "at 5 b", "at 5 c"]),
            ):
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
        seal = Seal(inbox.secret)
        sender.send(seal.close("at 0 b.x.org"))
        assert check() is None
        sender.send(seal.close("at 1 a.x.org"))
        assert check() == ("the order did not take: rank 0 runs on b, planned on a")


def asked_of(*hosts: Host) -> LaunchRequest:
    return LaunchRequest(OpenMpi4(), ("mpirun",), 1, hosts, "F", (1,) * len(hosts))


TOLD = """
import socket, sys
from cloudcoll.hosts import Host
from cloudcoll.launch.wrapper import addresses_towards
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
    route.connect(("203.0.113.1", 9))
    print(route.getsockname()[0], *sorted(addresses_towards([Host("a", sys.argv[1])])))
"""
ROUTED = """
ip link set lo up
ip link add one type veth peer name two
ip addr add 198.51.100.7/24 dev one
ip addr add 203.0.113.7/24 dev two
ip link set one up
ip link set two up
exec "$@"
"""


@pytest.mark.lab
@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("198.51.100.1", "198.51.100.7"),
        ("203.0.113.7", "127.0.0.1"),
        ("192.0.2.1", "198.51.100.7 203.0.113.7"),
        ("name", "198.51.100.7 203.0.113.7"),
    ],
)
def test_the_interface_that_hosts_use(host: str, told: str, tmp_path: Path) -> None:
    """Tests a machine of two networks: by a route, to itself, by none, by a name."""
    alone = ["unshare", "--net", "--map-root-user", "sh", "-ec", ROUTED, "sh"]
    command = (*alone, sys.executable, "-c", TOLD, host)
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    assert run(command, tmp_path, **env) == (0, f"203.0.113.7 {told}\n", "")


def test_the_addresses_that_ranks_are_told() -> None:
    """Tests that only these are bound: the loopback where all ranks are here."""
    own = own_addresses()
    here = Host("localhost"), Host(socket.gethostname()), Host("127.0.0.1")
    for hosts, expected in (
        (here, ("127.0.0.1",)),
        ([*here, Host("a-name.invalid")], own),
        ([Host("10")], own),  # a name, not 0.0.0.10
        ([Host("::1")], own),
    ):
        inbox = choose_inbox(asked_of(*hosts))
        assert inbox.addresses == expected
        sockets = listening(inbox)
        assert [one.getsockname() for one in sockets] == [
            (address, inbox.port) for address in expected
        ]
        for one in sockets:
            one.close()


def test_the_way_of_the_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests the variable of each launcher, and the file of one that shows variables."""
    request = asked_of(Host("a"))
    assert choose_inbox(request).variable == "OMPI_CLOUDCOLL_KEY"
    assert choose_inbox(request, "KEY").variable == "OMPI_KEY"
    assert choose_inbox(replace(request, prefix="SLURM_")).variable[:6] == "SLURM_"
    shown = replace(request, shows_variables=True)
    monkeypatch.setenv("CLOUDCOLL_HOME", str(tmp_path / "none"))
    assert (choose_inbox(shown).variable, choose_inbox(shown).file) == ("", "")
    monkeypatch.setenv("CLOUDCOLL_HOME", str(tmp_path))
    inbox = choose_inbox(shown)
    plan = LaunchPlan(("app",), inbox=inbox)
    assert plan.environment == {}
    with written_files(plan):
        path = Path(inbox.file)
        assert path.read_text() == f"{inbox.secret}\n"
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (
            0o600,
            0o700,
        )
    assert list(tmp_path.iterdir()) == []


def test_addresses() -> None:
    """Tests that an inbox names addresses that are this machine's."""
    for address in own_addresses():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind((address, 0))
    assert choose_inbox().secret != choose_inbox().secret


def test_a_host_named_by_its_address_is_where_reports_come_from(inbox: Inbox) -> None:
    """Tests ranks of clones, all called alike, whose hosts the plan has by address."""
    planned = ["127.0.7.1", "127.0.7.2", "vm-3"]
    mailbox, seal = Mailbox(inbox, 3, planned), Seal(inbox.secret)
    with contextlib.closing(mailbox):
        for rank, source in enumerate(["127.0.7.2", "127.0.7.1", "127.0.7.3"]):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.bind((source, 0))
                message = seal.close(f"at {rank} clone")
                sender.sendto(message, ("127.0.0.1", inbox.port))
        assert mailbox.seen() == {0: "127.0.7.2", 1: "127.0.7.1", 2: "clone"}
        wrong = ReadBack(planned, mailbox.seen)()
    assert (
        wrong
        == "the order did not take: rank 0 runs on 127.0.7.2, planned on 127.0.7.1"
    )


def test_a_program_that_is_not_there(inbox: Inbox, tmp_path: Path) -> None:
    """Tests that the shell's one line names us and the program, not what we said."""
    code, out, err = run(inbox.wrap(["./app"], "RANK"), tmp_path, RANK="0")
    assert (code, out) == (127, "")
    assert err.startswith("cloudcoll: ")
    assert "app: " in err
    assert err.count("\n") == 1
