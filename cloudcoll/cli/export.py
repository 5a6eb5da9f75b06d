"""``cloudcoll export``: a rank map in a launcher's own format."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("export", short_help="write a rank map in a launcher's own format")
@click.argument("map_path", metavar="MAP", type=click.Path(path_type=Path))
@click.option("--format", "name", required=True, help="See below.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write.")
def command(map_path: Path, name: str, output: Path | None) -> None:
    r"""Write a rank map in a launcher's own format.

    Formats: ompi-rankfile, seq, hostfile, mpich, slurm, flux, pbs, cray,
    torchrun, accelerate, lightgbm, deepspeed, horovod, environment (for the shim
    that rewrites ranks), json.

    \b
    cloudcoll export map.json --format ompi-rankfile -o rankfile
    mpirun --hostfile hosts --map-by rankfile:file=rankfile ./app
    cloudcoll export map.json --format torchrun      # host and its node rank
    """
    from cloudcoll.errors import UsageError
    from cloudcoll.files import write_atomic
    from cloudcoll.launch.formats import FORMATS
    from cloudcoll.rankmap import load_rankmap

    if name not in FORMATS:
        raise UsageError(f"unknown format {name!r} (known: {', '.join(FORMATS)})")
    text = FORMATS[name](load_rankmap(map_path))
    if output:
        write_atomic(output, text)
    else:
        click.echo(text, nl=False)
