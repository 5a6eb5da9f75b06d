"""``cloudcoll exec``: a prefix for programs whose ranks stand in the environment."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cloudcoll.cli.output import say
from cloudcoll.cli.params import FILE, Prefix
from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.launch.environment import MARK, placed_environment
from cloudcoll.launch.execute import execute
from cloudcoll.launch.own_host import MAP_VARIABLE, own_host
from cloudcoll.launch.plan import LaunchPlan


@click.command("exec", cls=Prefix)
@click.option(
    "--map",
    "map_path",
    type=FILE,
    help=f"Rank map, the same on every host; {MAP_VARIABLE} by default.",
)
@click.option("--strict", is_flag=True, help="Exit 125 rather than start unchanged.")
@click.option("--free-rank0", is_flag=True, help="Let the host of rank 0 move.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True)
def command(
    program: tuple[str, ...], map_path: Path | None, strict: bool, free_rank0: bool
) -> int:
    r"""Start PROGRAM with the ranks that a rank map gives this host.

    For pods and job arrays, where nobody passes flags: RANK, NODE_RANK,
    GROUP_RANK, PET_NODE_RANK and MASTER_ADDR are rewritten where they are set,
    then PROGRAM takes this process over. Every host of the job has to start
    this way and to read the same map. Where that can't be done, the program
    starts as it is and one line says why.

    \b
    cloudcoll exec --map /shared/map.json -- python train.py
    CLOUDCOLL_MAP=/shared/map.json cloudcoll exec -- torchrun train.py
    """
    if MARK in os.environ:
        return execute(LaunchPlan(program), say=say)
    try:
        host = own_host(map_path, os.environ, free_rank0=free_rank0)
        placed = placed_environment(host, os.environ)
    except CloudcollError as error:
        if strict:
            raise LaunchError(f"{error}; not started because of --strict") from error
        say(f"{error}; starting the program unchanged")
        placed = {}
    # Without files to clean up the program takes this process over.
    return execute(LaunchPlan(program, env=placed), say=say)
