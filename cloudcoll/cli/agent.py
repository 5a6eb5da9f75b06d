"""``cloudcoll agent``: an agent that waits for drivers, and its certificates."""

from __future__ import annotations

from pathlib import Path

import click

from cloudcoll.cli.output import print_lines, say
from cloudcoll.cli.params import FILE, Finite
from cloudcoll.errors import UsageError


@click.group("agent", invoke_without_command=True)
@click.option(
    "--listen", "where", help="HOST:PORT to listen on; the default port is 7412."
)
@click.option("--cert", type=FILE, help="This host's certificate (PEM).")
@click.option("--key", type=FILE, help="The certificate's key (mode 600).")
@click.option("--ca", type=FILE, help="The CA that signs for drivers.")
@click.pass_context
def command(
    context: click.Context,
    where: str | None,
    cert: Path | None,
    key: Path | None,
    ca: Path | None,
) -> None:
    r"""Measure from this host for drivers elsewhere, where there is no ssh.

    Whoever shows a certificate of the CA for `cloudcoll:driver` may drive; this
    host shows its own. Nothing but this port is open until a driver probes.

    \b
    cloudcoll agent certs --hosts hosts -o pki
    cloudcoll agent --listen :7412 --cert cert.pem --key key.pem --ca ca.pem
    """
    from cloudcoll.resident.listen import listener
    from cloudcoll.tls import Credentials, parse_address

    if context.invoked_subcommand:
        return
    if not (where and cert and key and ca):
        raise UsageError(
            "an agent needs --listen HOST:PORT, --cert, --key and --ca (or 'cloudcoll "
            "agent certs' to make these)"
        )
    address = parse_address(where)
    with listener(address, Credentials(cert, key, ca), say) as server:
        host, port = server.address
        say(f"listening at {host}:{port}")
        server.run()


@command.command("certs")
@click.option("--hosts", "hostfile", type=FILE, required=True, help="A host list.")
@click.option("-o", "--output", type=FILE, required=True, help="Folder to write.")
@click.option(
    "--days",
    type=Finite(0, 3650, min_open=True),
    default=365,
    show_default=True,
    help="Days that certificates are valid.",
)
@click.option("--daemon", default="", help="Also make one for a daemon on this host.")
def certs(hostfile: Path, output: Path, days: float, daemon: str) -> None:
    """Make a CA, and certificates for hosts, a driver and readers.

    One folder for each, with cert.pem, key.pem and ca.pem; ca.key signs more
    and stays here. Keys that are there are kept, certificates are made anew.
    """
    from importlib.util import find_spec

    from cloudcoll.hosts import read_hosts

    if not find_spec("cryptography"):
        raise UsageError(
            "certificates need the package cryptography: pip install "
            "'cloudcoll[certs]', or make them with any CA (SECURITY.md says which)"
        )
    from cloudcoll.tls.certs import write_all

    hosts = read_hosts(hostfile)
    print_lines(map(str, write_all(hosts, output, days, daemon)))
