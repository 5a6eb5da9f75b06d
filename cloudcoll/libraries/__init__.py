"""Which algorithm a library takes by itself, from its own decision rules.

One file per library with rules worth one; `SELECTORS` is the table of all.
Nothing here imports NumPy: `cloudcoll run` asks at every start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cloudcoll.errors import UsageError, known_names
from cloudcoll.libraries import fixed, mpich, nccl, open_mpi
from cloudcoll.libraries.question import Question, Selection, Version

__all__ = [
    "SELECTORS",
    "Question",
    "Selection",
    "Selector",
    "forced_settings",
    "library_key",
    "local_ranks",
    "parse_library",
    "select",
]


@dataclass(frozen=True)
class Selector:
    """One library.

    Attributes
    ----------
    name : str
        As it is written.
    oldest, newest : tuple of int
        First two numbers of the versions whose rules were read.
    choose : callable
        `Question` -> `Selection`.
    prefix : str
        What its environment variables begin with.
    strip : bool
        Whether its settings are named without that prefix.
    """

    name: str
    oldest: Version
    newest: Version
    choose: Callable[[Question], Selection]
    prefix: str = ""
    strip: bool = False


SELECTORS: dict[str, Selector] = {
    "openmpi": Selector(
        "Open MPI", (4, 1), (5, 0), open_mpi.choose, "OMPI_MCA_", strip=True
    ),
    "mpich": Selector("MPICH", (4, 0), (5, 0), mpich.choose, "MPIR_CVAR_"),
    "nccl": Selector("NCCL", (2, 19), (2, 30), nccl.choose, "NCCL_"),
    "gloo": Selector("Gloo (torch)", (2, 13), (2, 13), fixed.gloo),
    "lightgbm": Selector("LightGBM", (4, 6), (4, 6), fixed.lightgbm),
    "xgboost": Selector("XGBoost", (2, 1), (3, 4), fixed.xgboost),
}
"""Name as typed -> library. Gloo's versions are those of torch."""

ALIASES = {"torch": "gloo", "ompi": "openmpi"}


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
    selector = SELECTORS[key]
    taken, assumed = _known_version(selector, version)
    question = Question(collective, ranks, size, local, taken, settings or {})
    selection = selector.choose(question)
    if not version:
        assumed = f"version {_dotted(taken)} assumed"
    notes = [note for note in (selection.assumption, assumed) if note]
    name = f"{selector.name} {_dotted(version or taken)}"
    rule = f"{name}: {selection.rule}"
    return replace(selection, rule=rule, assumption="; ".join(notes), library=key)


def library_key(text: str) -> str:
    """Return the key of ``NAME[@VERSION]`` as people type it: Open MPI is openmpi."""
    key = re.sub(r"[^a-z0-9]", "", text.partition("@")[0].lower())
    return ALIASES.get(key, key)


def parse_library(text: str) -> tuple[str, Version]:
    """Return the key in `SELECTORS` and the version of ``NAME[@VERSION]``.

    Raises
    ------
    UsageError
        An unknown name, or what follows is not a version.
    """
    name, at, version = text.partition("@")
    key = library_key(text)
    if key not in SELECTORS:
        raise UsageError(f"unknown library {name!r} {known_names(key, SELECTORS)}")
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    if at and not found:
        raise UsageError(f"{text!r}: {version!r} is not a version such as 5.0.11")
    return key, tuple(map(int, found[1].split("."))) if found else ()


def forced_settings(library: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return what an environment tells a library, by the library's own names.

    Parameters
    ----------
    library : str
        As `select` takes it.
    env : mapping of str to str
        The environment that the job will run in.
    """
    selector = SELECTORS[parse_library(library)[0]]
    if not selector.prefix:
        return {}
    start = len(selector.prefix) if selector.strip else 0
    return {
        name[start:]: value
        for name, value in env.items()
        if name.startswith(selector.prefix)
    }


def local_ranks(slots: tuple[int, ...]) -> int:
    """Return how many ranks each host has, 0 where they differ."""
    return slots[0] if len(set(slots)) == 1 else 0


def _known_version(selector: Selector, version: Version) -> tuple[Version, str]:
    """Return the version whose rules are taken, and what is assumed by that."""
    if not version:
        return selector.newest, ""
    asked = (*version, 0)[:2]
    nearest = min(max(asked, selector.oldest), selector.newest)
    if nearest == asked:
        return version, ""
    return nearest, (
        f"the rules of {_dotted(version)} are not known: those of "
        f"{_dotted(nearest)} are taken"
    )


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
