"""Tell MPICH a tuning: the JSON file by which it selects algorithms, its own kept.

``MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE`` replaces the whole tree of decisions that
is compiled in. So the file is that tree (``maint/tuning/coll/mpir/generic.json`` of
MPICH, whose copyright holds for ``mpich_generic.json`` beside this file: one text in
4.1 to 5.0, another algorithm for the barrier in 4.0), in which only blocking calls on
communicators of the world's size go elsewhere. Read in ``csel.c`` of 4.0.2, 4.3.2 and
5.0.1, tried with 4.0.2, 4.3.2 and 5.0.2:

- ``avg_msg_size`` is the vector's of allreduce, reduce and bcast, of which
  ``total_msg_size`` is the vector times the ranks. Of allgather, alltoall and
  reduce_scatter the total is the vector.
- The tree is not asked whether an algorithm can be used: the file has to say that
  operations which do not commute, and alltoall in place, keep their own.
- A file that can't be opened, or has an unknown key, ends the job, and so does an
  algorithm that does not fit a call. So `cloudcoll run` brings the file in memory,
  after all ranks have agreed.
- A variable ``MPIR_CVAR_*_INTRA_ALGORITHM`` is before the file, for all sizes.
- What the device ch4 composes for hosts with several ranks (reduce inside, then
  between hosts) is decided before. It is turned off for a collective that is to be
  flat (``MPIR_CVAR_*_DEVICE_COLLECTIVE=0``), and the tree's own levels stand in.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cloudcoll.libraries import mpich
from cloudcoll.libraries.question import Version, dotted, power_of_two
from cloudcoll.libraries.telling import Ask, Told, changed, spans, yours
from cloudcoll.tuning import TunedRange

FILE = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"
OLDEST, NEWEST = (4, 0), (5, 0)
"""Versions whose tree is known."""

PARAMETERS_SINCE = (4, 1)
"""First version whose file has algorithms with a radix."""

SINCE = {
    ("allgather", "recexch_doubling"): (4, 2),
    ("allgather", "recexch_halving"): (4, 2),
    ("allreduce", "recursive_multiplying"): (4, 3),
}
"""What came later still (``csel_container.c``): an unknown name ends the job."""

OLD = {
    "allgather": "brucks recursive_doubling ring",
    "allreduce": "recursive_doubling reduce_scatter_allgather",
    "alltoall": "brucks pairwise scattered",
    "barrier": "dissemination",
    "bcast": "binomial scatter_recursive_doubling_allgather scatter_ring_allgather",
    "reduce": "binomial reduce_scatter_gather",
    "reduce_scatter": "pairwise recursive_doubling recursive_halving",
}
"""What the file of 4.0 has."""

REDUCING = frozenset({"allreduce", "reduce", "reduce_scatter"})
VECTOR = {"allreduce": "avg", "reduce": "avg", "bcast": "avg"}
"""How the key begins that has the vector's bytes; ``total`` for the others."""

TWO_LEVELS = "mpich_smp_"
PAGE = 4096
"""The file is mapped and read as a string: its end must not be a page's."""

Tree = dict[str, Any]


def tell_mpich(ask: Ask) -> Told:
    """Return the JSON file, and the variable that names it."""
    version = ask.version or NEWEST
    if not OLDEST <= version[:2] <= NEWEST:
        note = f"how MPICH {dotted(version)} selects algorithms is not known"
        return Told(notes=(note,))
    if note := yours(mpich.RULE_FILES, ask.settings, "no algorithm is chosen"):
        return Told(notes=(note,))
    tree, variables = _generic(version), dict[str, str]()
    notes, wanted = [], []
    for collective in changed(ask.tuning):
        if why := _why_not(ask, collective, version):
            notes.append(why)
            continue
        wanted.append(collective)
        levels = _levels(ask, collective)
        if ask.tuning.local != 1 and collective in mpich.SMP and not levels:
            variables["MPIR_CVAR_DEVICE_COLLECTIVES"] = "percoll"
            variables[f"MPIR_CVAR_{collective.upper()}_DEVICE_COLLECTIVE"] = "0"
        _put_in(tree, collective, ask._replace(version=version), levels)
    if not wanted:
        return Told(notes=tuple(notes))
    text = json.dumps(tree, separators=(",", ":")) + "\n"
    if len(text) % PAGE == 0:
        text += "\n"
    return Told(variables, FILE, text, tuple(notes), tuple(wanted))


def _generic(version: Version) -> Tree:
    """Return the tree that is compiled into a version."""
    path = Path(__file__).with_name("mpich_generic.json")
    tree: Tree = json.loads(path.read_text())
    if version[:2] < PARAMETERS_SINCE:
        barrier = tree["collective=barrier"]["comm_type=intra"]
        barrier["comm_hierarchy=any"] = {
            "algorithm=MPIR_Barrier_intra_dissemination": {}
        }
    return tree


def _levels(ask: Ask, collective: str) -> bool:
    """Return whether a collective keeps its two levels, and is told one of them."""
    names = [one.algorithm for one in ask.tuning.of(collective) if not one.is_own]
    return all(name.startswith(TWO_LEVELS) for name in names)


def _why_not(ask: Ask, collective: str, version: Version) -> str:
    """Return why a collective is not told, empty if it is."""
    name = collective.upper()
    forced = [
        f"MPIR_CVAR_{name}_INTRA_ALGORITHM",
        *(f"MPIR_CVAR_{name}_{word}" for word in ("COMPOSITION", "DEVICE_COLLECTIVE")),
        "MPIR_CVAR_DEVICE_COLLECTIVES",
    ]
    mine = yours(forced, ask.settings, f"no algorithm is chosen for {collective}")
    if mine:
        return mine
    ranges = [one for one in ask.tuning.of(collective) if not one.is_own]
    two = {one.algorithm.startswith(TWO_LEVELS) for one in ranges}
    if len(two) > 1:
        return f"MPICH has two levels for all sizes or none: {collective} stays"
    if two == {True} and ask.tuning.local == 0:
        return f"hosts have different numbers of ranks: {collective} stays"
    for one in ranges:
        if why := _unknown(collective, one, ask.tuning.ranks, version):
            return f"{why}: {collective} stays"
    return ""


def _unknown(collective: str, one: TunedRange, ranks: int, version: Version) -> str:
    """Return why an algorithm can't stand in the file, empty if it can."""
    value, told = _value(collective, one, version)
    since = SINCE.get((collective, value), PARAMETERS_SINCE)
    if version[:2] < since and (told or value not in OLD[collective].split()):
        return f"{one.algorithm} came with MPICH {'.'.join(map(str, since))}"
    pof2 = power_of_two(ranks) == ranks
    if (collective, value) in mpich.POWERS_OF_TWO and not pof2:
        return f"{one.algorithm} is for a power of two of ranks"
    if (collective, value) == ("reduce_scatter", "noncommutative"):
        return f"{one.algorithm} is for blocks of equal size only"
    return ""


def _value(collective: str, one: TunedRange, version: Version) -> tuple[str, Tree]:
    """Return the library's name of an algorithm, and what it is told in the file."""
    name = one.algorithm
    levels = name.startswith(TWO_LEVELS)
    if levels:
        name = name.removeprefix(TWO_LEVELS)
    radix = max(one.parameters.get("radix", 2), 2)
    segment = one.parameters.get("segment", 0)
    if name.startswith("tree_") or "_tree_" in name:
        return _tree_value(collective, name, radix, segment)
    fitting = [
        value
        for value, schedule in mpich.FORCED[collective].items()
        if name in (schedule, schedule.removeprefix("mpich_"))
    ]
    some = [value for value in fitting if (collective, value) in mpich.RADIX]
    plain = [value for value in fitting if value not in some]
    # From 4.1 on a barrier by dissemination is one of radix 2.
    named = collective != "barrier" or version[:2] < PARAMETERS_SINCE
    if plain and (not some or (radix == 2 and named)):
        return plain[0], {}
    value = some[0]
    told: Tree = {f"k={radix}": {}}
    if "recexch" in value or value == "k_reduce_scatter_allgather":
        told["single_phase_recv=0"] = {}
    return value, told


def _tree_value(
    collective: str, name: str, radix: int, segment: int
) -> tuple[str, Tree]:
    """Return the same of a tree, whose type comes last in its name."""
    told: Tree = {f"tree_type={name.partition('tree_')[2]}": {}, f"k={radix}": {}}
    if collective != "bcast":
        return "tree", told | {f"chunk_size={segment}": {}, "buffer_per_child=0": {}}
    told["is_non_blocking=0"] = {}
    if not segment:
        return "tree", told
    return "pipelined_tree", told | {
        f"chunk_size={segment}": {},
        "recv_pre_posted=0": {},
    }


def _put_in(tree: Tree, collective: str, ask: Ask, levels: bool) -> None:
    """Have calls among as many ranks as the world has decided otherwise."""
    ranks = ask.tuning.ranks
    if levels:
        ranks = -(-ranks // max(ask.tuning.local, 1))
    for call in _calls(collective):
        inside = tree[f"collective={call}"]["comm_type=intra"]
        tree[f"collective={call}"]["comm_type=intra"] = {
            f"comm_size<{ranks}": inside,
            f"comm_size<={ranks}": _guarded(call, ask, inside, collective, levels),
            "comm_size=any": inside,
        }


def _calls(collective: str) -> tuple[str, ...]:
    """Return MPICH's names: a reduce_scatter has one more for equal blocks."""
    if collective == "reduce_scatter":
        return collective, f"{collective}_block"
    return (collective,)


def _guarded(call: str, ask: Ask, inside: Tree, collective: str, levels: bool) -> Tree:
    """Return the decisions by size, for the calls that may take any algorithm."""
    own = inside
    if ask.tuning.local != 1 and collective in mpich.SMP and not levels:
        own = _own_levels(call, inside)
    sizes = _sizes(call, ask, own, collective)
    if collective in REDUCING:
        return {"is_commutative=yes": sizes, "is_commutative=no": inside}
    if collective == "alltoall":
        return {"is_sendbuf_inplace=yes": inside, "is_sendbuf_inplace=no": sizes}
    return sizes


def _own_levels(call: str, inside: Tree) -> Tree:
    """Return the library's own choice where the device's levels are off."""
    name = f"algorithm=MPIR_{call.capitalize()}_intra_smp"
    return {"comm_hierarchy=parent": {name: {}}, "comm_hierarchy=any": inside}


def _sizes(call: str, ask: Ask, own: Tree, collective: str) -> Tree:
    word = VECTOR.get(collective, "total")
    found: Tree = {}
    for one, end in spans(ask.tuning, collective):
        key = f"{word}_msg_size" + ("=any" if end is None else f"<{end}")
        found[key] = own if one.is_own else _leaf(call, collective, one, ask.version)
    return found


def _leaf(call: str, collective: str, one: TunedRange, version: Version) -> Tree:
    value, told = _value(collective, one, version)
    leaf: Tree = {f"algorithm=MPIR_{call.capitalize()}_intra_{value}": told}
    if (collective, value) in mpich.MANY_ELEMENTS:
        # For fewer elements, and operations of users', it ends the job.
        few = {"allreduce": "recursive_doubling", "reduce": "binomial"}[collective]
        other: Tree = {f"algorithm=MPIR_{call.capitalize()}_intra_{few}": {}}
        return {
            "is_op_built_in=no": other,
            "is_op_built_in=yes": {"count<pow2": other, "count=any": leaf},
        }
    return leaf
