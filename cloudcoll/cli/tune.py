"""``cloudcoll tune``: order and algorithms together."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudcoll import units
from cloudcoll.cli.output import TERMINAL, print_json, print_lines
from cloudcoll.cli.params import (
    COLLECTIVES,
    FILE,
    LIBRARIES,
    LIBRARY_HELP,
    SIZE,
    Finite,
    workload_options,
)
from cloudcoll.errors import UsageError
from cloudcoll.files import check_writable

if TYPE_CHECKING:
    from cloudcoll.tune import Answer, Row


MAGIC = b"cloudcoll-snapshot"


class _Tune(click.Command):
    """Options stand before a launcher, but on both sides of a snapshot."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line."""
        seen, _, _ = self.make_parser(ctx).parse_args(list(args))
        words = seen.get("words")
        if isinstance(words, tuple) and words:
            ctx.allow_interspersed_args = _is_snapshot(words[0])
        return super().parse_args(ctx, args)


@click.command("tune", cls=_Tune, context_settings={"allow_interspersed_args": False})
@click.option("--library", shell_complete=LIBRARIES, default="", help=LIBRARY_HELP)
@click.option(
    "--collective", shell_complete=COLLECTIVES, help="One or several: allreduce,bcast."
)
@click.option("--bytes", "size", type=SIZE, help="Size of its calls.")
@partial(workload_options, alone=())
@click.option("--hostfile", type=FILE, help="Host list: order and slots.")
@click.option("-w", "--hosts", "names", help="Hosts, as in node[01-16],gpu7.")
@click.option(
    "--snapshot",
    "snapshot_path",
    type=FILE,
    help="Snapshot to tune from, if not the latest.",
)
@click.option(
    "--no-probe", "probe", flag_value=False, default=True, help="Never probe."
)
@click.option(
    "--seconds",
    type=Finite(0),
    default=60.0,
    show_default=True,
    help="Seconds for all, with a bench of what is close; 0 for the model alone.",
)
@click.option("--free-rank0", is_flag=True, help="Let the host of rank 0 move.")
@click.option("--seed", default=0, show_default=True, help="Seed of the search.")
@click.option("-o", "--output", type=FILE, help="Write the map.")
@click.option("--json", "as_json", is_flag=True, help="Print the map as JSON.")
@click.argument("words", metavar="SNAP | LAUNCHER", nargs=-1, required=True)
def command(
    words: tuple[str, ...],
    hostfile: Path | None,
    names: str | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    r"""Choose a job's algorithms together with its order.

    LAUNCHER is a command line, with or without its program; its library and
    what it is told are found out. SNAP is a snapshot, for which --library says
    whose algorithms to choose among: openmpi, mpich or nccl.

    For each collective and range of sizes the library's own algorithm stays,
    unless another one is surely faster. All calls of a job share one order, so
    that choice and order are sought together, for all that it calls: a workload
    or profile, or --collective and --bytes. Without any of these it is an
    allreduce of 1 KiB to 32 MiB, as much time spent in each size as in any other.

    The model says what is promising; a bench started by LAUNCHER, in which all
    take turns, decides. It needs an mpicc, and CloudColl's folder on all hosts.
    What a message costs the library's ranks is measured first, and kept in the
    snapshot's file. With a snapshot, with --seconds 0 and for NCCL, the model
    decides alone.

    \b
    cloudcoll tune mpirun --hostfile hosts -np 16
    cloudcoll tune --workload job.json -o map.json mpirun --hostfile hosts ./app
    cloudcoll tune cluster.snap --library openmpi@5.0.11
    cloudcoll tune cluster.snap --library mpich@5 --collective allreduce,bcast
    cloudcoll tune cluster.snap --library nccl@2.27
    """
    from cloudcoll.measured.snapshot import load_snapshot
    from cloudcoll.work.measure import named_hosts
    from cloudcoll.work.tune import TuneOptions, tune, tune_on

    if output:
        check_writable(output)
    wanted = TuneOptions(**options)
    if not _is_snapshot(words[0]):
        if hostfile or names:
            raise UsageError(
                "the launcher says which hosts: leave out --hostfile and -w"
            )
        answer = tune(words, wanted, TERMINAL)
    else:
        if len(words) > 1:
            raise UsageError(f"{words[0]} is a snapshot: leave out {words[1]!r}")
        snapshot = load_snapshot(Path(words[0]))
        answer = tune_on(snapshot, named_hosts(hostfile, names), wanted, TERMINAL)
    if output:
        answer.rank_map.save(output)
    if as_json:
        print_json(tuning_json(answer))
    else:
        print_lines(tuning_lines(answer))


def _is_snapshot(word: str) -> bool:
    """Return whether a word is the file of a snapshot, not a launcher."""
    try:
        with open(word, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        # Whoever reads snapshots says that there is none, as no launcher is named so.
        return word.endswith(".snap")


HEAD = ("collective", "sizes", "the library's own", "chosen", "gain")


def tuning_lines(answer: Answer) -> list[str]:
    """Return the order, a table of the choices, and what both should gain."""
    from cloudcoll.report.document import Table

    rank_map = answer.rank_map
    tuning = rank_map.tuning
    assert tuning is not None, "an answer carries a tuning"
    return [
        f"{answer.name} by {tuning.library}, {tuning.ranks} ranks on "
        f"{len(rank_map.order)} hosts, snapshot {rank_map.snapshot[:12] or '?'}",
        "order: " + " ".join(rank_map.order),
        "",
        *Table(HEAD, tuple(map(_cells, answer.rows))).lines(),
        "",
        *gain_lines(answer),
        *([f"warning: {rank_map.assumption}"] if rank_map.assumption else []),
    ]


def gain_lines(answer: Answer) -> list[str]:
    """Return what order alone, and order and algorithms, should gain."""
    how = "measured" if answer.measured else "predicted"
    if not answer.tuned:
        return []
    lines = [
        f"{name:<22}  {units.seconds(seconds):>9}  {answer.given / seconds:5.2f}x {how}"
        for name, seconds in (
            ("as it runs now", answer.given),
            ("order alone", answer.ordered),
            ("order and algorithms", answer.tuned),
        )
    ]
    if not any(row.range.algorithm for row in answer.rows):
        lines += ["", "no other algorithm is surely faster: all stay the library's own"]
    return lines


def tuning_json(answer: Answer) -> dict[str, Any]:
    """Return the map as its file has it, with seconds of all calls and the table."""
    from cloudcoll.report.maps import map_json

    return {
        **map_json(answer.rank_map),
        "gains": {
            "given": answer.given,
            "ordered": answer.ordered,
            "tuned": answer.tuned,
            "measured": answer.measured,
        },
        "choices": [
            {
                "collective": row.range.collective,
                "least": row.range.least,
                "most": row.most,
                "own": list(row.own),
                "algorithm": row.range.algorithm or None,
                "parameters": dict(row.range.parameters),
                "gain": row.gain,
                "measured": row.range.measured,
            }
            for row in answer.rows
        ],
    }


def _cells(row: Row) -> tuple[str, ...]:
    """Return the words of one line of the table."""
    one = row.range
    told = [
        f"{name} {units.size(value) if name == 'segment' else value}"
        for name, value in one.parameters.items()
        if value
    ]
    chosen = " ".join([one.algorithm, *([f"({', '.join(told)})"] if told else [])])
    gain = f"{row.gain:.2f}x {'measured' if one.measured else 'predicted'}"
    return (
        one.collective,
        _sizes(row),
        ", ".join(row.own),
        chosen or "its own",
        gain if one.algorithm else "",
    )


def _sizes(row: Row) -> str:
    """Return ``up to 24 KiB``, ``24 KiB to 1 MiB``, ``from 1 MiB``, ``all``."""
    least, most = row.range.least, row.most
    if most is None:
        return f"from {units.size(least)}" if least else "all"
    if not least:
        return f"up to {units.size(most)}"
    return f"{units.size(least)} to {units.size(most)}"
