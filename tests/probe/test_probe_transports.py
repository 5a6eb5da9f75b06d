from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path

import pytest

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.hosts import Host
from cloudcoll.probe import TRANSPORTS, Conduct, plan_probes, run_probe
from cloudcoll.probe.job import Torch
from cloudcoll.probe.shell import Local, Ssh


def test_the_table_names_its_transports() -> None:
    """Tests that each entry makes a transport of that name."""
    assert all(make.name == name for name, make in TRANSPORTS.items())


def test_options_are_known() -> None:
    """Tests that an option is a field of `Conduct`, or says where hosts are."""
    options = {name for make in TRANSPORTS.values() for name in make.options}
    fields = {"force", "resume", "backend"}
    made_from = {"rsh", "lab", "launcher", "cert", "key", "ca", "port"}
    assert options == fields | made_from
    assert fields <= {field.name for field in dataclasses.fields(Conduct)}


@pytest.mark.parametrize(
    ("launcher", "ours"),
    [
        ("mpirun --host a,b", [sys.executable]),
        ("srun -N 2", [sys.executable]),
        ("torchrun --nnodes 1", []),
        ("mpirun -N 1 /opt/bin/torchrun --nnodes 2", []),
        ("python3 -m torch.distributed.run --nnodes 2", []),
    ],
)
def test_torchs_launchers(launcher: str, ours: list[str]) -> None:
    """Tests that torchrun gets a script, other launchers a program."""
    conduct = Conduct(env={})
    command = Torch(launcher.split()).command((Host("vm-1", "10.0.0.1"),), conduct)
    words, script, arguments = command[:-4], command[-4], command[-3:]
    assert list(words) == [*launcher.split(), *ours]
    assert Path(script).is_file()
    assert arguments == ("torch_probe", "10.0.0.1:29500", "auto")


def test_where_torchs_ranks_meet() -> None:
    """Tests that the variables that torch knows decide, and what --backend says."""
    conduct = Conduct(backend="gloo", env={"MASTER_ADDR": "::1", "MASTER_PORT": "7"})
    assert Torch(["srun"]).command((Host("a"),), conduct)[-2:] == ("::1:7", "gloo")


def test_ssh_quotes_for_the_remote_shell() -> None:
    """Tests that the remote shell sees the same arguments again."""
    argv = ["python3", "-c", "print('a b')", "$HOME", ""]
    host = Host("vm-1", "10.0.0.1", user="ubuntu")
    command = Ssh("ssh -p 2222").command(host, argv)
    assert command[:3] == ["ssh", "-p", "2222"]
    assert command[-4:-1] == ["-l", "ubuntu", "10.0.0.1"]
    assert shlex.split(command[-1]) == argv
    assert "BatchMode=yes" in command


def test_an_address_is_never_an_option() -> None:
    """Tests that a host list cannot smuggle options into ssh."""
    with pytest.raises(UsageError, match="'-oProxyCommand=x'"):
        Ssh().command(Host("-oProxyCommand=x"), ["true"])


def test_a_missing_program_is_a_clear_answer() -> None:
    """Tests that a transport that cannot work says so before it starts."""
    hosts = (Host("a"), Host("b"))
    missing = Ssh("no-such-program -p 1")
    assert "no-such-program is not installed" in (missing.available() or "")
    with pytest.raises(UnusableError, match="no-such-program"):
        run_probe(hosts, plan_probes(hosts), missing)


@pytest.mark.parametrize("address", ["10.0.0.1", "vm-1", "::2"])
def test_local_takes_loopback_only(address: str) -> None:
    """Tests that a remote host is not silently probed on this machine."""
    with pytest.raises(UsageError, match="not on this machine"):
        Local().command(Host("vm-1", address), ["true"])


def test_who_shares_cores() -> None:
    """Tests that hosts on this machine are known as such."""
    shares = {name: make.shares_cores for name, make in TRANSPORTS.items()}
    assert {name for name, here in shares.items() if here} == {"lab", "local"}
