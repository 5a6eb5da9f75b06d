"""``cloudcoll doctor``: what is here, and what is missing."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from cloudcoll.cli.output import print_json, print_lines


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    r"""Print which launchers and libraries this machine has.

    Of each launcher: its version, the mechanism by which it is given an order,
    and how that is read back. Of what is missing: what it is for and how to get
    it. Starts no job and changes nothing.

    \b
    cloudcoll doctor
    cloudcoll doctor --json | jq '.launchers[] | select(.program != "")'
    """
    from cloudcoll.doctor import examine
    from cloudcoll.report.doctor import doctor_lines

    seen = examine(os.environ)
    if as_json:
        print_json(asdict(seen))
    else:
        print_lines(doctor_lines(seen))
