"""``cloudcoll export``: a rank map or a snapshot in other programs' formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudcoll.cli.output import print_text, say
from cloudcoll.cli.params import FILE

if TYPE_CHECKING:
    from cloudcoll.rankmap import RankMap

OF_SNAPSHOTS = ("topology", "graphml")
"""Formats that are of a snapshot, not of a map."""

TUNING = "tuning"
"""The format that has the algorithms of a map, for its library."""

ADDRESSED = "lightgbm"
"""The format that has addresses, not names."""


@click.command("export", short_help="write a rank map in a launcher's own format")
@click.argument("map_path", metavar="MAP", type=FILE)
@click.option("--format", "name", required=True, help="One of the formats above.")
@click.option("-o", "--output", type=FILE, help="File to write.")
def command(map_path: Path, name: str, output: Path | None) -> None:
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
    from cloudcoll.errors import UsageError, known_names
    from cloudcoll.files import write_atomic
    from cloudcoll.launch.formats import FORMATS
    from cloudcoll.rankmap import load_rankmap

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
    from dataclasses import replace

    from cloudcoll.launch.own_host import address_elsewhere

    reached = {name: ranks.addresses.get(name, name) for name in ranks.order}
    found = {name: address_elsewhere(at) or at for name, at in reached.items()}
    return replace(ranks, addresses=found)


def _tuning(path: Path, output: Path | None) -> str:
    """Return the algorithms of a map as its library reads them; say what goes along."""
    from cloudcoll.errors import UsageError
    from cloudcoll.launch.formats import tuning_file
    from cloudcoll.rankmap import load_rankmap

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
