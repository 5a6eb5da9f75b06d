"""The options that say what an order has to keep."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cloudcoll.cli.params import SHARE
from cloudcoll.errors import UsageError

if TYPE_CHECKING:
    from cloudcoll.collectives import Schedule
    from cloudcoll.collectives.workload import Workload
    from cloudcoll.solve import Constraints

Command = TypeVar("Command", bound=Callable[..., Any])

LARGEST = 1 << 16
"""No job has more ranks: `cloudcoll.collectives.groups` says so, too."""


def constraint_options(command: Command) -> Command:
    """Add ``--pin``, ``--same-rack``, ``--keep-below`` and ``--free-rank0``."""
    for option in (
        click.option("--free-rank0", is_flag=True, help="Let the host of rank 0 move."),
        click.option(
            "--keep-below",
            metavar="PERCENT",
            default="0%",
            type=SHARE,
            help="Keep the order given if less is to be gained.",
        ),
        click.option(
            "--same-rack",
            metavar="GROUPS",
            multiple=True,
            help="Keep each group (tp or another name, or ranks 0-7) in one rack.",
        ),
        click.option(
            "--pin",
            "pins",
            metavar="RANK=HOST",
            multiple=True,
            callback=_pins,
            help="Keep a rank on a host; may be repeated.",
        ),
    ):
        command = option(command)
    return command


def asked_constraints(
    sent: Schedule | Workload,
    *,
    pins: tuple[tuple[int, str], ...],
    same_rack: Sequence[str],
    keep_below: float,
    take: int | None,
) -> Constraints:
    """Return what the options ask for.

    Parameters
    ----------
    sent : Schedule or Workload
        Which says what groups are called.
    pins, keep_below, take
        As of `Constraints`.
    same_rack : sequence of str
        Names of groups of a workload or of how its ranks are split, or ranks.

    Raises
    ------
    UsageError
        No groups of that name, or constraints that contradict themselves.
    """
    from cloudcoll.solve import Constraints

    return Constraints(pins, take, keep_below, _groups(same_rack, sent))


def _groups(
    asked: Sequence[str], sent: Schedule | Workload
) -> tuple[tuple[int, ...], ...]:
    groups: list[tuple[int, ...]] = []
    for text in asked:
        if re.fullmatch(r"[0-9,\- ]+", text):
            groups.append(_ranks(text))
        else:
            groups += _of_name(text, sent)
    return tuple(groups)


def _of_name(name: str, sent: Schedule | Workload) -> list[tuple[int, ...]]:
    from cloudcoll.collectives.groups import AXES, parse_parallel
    from cloudcoll.collectives.workload import Workload

    if not isinstance(sent, Workload):
        raise UsageError(
            f"--same-rack {name}: names of groups come with --workload or --parallel; "
            "without, list ranks such as 0-7"
        )
    spelled = {operation.where: operation.groups for operation in sent.operations}
    if name in spelled:
        groups = spelled[name]
    elif sent.parallel and set(name.split("-")) <= AXES.keys():
        groups = parse_parallel(sent.parallel, sent.ranks).named(name)
    else:
        raise UsageError(
            f"--same-rack {name}: {sent.name} has no groups of that name "
            f"(known: {', '.join(spelled)}, or ranks such as 0-7)"
        )
    return [tuple(map(int, group)) for group in groups]


def _ranks(text: str) -> tuple[int, ...]:
    """Return the ranks of ``0-3,8``."""
    ranks: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r" *(\d{1,5})(?:-(\d{1,5}))? *", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < LARGEST:
            raise UsageError(f"--same-rack {text}: {part!r} is not ranks such as 0-7")
        ranks += range(first, last + 1)
    return tuple(ranks)


def _pins(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[int, str], ...]:
    pins = []
    for value in values:
        found = re.fullmatch(r"(\d{1,5})=(\S+)", value)
        if not found:
            raise click.BadParameter(f"{value!r} is not RANK=HOST such as 0=vm-3")
        pins.append((int(found[1]), found[2]))
    return tuple(pins)
