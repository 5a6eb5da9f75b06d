"""What is known of each library: one record each, and the rules it chooses by.

One file per library with rules worth one; those that leave little to choose (Gloo as
torch uses it, LightGBM, XGBoost) are here. `LIBRARIES` is the table of all.
Nothing here imports NumPy: `cloudcoll run` asks at every start.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from cloudcoll.errors import UsageError, known_names
from cloudcoll.libraries import mpich, nccl, open_mpi
from cloudcoll.libraries.question import (
    ELEMENT,
    Question,
    Selection,
    Version,
    dotted,
    only,
)

__all__ = [
    "DEFAULT",
    "LIBRARIES",
    "OF_TRAINING",
    "OF_UNKNOWN_MPI",
    "Library",
    "Question",
    "Selection",
    "announced",
    "forced_settings",
    "large_vector_algorithm",
    "library_key",
    "local_ranks",
    "parse_library",
    "select",
]


@dataclass(frozen=True)
class Library:
    """What is known of one library: how it chooses, and how it is told and found.

    Attributes
    ----------
    title : str
        As it is written.
    oldest, newest : tuple of int
        First two numbers of the versions whose rules were read.
    choose : callable
        `Question` -> `Selection`: what it takes by itself.
    large : mapping of str to str
        Collective -> what it does with large vectors, for workloads that name no
        algorithm.
    aliases : tuple of str
        Other names that people type.
    prefix : str
        What its environment variables begin with.
    strip : bool
        Whether its settings are named without that prefix.
    announces : str
        Pattern of what it calls itself, the version in a group; empty where
        nobody asks.
    turns : float
        Bytes that two ranks send to each other at the same time; of what is beyond, one
        waits for the other's to pass. Infinite where they never wait.
    inside : str
        What the shim that can reorder its ranks is for.
    seen : str
        The variable that names the file of what it was seen to take; empty for none.
    """

    title: str
    oldest: Version
    newest: Version
    choose: Callable[[Question], Selection]
    large: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    prefix: str = ""
    strip: bool = False
    announces: str = ""
    turns: float = math.inf
    inside: str = "MPI"
    seen: str = ""


GLOO = {
    "allreduce": "gloo_ring",
    "allgather": "gloo_ring",
    "alltoall": "gloo_linear",
    "barrier": "gloo_dissemination",
    "bcast": "gloo_binomial",
    "reduce": "gloo_ring",
    "reduce_scatter": "gloo_ring",
}

LIGHTGBM = dict.fromkeys(("allreduce", "allgather", "reduce_scatter"), "lightgbm")

XGBOOST = {
    "allreduce": "xgboost_ring",
    "allgather": "xgboost_ring",
    "bcast": "xgboost_relay",
}

RELAY_SINCE = (3, 3)
"""First XGBoost in which a broadcast goes by way of rank 0 (``broadcast.cc``)."""


def _choose_gloo(question: Question) -> Selection:
    """Return what torch's ProcessGroupGloo takes: it names no algorithm.

    Gloo's own default is a ring (torch 2.13 ``ProcessGroupGloo.cpp``, Gloo
    ``allreduce.cc``).
    """
    algorithm = only("Gloo", GLOO, question.collective)
    return Selection(algorithm, rule="torch names none, this is Gloo's default")


def _choose_lightgbm(question: Question) -> Selection:
    """Return LightGBM's own choice, which `collectives.boosting` makes by size."""
    algorithm = only("LightGBM", LIGHTGBM, question.collective)
    return Selection(algorithm, rule="network.cpp chooses by ranks and bytes")


def _choose_xgboost(question: Question) -> Selection:
    """Return XGBoost's algorithm: vectors of fewer elements than ranks are gathered.

    ``src/collective/allreduce.cc``; elements are taken to be of 4 bytes.
    """
    algorithm = only("XGBoost", XGBOOST, question.collective)
    if question.collective == "allreduce" and question.size < question.ranks * ELEMENT:
        return Selection("xgboost_gather", rule="fewer elements than ranks")
    if question.collective == "bcast" and question.version[:2] < RELAY_SINCE:
        return Selection("xgboost_binomial", rule="its only one until 3.2")
    return Selection(algorithm, rule="its only one")


LIBRARIES: dict[str, Library] = {
    "openmpi": Library(
        "Open MPI",
        (4, 1),
        (5, 0),
        open_mpi.choose,
        large=open_mpi.LARGE,
        aliases=("ompi",),
        prefix="OMPI_MCA_",
        strip=True,
        announces=r"Open MPI v([\d.]+)",
        turns=open_mpi.TURNS,
    ),
    "mpich": Library(
        "MPICH",
        (4, 0),
        (5, 0),
        mpich.choose,
        prefix="MPIR_CVAR_",
        announces=r"MPICH Version:\s*([\d.]+)",
    ),
    "nccl": Library(
        "NCCL",
        (2, 19),
        (2, 30),
        nccl.choose,
        large=nccl.LARGE,
        # RCCL is numbered after the NCCL whose code it has. As read in ROCm/rccl
        # (``src/misc/tuner.cc``, ``src/include/plugin``, ``ext-tuner``): the same
        # variable, versions 2 to 5 of the interface, functions 0 to 4 and table of
        # costs; of our algorithms it has ring and tree, and marks PAT as impossible.
        aliases=("rccl",),
        prefix="NCCL_",
        inside="NCCL",
        seen=nccl.CHOICES,
    ),
    "gloo": Library(
        "Gloo (torch)",
        (2, 13),
        (2, 13),
        _choose_gloo,
        large=GLOO | {"sendrecv": "both"},
        aliases=("torch",),
    ),
    "lightgbm": Library("LightGBM", (4, 6), (4, 6), _choose_lightgbm),
    "xgboost": Library("XGBoost", (2, 1), (3, 4), _choose_xgboost),
}
"""Key, as people type it -> what is known of it. Gloo's versions are those of torch."""

DEFAULT = "openmpi"
"""Whose collectives a job runs where nobody says: what most launchers start."""

OF_TRAINING = "nccl"
"""Whose a training workload runs: the split of a model says that there are GPUs."""

OF_UNKNOWN_MPI = "mpich"
"""Whose rules an MPI has that calls itself by another name: most derive from it."""


def select(
    library: str,
    collective: str,
    ranks: int,
    size: int,
    *,
    local: int = 1,
    settings: Mapping[str, str] | None = None,
) -> Selection:
    """Return the algorithm that a library takes for one call of a collective.

    Parameters
    ----------
    library : str
        ``NAME`` or ``NAME@VERSION``: see `parse_library`.
    collective : str
        A key of `cloudcoll.collectives.SCHEDULES`.
    ranks : int
        World size.
    size : int
        Bytes of the full vector; of no meaning to a barrier.
    local : int
        Ranks on each host; 0 where hosts have different numbers.
    settings : mapping of str to str, optional
        What is forced: see `forced_settings`.

    Raises
    ------
    UsageError
        An unknown library, version or collective, less than two ranks, no
        bytes, or settings that leave the choice to something not known here.
    """
    key, version = parse_library(library)
    if ranks < 2 or local < 0:
        raise UsageError(f"a collective is among 2 ranks or more, not {ranks}")
    if size < 1 and collective != "barrier":
        raise UsageError(
            f"{collective} of {size} bytes: nothing is sent; give 1 or more"
        )
    selector = LIBRARIES[key]
    taken, assumed = _known_version(selector, version)
    question = Question(collective, ranks, size, local, taken, settings or {})
    selection = selector.choose(question)
    if not version:
        assumed = f"version {dotted(taken)} assumed"
    notes = [note for note in (selection.assumption, assumed) if note]
    name = f"{selector.title} {dotted(version or taken)}"
    rule = f"{name}: {selection.rule}"
    return replace(selection, rule=rule, assumption="; ".join(notes), library=key)


def library_key(text: str) -> str:
    """Return the key of ``NAME[@VERSION]`` as people type it: Open MPI is openmpi."""
    typed = re.sub(r"[^a-z0-9]", "", text.partition("@")[0].lower())
    return next((key for key, o in LIBRARIES.items() if typed in o.aliases), typed)


def announced(text: str) -> str:
    """Return ``NAME@VERSION`` by what an MPI calls itself; `OF_UNKNOWN_MPI` for others.

    That is the text of ``MPI_Get_library_version``.
    """
    for key, library in LIBRARIES.items():
        if library.announces and (found := re.match(library.announces, text)):
            return f"{key}@{found[1]}"
    return OF_UNKNOWN_MPI


def large_vector_algorithm(library: str, collective: str) -> str:
    """Return what a library does with large vectors of a collective, if known."""
    known = {key: one.large for key, one in LIBRARIES.items() if one.large}
    if library not in known:
        raise UsageError(
            f"no defaults of library {library!r} (known: {', '.join(known)})"
        )
    if collective not in known[library]:
        raise UsageError(
            f"no default {collective!r} of {library} (known: "
            f"{', '.join(known[library])}): name an algorithm"
        )
    return known[library][collective]


def parse_library(
    text: str, known: Collection[str] = LIBRARIES.keys()
) -> tuple[str, Version]:
    """Return the key, one of `known`, and the version of ``NAME[@VERSION]``."""
    name, at, version = text.partition("@")
    key = library_key(text)
    if key not in known:
        raise UsageError(f"unknown library {name!r} {known_names(key, known)}")
    found = re.match(r"v?(\d{1,9}(?:\.\d{1,9}){0,5})", version)
    if at and not found:
        raise UsageError(f"{text!r}: {version!r} is not a version such as 5.0.11")
    return key, tuple(map(int, found[1].split("."))) if found else ()


def forced_settings(library: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return what an environment tells a library, by the library's own names."""
    selector = LIBRARIES[parse_library(library)[0]]
    if not selector.prefix:
        return {}
    start = len(selector.prefix) if selector.strip else 0
    return {
        name[start:]: value
        for name, value in env.items()
        if name.startswith(selector.prefix) or name == selector.seen
    }


def local_ranks(slots: tuple[int, ...]) -> int:
    """Return how many ranks each host has, 0 where they differ."""
    return slots[0] if len(set(slots)) == 1 else 0


def _known_version(selector: Library, version: Version) -> tuple[Version, str]:
    """Return the version whose rules are taken, and what is assumed by that."""
    if not version:
        return selector.newest, ""
    asked = (*version, 0)[:2]
    nearest = min(max(asked, selector.oldest), selector.newest)
    if nearest == asked:
        return version, ""
    return nearest, (
        f"the rules of {dotted(version)} are not known: those of "
        f"{dotted(nearest)} are taken"
    )
