"""What a job sends, a collective or a workload, and the constraints on its order.

An algorithm is named, or taken by a library itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cloudcoll.errors import UsageError, known_names
from cloudcoll.files import bounded, read_text
from cloudcoll.files.limits import TEXT_BYTES
from cloudcoll.libraries import (
    DEFAULT,
    Selection,
    forced_settings,
    library_key,
    local_ranks,
    parse_library,
    select,
)

if TYPE_CHECKING:
    from cloudcoll.collectives import Schedule
    from cloudcoll.collectives.workload import Workload
    from cloudcoll.solve import Constraints

LARGEST = 1 << 16
"""No job has more ranks: `cloudcoll.collectives.groups` says so, too."""

AUTO = "auto"


def choose(
    collective: str,
    algorithm: str,
    library: str,
    slots: Sequence[int],
    size: int,
    *,
    settings: Mapping[str, str] | None = None,
) -> Selection:
    """Return the algorithm named, or the one that the library takes for `AUTO`.

    Without a library that is `DEFAULT`, or no library's in particular where the
    algorithm is named. `slots` are the ranks on each host, `settings` what the library
    is told; what the environment says if not given.
    """
    if algorithm != AUTO:
        name = variant(collective, algorithm, library) if library else algorithm
        return Selection(name, rule="as asked for", library=library_key(library))
    library = library or DEFAULT
    if settings is None:
        settings = forced_settings(library, os.environ)
    local = local_ranks(tuple(slots))
    return select(library, collective, sum(slots), size, local=local, settings=settings)


def same_library(one: str, other: str) -> bool:
    """Return whether two names, with or without a version, are one library's."""
    return bool(other) and parse_library(one)[0] == parse_library(other)[0]


def variant(collective: str, algorithm: str, library: str) -> str:
    """Return the name of a library's own variant of an algorithm, if it has one."""
    from cloudcoll.collectives import SCHEDULES

    library = library.partition("@")[0]
    if collective not in SCHEDULES:
        return algorithm
    asked = library_key(library)
    families = SCHEDULES[collective]
    own = [name for name in families if families[name].variants_of(asked)]
    for name in (f"{asked}_{algorithm}", algorithm):
        if name in own:
            return name
    if own:
        raise UsageError(
            f"unknown {collective} algorithm {algorithm!r} of {library} "
            f"{known_names(algorithm, own)}"
        )
    known = sorted({v.library for one in families.values() for v in one.variants})
    raise UsageError(
        f"no {collective} of library {library!r} is known (known: {', '.join(known)})"
    )


def is_workload(workload: str | None, parallel: str | None) -> bool:
    """Return whether a workload is asked for, not one collective."""
    return workload is not None or parallel is not None


def asked_workload(
    workload: str | None, parallel: str | None, ranks: int | None
) -> Workload | None:
    """Return the workload that the options ask for, None for one collective.

    `workload` is the name of a ready-made one with its numbers, or a file; `parallel`
    is how the ranks are split: alone, the job is one of Megatron's.
    """
    if not is_workload(workload, parallel):
        return None
    return named_workload(workload, parallel, ranks)


def named_workload(
    workload: str | None, parallel: str | None, ranks: int | None
) -> Workload:
    """Return the workload of a name, a file or a split: see `asked_workload`."""
    from cloudcoll.collectives.readymade import READY_MADE, ready_made
    from cloudcoll.collectives.workload import read_workload
    from cloudcoll.profile import is_profile

    asked = "megatron" if workload is None else workload
    if asked.partition(":")[0] in READY_MADE:
        return ready_made(asked, ranks, parallel)
    known = f"ready-made without a file: {', '.join(READY_MADE)}"
    text = read_text(asked, f"the workload {asked!r}", known)
    if is_profile(text):
        return _profiled(text, asked, ranks, parallel)
    return read_workload(text, asked, ranks, parallel)


def _profiled(
    text: str, source: str, ranks: int | None, parallel: str | None
) -> Workload:
    """Return what a profiled job sent."""
    from cloudcoll.profile import read_profile

    profile = read_profile(text, source)
    if ranks not in (None, profile.ranks):
        raise UsageError(f"{source} is of {profile.ranks} ranks, the job has {ranks}")
    if parallel is not None:
        raise UsageError(f"{source} has the groups of a job: leave out --parallel")
    return profile.workload(source)


def workload_words(workload: str | None) -> tuple[str | None, str]:
    """Return what identifies a workload: its name, and the text if it is a file."""
    try:
        return workload, bounded(workload or "", TEXT_BYTES).decode()
    except (OSError, ValueError):
        # Ready-made, or not readable: who needs it says so.
        return workload, ""


def asked_schedule(
    collective: str,
    algorithm: str,
    library: str,
    slots: Sequence[int],
    size: int,
    **parameters: int,
) -> tuple[Schedule, str]:
    """Return the schedule of one collective, and words on how it was chosen.

    That is which algorithm a library takes by itself, as of `choose`; nothing where one
    is named. `parameters`, as of `build_schedule`, overrule the library's own.
    """
    size = _payload(collective, size)
    chosen = choose(collective, algorithm, library, slots, size)
    built = schedule_by(chosen, collective, sum(slots), size, **parameters)
    return built, f"{collective} by {chosen}" if algorithm == AUTO else ""


def schedule_by(
    chosen: Selection, collective: str, ranks: int, size: int, **parameters: int
) -> Schedule:
    """Return the schedule of one collective by what was chosen for it.

    `parameters` overrule those chosen.
    """
    from cloudcoll.collectives import build_schedule

    both = {**chosen.parameters, **parameters}
    return build_schedule(
        collective, chosen.algorithm, ranks, size, chosen.library, **both
    )


def _payload(collective: str, size: int) -> int:
    """Return the bytes of a collective: a barrier has none, all others have some."""
    if collective == "barrier":
        return 0
    if size < 1:
        raise UsageError("a collective of 0 bytes sends nothing: --bytes 1 or more")
    return size


def asked_constraints(
    sent: Schedule | Workload,
    *,
    pins: tuple[tuple[int, str], ...],
    same_rack: Sequence[str],
    keep_below: float,
    take: int | None,
) -> Constraints:
    """Return the `Constraints` that the options ask for.

    `same_rack` has ranks, or names of groups of what is sent, or of how its ranks are
    split.
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
