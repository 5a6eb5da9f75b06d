"""Tell NCCL a tuning: a table for the tuner plugin, or ``NCCL_ALGO``.

The plugin (``launch/shim/nccl/tuner``) takes algorithms by function and size. It was
read which interface each version asks for, 2 to 6 (``src/plugin/tuner`` and
``src/misc/tuner.cc`` of NCCL 2.21 to 2.30); that of 2.21 takes an algorithm only
together with a protocol, which is never told: LL128 corrupts data where it is not
supported. Without the plugin ``NCCL_ALGO`` can tell one algorithm for all sizes.
"""

from __future__ import annotations

from cloudcoll.libraries import nccl
from cloudcoll.libraries.question import Version
from cloudcoll.libraries.telling import Ask, Told, changed, spans, yours

NCCL_ALGO = "NCCL_ALGO"
BY_FUNCTION = (2, 24)
"""First NCCL that reads ``NCCL_ALGO`` for each collective."""

NCCL_NAMES = {"nccl_ring": "ring", "nccl_tree": "tree"}
"""PAT is none: from 2.24 on NCCL ends a job where it is named and can't be taken."""

FUNCTIONS = {collective: name for name, collective in nccl.FUNCTIONS.items()}

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


def is_checked(version: Version) -> bool:
    """Return whether the plugin is for a version; it is for none that is not known."""
    oldest, newest = CHECKED
    return oldest <= version[:2] <= newest


def tell_tuner(ask: Ask, nodes: int) -> Told:
    """Return the plugin's table, as one variable: the file is for others to name.

    ``DIGEST RANKS NODES,FUNCTION LEAST ALGORITHM CHANNELS,...``: FNV-1a of 64 bits of
    the rest, of 16 hexadecimal digits; bytes from which a row holds; 0 channels where
    NCCL chooses.

    Parameters
    ----------
    ask : Ask
    nodes : int
        Hosts of the job.
    """
    kept = "no algorithm is chosen"
    if note := yours(BY_USER, ask.settings, kept):
        return Told(notes=(note,))
    told = changed(ask.tuning)
    rows = [
        f"{FUNCTIONS[collective]} {one.least} {IN_TABLE[one.algorithm]} 0"
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
        version = ".".join(map(str, ask.version))
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
        parts.append(f"{FUNCTIONS[collective]}:{NCCL_NAMES[name]}")
    variables = {NCCL_ALGO: ";".join(parts)} if parts else {}
    told = tuple(nccl.FUNCTIONS[part.partition(":")[0]] for part in parts)
    return Told(variables, notes=tuple(notes), collectives=told)
