"""Tell Intel MPI, UCC and NCCL a tuning: by variables alone.

From their documentation and sources; of these none was tried here.
"""

from __future__ import annotations

from cloudcoll.libraries import nccl
from cloudcoll.libraries.algorithms import INTEL, UCC
from cloudcoll.libraries.told import Ask, Told, changed, spans, yours

ADJUST = "I_MPI_ADJUST_"
MOST = (1 << 31) - 1
"""Bytes that Intel MPI reads as the end of a range that has none."""

TUNE = "UCC_TL_UCP_TUNE"

NCCL_ALGO, NCCL_PROTO = "NCCL_ALGO", "NCCL_PROTO"
BY_FUNCTION = (2, 24)
"""First NCCL that reads ``NCCL_ALGO`` for each collective."""

NCCL_NAMES = {"nccl_ring": "ring", "nccl_tree": "tree", "nccl_pat": "pat"}
FUNCTIONS = {collective: name for name, collective in nccl.FUNCTIONS.items()}


def tell_intel(ask: Ask) -> Told:
    """Return a variable for each collective: ``PRESET:FROM-TO@RANKS-RANKS;...``.

    Ranges of sizes and ranks that are not named keep Intel MPI's own choice.
    """
    variables, notes, told = dict[str, str](), list[str](), list[str]()
    ranks = ask.tuning.ranks
    for collective in changed(ask.tuning):
        name = f"{ADJUST}{collective.upper()}"
        kept = f"no algorithm is chosen for {collective}"
        if note := yours([name], ask.settings, kept):
            notes.append(note)
            continue
        parts = (
            f"{INTEL[collective][one.algorithm]}:"
            f"{one.least}-{MOST if end is None else end - 1}@{ranks}-{ranks}"
            for one, end in spans(ask.tuning, collective)
            if not one.is_own
        )
        variables[name] = ";".join(parts)
        told.append(collective)
    return Told(variables, notes=tuple(notes), collectives=tuple(told))


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
        parts.append(f"{FUNCTIONS[collective]}:{NCCL_NAMES[names.pop()]}")
    variables = {NCCL_ALGO: ";".join(parts)} if parts else {}
    told = tuple(nccl.FUNCTIONS[part.partition(":")[0]] for part in parts)
    return Told(variables, notes=tuple(notes), collectives=told)
