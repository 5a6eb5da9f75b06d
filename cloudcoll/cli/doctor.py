"""``cloudcoll doctor``: what is here, and what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict

import click

from cloudcoll.cli.output import print_json, print_lines
from cloudcoll.work.doctor import Examination, examine


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
    seen = examine(os.environ)
    if as_json:
        print_json(asdict(seen))
    else:
        print_lines(doctor_lines(seen))


def doctor_lines(seen: Examination) -> Iterator[str]:
    """Yield what is here, then what is missing and how to get it."""
    yield "launchers, and how each is given an order"
    for one in seen.launchers:
        if one.program:
            yield f"  {' '.join(filter(None, (one.title, one.version)))}: {one.program}"
            yield f"      {one.mechanism}"
    if not any(one.program for one in seen.launchers):
        yield "  none"
    for program, why in seen.strangers.items():
        yield f"  {program} is none that is known: {why}"
    yield f"also here: Python {seen.python}"
    findings = (*seen.packages, *seen.programs, *seen.shims, *seen.permissions)
    for finding in findings:
        if finding.here:
            yield f"  {finding.name} ({finding.use}): {finding.here}"
    gone = [
        *((one.title, one.source) for one in seen.launchers if not one.program),
        *((f"{one.name} ({one.use})", one.remedy) for one in findings if not one.here),
    ]
    if gone:
        yield "not here, and how to get it"
    for name, remedy in gone:
        yield f"  {name}: {remedy}"
