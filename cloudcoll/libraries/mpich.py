"""MPICH's choice: the generic selection of its default device, ch4.

Read in MPICH 4.0 and 5.0: ``maint/tuning/coll/mpir/generic.json`` and
``maint/tuning/coll/ch4/generic.json``, which are the same but for names, and
``src/mpi/coll/cvars.txt`` for what the environment forces.
"""

from __future__ import annotations

from dataclasses import replace

from cloudcoll.errors import UsageError
from cloudcoll.libraries.question import (
    ELEMENT,
    Question,
    Selection,
    number,
    only,
    power_of_two,
)

FORCED = {
    "allgather": {
        "brucks": "bruck",
        "k_brucks": "bruck",
        "recursive_doubling": "mpich_recursive_doubling",
        "ring": "ring",
        "recexch_doubling": "mpich_recexch_doubling",
        "recexch_halving": "mpich_recexch_halving",
    },
    "allreduce": {
        "recursive_doubling": "recursive_doubling",
        "reduce_scatter_allgather": "mpich_reduce_scatter_allgather",
        "ring": "ring",
        "recexch": "mpich_recexch",
        "recursive_multiplying": "mpich_recursive_multiplying",
        "k_reduce_scatter_allgather": "mpich_k_reduce_scatter_allgather",
        "tree": "mpich_tree",
    },
    "alltoall": {
        "brucks": "modified_bruck",
        "k_brucks": "modified_bruck",
        "pairwise": "mpich_pairwise",
        "scattered": "linear",
    },
    "barrier": {
        "dissemination": "mpich_dissemination",
        "k_dissemination": "mpich_dissemination",
        "recexch": "mpich_recexch",
    },
    "bcast": {
        "binomial": "mpich_binomial",
        "scatter_recursive_doubling_allgather": "scatter_allgather",
        "scatter_ring_allgather": "scatter_allgather_ring",
        "tree": "mpich_tree",
        "pipelined_tree": "mpich_tree",
    },
    "reduce": {
        "binomial": "mpich_binomial",
        "reduce_scatter_gather": "mpich_reduce_scatter_gather",
    },
    "reduce_scatter": {
        "noncommutative": "butterfly_block",
        "pairwise": "mpich_pairwise",
        "recursive_doubling": "block_recursive_doubling",
        "recursive_halving": "recursive_halving",
    },
}
"""Collective -> value of ``MPIR_CVAR_*_INTRA_ALGORITHM`` -> name in `SCHEDULES`."""

POWERS_OF_TWO = {
    ("allgather", "recursive_doubling"),
    ("reduce_scatter", "noncommutative"),
}
"""For a power of two of ranks."""

MANY_ELEMENTS = {
    ("allreduce", "reduce_scatter_allgather"),
    ("reduce", "reduce_scatter_gather"),
}
"""For at least as many elements as the power of two below the ranks
(``src/mpi/coll/coll_algorithms.txt``, ``size-ge-pof2``)."""

RADIX = {
    ("allgather", "k_brucks"): "BRUCKS",
    ("allgather", "recexch_doubling"): "RECEXCH",
    ("allgather", "recexch_halving"): "RECEXCH",
    ("allreduce", "recexch"): "RECEXCH",
    ("allreduce", "recursive_multiplying"): "RECURSIVE_MULTIPLYING",
    ("allreduce", "k_reduce_scatter_allgather"): "RECEXCH",
    ("allreduce", "tree"): "TREE",
    ("alltoall", "k_brucks"): "BRUCKS",
    ("barrier", "k_dissemination"): "DISSEM",
    ("barrier", "recexch"): "RECEXCH",
    ("bcast", "tree"): "TREE",
    ("bcast", "pipelined_tree"): "TREE",
}
"""Whose radix the variable ``MPIR_CVAR_<COLLECTIVE>_<...>_KVAL`` sets."""

TREES = {"allreduce": "knomial_1", "bcast": "kary"}
"""Defaults of ``MPIR_CVAR_*_TREE_TYPE``."""

TREE_TYPES = ("kary", "knomial_1", "knomial_2")
CHUNK = 8192
"""Default of ``MPIR_CVAR_BCAST_TREE_PIPELINE_CHUNK_SIZE``, bytes."""

SMP = frozenset({"allreduce", "barrier", "bcast", "reduce"})
"""What has two levels on hosts with several ranks (``ch4/generic.json``)."""

RULE_FILES = (
    "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE",
    "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE",
)
"""Variables that name a file of rules in place of those here."""

FLAT_BCAST, FLAT_BCAST_POF2 = 12288, 524288
"""Bytes from which a broadcast among 8 ranks or more is flat after all."""


def choose(question: Question) -> Selection:
    """Return MPICH's algorithm, if the collective and what is forced are known."""
    only("MPICH", FORCED, question.collective)
    two_levels = question.two_levels and question.collective in SMP
    two_levels = two_levels and not _forced_flat(question)
    if not two_levels or _flat_bcast(question):
        return _with_file(question, _flat(question))
    if question.local:
        return _with_file(question, _two_levels(question))
    assumption = "hosts have different numbers of ranks: as if each rank had a host"
    return _with_file(question, replace(_flat(question), assumption=assumption))


def _flat_bcast(question: Question) -> bool:
    """Return whether it is a broadcast to which hosts are of no meaning."""
    ranks, size = question.ranks, question.size
    limit = FLAT_BCAST_POF2 if ranks == power_of_two(ranks) else FLAT_BCAST
    return question.collective == "bcast" and ranks >= 8 and size >= limit


def _forced_flat(question: Question) -> bool:
    """Return whether ch4, which knows hosts, is passed over for a forced algorithm.

    Of its own accord the layer above (``src/mpi/coll/src/coll_impl.c``) has two
    levels, too.
    """
    name = f"MPIR_CVAR_{question.collective.upper()}"
    forced = question.settings.get(f"{name}_INTRA_ALGORITHM", "auto") != "auto"
    return forced and question.settings.get(f"{name}_DEVICE_COLLECTIVE", "1") == "0"


def _with_file(question: Question, selection: Selection) -> Selection:
    """Return the selection, with a word on rules that can't be read here."""
    names = (*RULE_FILES, f"MPIR_CVAR_{question.collective.upper()}_COMPOSITION")
    told = [name for name in names if question.settings.get(name, "0") not in ("", "0")]
    notes = [selection.assumption, *(f"what {name} says is not known" for name in told)]
    return replace(selection, assumption="; ".join(note for note in notes if note))


def _two_levels(question: Question) -> Selection:
    """Return the algorithm between hosts, with steps inside before and after."""
    between = _flat(replace(question, ranks=question.hosts))
    rule = f"{between.rule}, between the first ranks of {question.hosts} hosts"
    parameters = {**between.parameters, "local": question.local}
    name = f"mpich_smp_{between.algorithm.removeprefix('mpich_')}"
    return Selection(name, parameters, rule)


def _flat(question: Question) -> Selection:
    """Return the algorithm among ranks of which each has a host."""
    call = question.collective
    variable = f"MPIR_CVAR_{call.upper()}_INTRA_ALGORITHM"
    value = question.settings.get(variable, "auto")
    if value == "auto":
        algorithm, rule = _generic(question)
        return Selection(FORCED[call][algorithm], rule=rule)
    if value not in FORCED[call]:
        known = ", ".join(["auto", *FORCED[call]])
        raise UsageError(f"{variable}={value} has no schedule here (known: {known})")
    rule = f"{variable}={value}"
    if not _fits(question, value):
        # MPIR_CVAR_COLLECTIVE_FALLBACK: silently back to its own choice.
        algorithm, chosen = _generic(question)
        return Selection(FORCED[call][algorithm], rule=f"{rule} does not fit: {chosen}")
    name, parameters = FORCED[call][value], _parameters(question, value)
    if name == "mpich_tree":
        name = f"mpich_tree_{_tree_type(question)}"
    return Selection(name, parameters, rule)


def _fits(question: Question, value: str) -> bool:
    """Return whether an algorithm is for so many ranks and elements."""
    case, pof2 = (question.collective, value), power_of_two(question.ranks)
    if case in POWERS_OF_TWO:
        return question.ranks == pof2
    return case not in MANY_ELEMENTS or question.size >= pof2 * ELEMENT


def _parameters(question: Question, value: str) -> dict[str, int]:
    """Return radix and segment of an algorithm that is forced."""
    call = question.collective
    prefix = f"MPIR_CVAR_{call.upper()}"
    parameters = {}
    if word := RADIX.get((call, value)):
        radix = number(question.settings, f"{prefix}_{word}_KVAL", 2)
        parameters["radix"] = max(radix, 2)
    if value == "pipelined_tree":
        chunk = f"{prefix}_TREE_PIPELINE_CHUNK_SIZE"
        parameters["segment"] = number(question.settings, chunk, CHUNK)
    return parameters


def _tree_type(question: Question) -> str:
    variable = f"MPIR_CVAR_{question.collective.upper()}_TREE_TYPE"
    kind = question.settings.get(variable, TREES[question.collective])
    if kind not in TREE_TYPES:
        known = ", ".join(TREE_TYPES)
        raise UsageError(f"{variable}={kind} has no schedule here (known: {known})")
    return kind


def _generic(question: Question) -> tuple[str, str]:
    """Return the value that ``generic.json`` comes to, and the words for it."""
    ranks, size = question.ranks, question.size
    pof2 = power_of_two(ranks)
    few = size < pof2 * ELEMENT
    match question.collective:
        case "allreduce":
            if size <= 8 or few:
                return (
                    "recursive_doubling",
                    f"8 B or less, or fewer than {pof2} numbers",
                )
            return "reduce_scatter_allgather", f"above 8 B, {pof2} numbers or more"
        case "allgather" if ranks == pof2:
            if size < 524288:
                return "recursive_doubling", "a power of two, below 512 KiB in all"
            return "ring", "512 KiB in all or more"
        case "allgather":
            if size < 81920:
                return "brucks", "no power of two, below 80 KiB in all"
            return "ring", "no power of two, 80 KiB in all or more"
        case "bcast":
            return _bcast(ranks, size, pof2)
        case "reduce":
            if size <= 2048 or few:
                return "binomial", f"2 KiB or less, or fewer than {pof2} numbers"
            return "reduce_scatter_gather", f"above 2 KiB, {pof2} numbers or more"
        case "reduce_scatter":
            if size < 524288:
                return "recursive_halving", "below 512 KiB in all"
            return "pairwise", "512 KiB in all or more"
        case "alltoall":
            if ranks >= 8 and question.block <= 256:
                return "brucks", "8 ranks or more, blocks of 256 B or less"
            if question.block <= 32768:
                return "scattered", "blocks of 32 KiB or less"
            return "pairwise", "blocks above 32 KiB"
    return "dissemination", "its only one between hosts"


def _bcast(ranks: int, size: int, pof2: int) -> tuple[str, str]:
    if ranks < 8 or size <= 12288:
        return "binomial", "less than 8 ranks, or 12 KiB or less"
    if ranks == pof2 and size <= 524288:
        return (
            "scatter_recursive_doubling_allgather",
            "a power of two, above 12 KiB, 512 KiB or less",
        )
    return "scatter_ring_allgather", "above 12 KiB; of a power of two above 512 KiB"
