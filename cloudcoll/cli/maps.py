"""``cloudcoll exec`` and ``export``: a rank map where ``run`` does not start the job.

``exec`` is a prefix for programs whose ranks stand in the environment; ``export``
writes a map, or a snapshot, in other programs' formats.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from cloudcoll.cli.output import print_text, say
from cloudcoll.cli.params import FILE, Prefix
from cloudcoll.errors import CloudcollError, LaunchError, UsageError, known_names
from cloudcoll.files import write_atomic
from cloudcoll.launch.environment import MARK, placed_environment
from cloudcoll.launch.execute import execute
from cloudcoll.launch.own_host import MAP_VARIABLE, address_elsewhere, own_host
from cloudcoll.launch.plan import LaunchPlan
from cloudcoll.rankmap import RankMap, load_rankmap

OF_SNAPSHOTS = ("topology", "graphml")
"""Formats that are of a snapshot, not of a map."""

TUNING = "tuning"
"""The format that has the algorithms of a map, for its library."""

ADDRESSED = "lightgbm"
"""The format that has addresses, not names."""


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
def exec_(
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


@click.command("export", short_help="write a rank map in a launcher's own format")
@click.argument("map_path", metavar="MAP", type=FILE)
@click.option("--format", "name", required=True, help="One of the formats above.")
@click.option("-o", "--output", type=FILE, help="File to write.")
def export(map_path: Path, name: str, output: Path | None) -> None:
    r"""Write a rank map in a launcher's own format.

    Formats: ompi-rankfile, seq, hostfile, mpich, slurm, flux, pbs, cray,
    torchrun, accelerate, lightgbm, deepspeed, horovod, environment (for the shim
    that rewrites ranks), json; tuning, the algorithms that 'cloudcoll tune' put
    into the map, as its library reads them (Open MPI's rules, MPICH's JSON,
    variables for the others), with the settings that go with it. Of a snapshot:
    topology, the groups as Slurm's topology.conf, and graphml, the network as
    networkx, Gephi and others read it.

    \b
    cloudcoll export map.json --format ompi-rankfile -o rankfile
    mpirun --hostfile hosts --map-by rankfile:file=rankfile ./app
    cloudcoll export map.json --format torchrun      # host and its node rank
    cloudcoll export map.json --format tuning -o /shared/rules
    cloudcoll export cluster.snap --format topology -o /etc/slurm/topology.conf
    cloudcoll export cluster.snap --format graphml -o cluster.graphml
    """
    from cloudcoll.launch.formats import FORMATS

    if name in OF_SNAPSHOTS:
        text = _network(map_path, name)
    elif name == TUNING:
        text = _tuning(map_path, output)
    elif name in FORMATS:
        ranks = load_rankmap(map_path)
        text = FORMATS[name](_addressed(ranks) if name == ADDRESSED else ranks)
    else:
        known = known_names(name, (*FORMATS, TUNING, *OF_SNAPSHOTS))
        raise UsageError(f"unknown format {name!r} {known}")
    if output:
        write_atomic(output, text)
    else:
        print_text(text)


def _addressed(ranks: RankMap) -> RankMap:
    """Return the map with the IPv4 address of each host, where one is known here."""
    reached = {name: ranks.addresses.get(name, name) for name in ranks.order}
    found = {name: address_elsewhere(at) or at for name, at in reached.items()}
    return replace(ranks, addresses=found)


def _tuning(path: Path, output: Path | None) -> str:
    """Return the algorithms of a map as its library reads them; say what goes along."""
    from cloudcoll.launch.formats import tuning_file

    tuning = load_rankmap(path).tuning
    if tuning is None:
        raise UsageError(
            f"{path} has no algorithms: run 'cloudcoll tune ... -o MAP' for a map "
            "that has"
        )
    file = tuning_file(tuning, str(output.absolute()) if output else "")
    for note in file.notes:
        say(note)
    return file.text


def _network(path: Path, name: str) -> str:
    """Return the network of a snapshot in one of `OF_SNAPSHOTS`."""
    from cloudcoll.measured.snapshot import load_snapshot
    from cloudcoll.network.forms import topology_conf
    from cloudcoll.network.tree import flat

    snapshot = load_snapshot(path)
    fabric = snapshot.fabric or flat(snapshot.names)
    if name == "topology":
        return topology_conf(fabric)
    import networkx

    return "\n".join([*networkx.generate_graphml(fabric.to_networkx()), ""])
