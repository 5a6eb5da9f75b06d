from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest
from pki import credentials

from cloudcoll.cli import main
from cloudcoll.tls import AGENT, DRIVER, Credentials


def options(ours: Credentials) -> list[str]:
    return [f"--{name}={getattr(ours, name)}" for name in ("cert", "key", "ca")]


def test_certs_and_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that each folder to hand out is a line of the result."""
    hosts = tmp_path / "hosts"
    hosts.write_text("vm-[1-2]\n")
    where = tmp_path / "pki"
    command = ["agent", "certs", "--hosts", str(hosts), "-o", str(where)]
    assert main([*command, "--daemon", "head"]) == 0
    said = capsys.readouterr()
    names = ("agents/vm-1", "agents/vm-2", "driver", "reader", "daemon")
    assert said.out.splitlines() == [str(where / name) for name in names]
    assert said.err == ""
    assert (where / "driver" / "key.pem").is_file()


def refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_what_an_agent_needs(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that nothing listens without all that mutual TLS takes."""
    ours = options(credentials(AGENT, ["127.0.0.1"]))
    listen = "--listen=127.0.0.1:0"
    for missing in (ours, [listen], [listen, *ours[:2]], [listen, *ours[1:]]):
        refused(["agent", *missing], "needs --listen HOST:PORT, --cert", capsys)
    refused(["agent", "--listen=a:b", *ours], "'a:b' is not an address", capsys)
    nowhere = ["--cert=/no/cert", *ours[1:]]
    refused(["agent", listen, *nowhere], "no file /no/cert", capsys)


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that the port is named, and what to do."""
    ours = options(credentials(AGENT, ["127.0.0.1"]))
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        listen = f"--listen=127.0.0.1:{port}"
        refused(["agent", listen, *ours], f"127.0.0.1:{port}: Address already", capsys)


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ([], 3, "want to see a certificate: --cert, --key and --ca"),
        (["--cert=/no/cert", "--key=/no/key", "--ca=/no/ca"], 3, "/no/key"),
        (["--rsh", "ssh"], 2, "--rsh means nothing to --via tls"),
    ],
)
def test_what_a_driver_needs(
    given: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a probe without a certificate says what is missing."""
    assert main(["probe", "--via", "tls", "-w", "127.0.6.[1-2]", *given]) == code
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1


def test_a_certificate_means_nothing_to_ssh(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests that options of TLS are not taken where nobody looks at them."""
    ours = options(credentials(DRIVER))
    where = ["probe", "--via", "ssh", "-w", "a,b"]
    refused([*where, *ours], "--cert means nothing to --via ssh", capsys)


def test_the_port_is_in_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that --dry-run says where agents are expected, and asks nobody."""
    where = ["probe", "--via", "tls", "-w", "vm-[1-4]", "--dry-run"]
    assert main([*where, "--port", "9", *options(credentials(DRIVER))]) == 0
    assert "such as that of vm-1, at port 9" in capsys.readouterr().out
