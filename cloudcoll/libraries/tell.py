"""Tell a library a tuning, in the library's own way: `tell`.

Intel MPI, UCC and NCCL are told by variables alone. Intel MPI 2021.18 was seen to send
what the schedules do; UCC and NCCL, read in their documentation and sources, were not
tried here.

NCCL is told by a table for its tuner plugin (``launch/shim/nccl/tuner``), which takes
algorithms by function and size. It was read which interface each version asks for, 2 to
6 (``src/plugin/tuner`` and ``src/misc/tuner.cc`` of NCCL 2.21 to 2.30); that of 2.21
takes an algorithm only together with a protocol, which is never told: LL128 corrupts
data where it is not supported. Without the plugin ``NCCL_ALGO`` can tell one algorithm
for all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cloudcoll.libraries import LIBRARIES, nccl
from cloudcoll.libraries.question import Version, dotted, power_of_two
from cloudcoll.libraries.tell_mpich import tell_mpich
from cloudcoll.libraries.tell_open_mpi import tell_open_mpi
from cloudcoll.libraries.telling import (
    INTEL,
    NOTHING,
    UCC,
    Ask,
    Told,
    changed,
    check_tuning,
    library_version,
    spans,
    yours,
)
from cloudcoll.tuning import Tuning

ADJUST = "I_MPI_ADJUST_"
MOST = (1 << 31) - 1
"""Bytes that Intel MPI reads as the end of a range that has none."""

BLOCKS = frozenset({"allgather", "alltoall"})
"""Collectives of which it counts a rank's block, not the full vector."""

INTEL_POWERS_OF_TWO = frozenset(
    {("allgather", "mpich_recursive_doubling"), ("bcast", "scatter_allgather")}
)
"""What it does otherwise where ranks are no power of two."""

TUNE = "UCC_TL_UCP_TUNE"

NCCL_ALGO = "NCCL_ALGO"
BY_FUNCTION = (2, 24)
"""First NCCL that reads ``NCCL_ALGO`` for each collective."""

NCCL_NAMES = {"nccl_ring": "ring", "nccl_tree": "tree"}
"""PAT is none: from 2.24 on NCCL ends a job where it is named and can't be taken."""

NCCL_FUNCTIONS = {collective: name for name, collective in nccl.FUNCTIONS.items()}

PLUGIN = "NCCL_TUNER_PLUGIN"
"""The variable that names a tuner's file."""

LONGEST_PATH = 254
"""Bytes of it: NCCL cuts what is longer."""

TABLE = "CLOUDCOLL_NCCL_TABLE"
"""The variable with the plugin's table."""

CHECKED = (2, 22), (2, 30)
"""Oldest and newest version of which the plugin's interface was read."""

IN_TABLE = {"": "-", "nccl_pat": "pat", **NCCL_NAMES}
"""Algorithms as the table has them. It may name PAT: where NCCL can't take it, what
NCCL takes by itself stays."""

BY_USER = (PLUGIN, NCCL_ALGO, "NCCL_PROTO")
"""Settings of the user's that leave no choice to our plugin."""

IN_ORDER = ("bcast", "reduce", "allgather", "reduce_scatter", "allreduce")
"""Collectives as the table has them."""

MOST_ROWS = 64


def tell_intel(ask: Ask) -> Told:
    """Return a variable for each collective: ``PRESET:FROM-TO;PRESET:FROM-TO;...``.

    Seen of 2021.18: calls outside of all ranges take the nearest one, preset 0 is not
    the library's own choice, and numbers of ranks (``@FROM-TO``) don't go with several
    ranges. So presets are told for all sizes, among any number of ranks, or none is.
    """
    variables, notes = dict[str, str](), list[str]()
    told = list[str]()
    for collective in changed(ask.tuning):
        name = f"{ADJUST}{collective.upper()}"
        kept = f"no algorithm is chosen for {collective}"
        if note := yours([name], ask.settings, kept) or _not_intel(ask, collective):
            notes.append(note)
            continue
        variables[name] = ";".join(_presets(ask, collective))
        told.append(collective)
    if told:
        notes.append("Intel MPI takes presets for communicators of any size")
    return Told(variables, notes=tuple(notes), collectives=tuple(told))


def _not_intel(ask: Ask, collective: str) -> str:
    """Return why Intel MPI is not told a collective, empty if it is."""
    ranges = ask.tuning.of(collective)
    if any(one.is_own for one in ranges):
        return f"Intel MPI has its own choice for all sizes or none: {collective} stays"
    ranks = ask.tuning.ranks
    for one in ranges:
        pair = (collective, one.algorithm)
        if pair in INTEL_POWERS_OF_TWO and power_of_two(ranks) != ranks:
            return f"{one.algorithm} is for a power of two of ranks: {collective} stays"
    return ""


def _presets(ask: Ask, collective: str) -> Iterator[str]:
    """Yield presets with the bytes that they are for, as Intel MPI counts them."""
    share = ask.tuning.ranks if collective in BLOCKS else 1
    for one, end in spans(ask.tuning, collective):
        least = -(-one.least // share)
        most = MOST if end is None else -(-end // share) - 1
        if least <= most:
            yield f"{INTEL[collective][one.algorithm]}:{least}-{most}"


def tell_ucc(ask: Ask) -> Told:
    """Return one variable: ``COLLECTIVE:FROM-TO:[RANKS-RANKS]:inf:@NAME#...``."""
    if note := yours([TUNE], ask.settings, "no algorithm is chosen"):
        return Told(notes=(note,))
    ranks = ask.tuning.ranks
    tokens = [
        f"{collective}:{one.least}-{'inf' if end is None else end}:"
        f"[{ranks}-{ranks}]:inf:@{UCC[collective][one.algorithm]}"
        for collective in changed(ask.tuning)
        for one, end in spans(ask.tuning, collective)
        if not one.is_own
    ]
    variables = {TUNE: "#".join(tokens)} if tokens else {}
    return Told(variables, collectives=changed(ask.tuning))


def is_checked(version: Version) -> bool:
    """Return whether the plugin is for a version; it is for none that is not known."""
    oldest, newest = CHECKED
    return oldest <= version[:2] <= newest


def tell_tuner(ask: Ask, nodes: int) -> Told:
    """Return the plugin's table, as one variable: the file is for others to name.

    ``DIGEST RANKS NODES,FUNCTION LEAST ALGORITHM CHANNELS,...``: FNV-1a of 64 bits of
    the rest, of 16 hexadecimal digits; the hosts of the job; bytes from which a row
    holds; 0 channels where NCCL chooses.
    """
    kept = "no algorithm is chosen"
    if note := yours(BY_USER, ask.settings, kept):
        return Told(notes=(note,))
    told = changed(ask.tuning)
    rows = [
        f"{NCCL_FUNCTIONS[collective]} {one.least} {IN_TABLE[one.algorithm]} 0"
        for collective in IN_ORDER
        if collective in told
        for one, _ in spans(ask.tuning, collective)
    ]
    if len(rows) > MOST_ROWS:
        note = f"NCCL's tuner takes {MOST_ROWS} ranges, not {len(rows)}: {kept}"
        return Told(notes=(note,))
    text = ",".join([f"{ask.tuning.ranks} {nodes}", *rows])
    return Told({TABLE: f"{_digest(text):016x} {text}"}, collectives=told)


def _digest(text: str) -> int:
    found = 14695981039346656037
    for byte in text.encode():
        found = (found ^ byte) * 1099511628211 & (1 << 64) - 1
    return found


def tell_nccl(ask: Ask) -> Told:
    """Return ``NCCL_ALGO`` where one algorithm holds for all sizes of a collective.

    ``NCCL_PROTO`` is never set: LL128 corrupts data where it is not supported.
    """
    if note := yours([NCCL_ALGO], ask.settings, "no algorithm is chosen"):
        return Told(notes=(note,))
    if (ask.version or BY_FUNCTION)[:2] < BY_FUNCTION:
        version = dotted(ask.version)
        return Told(
            notes=(f"NCCL {version} takes one algorithm for all collectives: it stays",)
        )
    parts, notes = list[str](), list[str]()
    for collective in changed(ask.tuning):
        found = list(spans(ask.tuning, collective))
        names = {one.algorithm for one, _ in found}
        if len(names) > 1:
            notes.append(
                f"NCCL takes one algorithm for all sizes (others need a tuner "
                f"plug-in): {collective} stays"
            )
            continue
        (name,) = names
        if name not in NCCL_NAMES:
            notes.append(f"NCCL ends jobs that can't take {name}: {collective} stays")
            continue
        parts.append(f"{NCCL_FUNCTIONS[collective]}:{NCCL_NAMES[name]}")
    variables = {NCCL_ALGO: ";".join(parts)} if parts else {}
    told = tuple(nccl.FUNCTIONS[part.partition(":")[0]] for part in parts)
    return Told(variables, notes=tuple(notes), collectives=told)


TELLERS: dict[str, Callable[[Ask], Told]] = {
    "openmpi": tell_open_mpi,
    "mpich": tell_mpich,
    "intelmpi": tell_intel,
    "ucc": tell_ucc,
    "nccl": tell_nccl,
}
"""Key of a library -> how it is told."""


def tell(
    tuning: Tuning,
    library: str = "",
    settings: Mapping[str, str] | None = None,
    nodes: int | None = None,
) -> Told:
    """Return what a library is told so that a tuning is in force.

    Where nothing can be told the notes say why.

    Parameters
    ----------
    library : str
        ``NAME@VERSION`` of the library that the job runs, empty for the tuning's.
    settings : mapping of str to str, optional
        What the user tells the library: see `cloudcoll.libraries.forced_settings`.
    nodes : int, optional
        Hosts of the job, if all its ranks can be given a tuner plugin to load.

    Raises
    ------
    UsageError
        The library or an algorithm is not known.
    """
    check_tuning(tuning)
    key, version = library_version(tuning.library)
    if library:
        here, version = library_version(library)
        if here != key:
            return Told(notes=(f"the tuning is for {tuning.library}, not {library}",))
    if key in NOTHING:
        title = LIBRARIES[key].title
        return Told(notes=(f"{title} can't be told an algorithm",))
    if not tuning.changes_anything:
        return Told(notes=("the library's own algorithms are the best known",))
    ask = Ask(tuning, version, settings or {})
    if key == "nccl" and nodes is not None and is_checked(version):
        return tell_tuner(ask, nodes)
    return TELLERS[key](ask)
