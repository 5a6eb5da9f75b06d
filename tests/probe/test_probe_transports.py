from __future__ import annotations

import shlex

import pytest

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.hosts import Host
from cloudcoll.probe import TRANSPORTS, plan_probes, run_probe


def test_the_table_names_its_transports() -> None:
    """Tests that each entry makes a transport of that name."""
    assert all(make("true").name == name for name, make in TRANSPORTS.items())


def test_ssh_quotes_for_the_remote_shell() -> None:
    """Tests that the remote shell sees the same arguments again."""
    argv = ["python3", "-c", "print('a b')", "$HOME", ""]
    host = Host("vm-1", "10.0.0.1", user="ubuntu")
    command = TRANSPORTS["ssh"]("ssh -p 2222").command(host, argv)
    assert command[:3] == ["ssh", "-p", "2222"]
    assert command[-4:-1] == ["-l", "ubuntu", "10.0.0.1"]
    assert shlex.split(command[-1]) == argv
    assert "BatchMode=yes" in command


def test_an_address_is_never_an_option() -> None:
    """Tests that a host list cannot smuggle options into ssh."""
    with pytest.raises(UsageError, match="'-oProxyCommand=x'"):
        TRANSPORTS["ssh"]("").command(Host("-oProxyCommand=x"), ["true"])


def test_a_missing_program_is_a_clear_answer() -> None:
    """Tests that a transport that cannot work says so before it starts."""
    hosts = (Host("a"), Host("b"))
    missing = TRANSPORTS["ssh"]("no-such-program -p 1")
    assert "no-such-program is not installed" in (missing.available() or "")
    with pytest.raises(UnusableError, match="no-such-program"):
        run_probe(hosts, plan_probes(hosts), missing)


@pytest.mark.parametrize("address", ["10.0.0.1", "vm-1", "::2"])
def test_local_takes_loopback_only(address: str) -> None:
    """Tests that a remote host is not silently probed on this machine."""
    with pytest.raises(UsageError, match="not on this machine"):
        TRANSPORTS["local"]("").command(Host("vm-1", address), ["true"])


def test_who_shares_cores() -> None:
    """Tests that hosts on this machine are known as such."""
    shares = {name: make("true").shares_cores for name, make in TRANSPORTS.items()}
    assert shares == {"lab": True, "local": True, "ssh": False}
