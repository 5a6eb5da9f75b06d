"""What a library can be told to run, from outside, in place of its own choice.

A candidate is the settings that ask for it. What runs then is read by the rules of
`cloudcoll.libraries`, the same that predict any job, so that an algorithm which the
library would not run after all (too few elements, no power of two) is none.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from cloudcoll.collectives import SCHEDULES
from cloudcoll.errors import UsageError
from cloudcoll.libraries import LIBRARIES, Selection, mpich, nccl, parse_library, select
from cloudcoll.libraries.open_mpi import IN_SEGMENTS, RULES_FILE
from cloudcoll.libraries.open_mpi_rules import ALGORITHMS
from cloudcoll.libraries.tell import BY_USER, NCCL_ALGO

SEGMENTS = (16 << 10, 64 << 10, 256 << 10, 1 << 20, 0)
"""Bytes of a segment that are tried of Open MPI, 0 for the whole message. The first
stands for all in predictions, which know of no difference: so much is sent at once.
64 KiB with their header are more than ``btl_tcp_eager_limit`` and wait for the receiver
to ask for them: chains took half as long again (benchmarks/tuning.py)."""

FANOUTS = (2, 4, 8)
"""Chains side by side; one is the pipeline, an algorithm of its own."""

RADIXES = (2, 4, 8)
CHUNKS = (64 << 10, 8 << 10, 256 << 10)
"""Of MPICH: radixes of trees and exchanges, and bytes of a pipelined tree's chunk."""

Settings = Mapping[str, str]
Ways = Iterator[tuple[str, dict[str, int], dict[str, str]]]
"""Algorithm, parameters as a tuning has them, and the settings that ask for them."""


@dataclass(frozen=True)
class Candidate:
    """One way to run a call.

    Attributes
    ----------
    selection : Selection
        What runs.
    parameters : mapping of str to int
        What the library is told beside the algorithm's name.
    settings : mapping of str to str
        What asks for it, by the library's own names; empty for its own choice.
    """

    selection: Selection
    parameters: Mapping[str, int] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """Whether it is what the library takes by itself."""
        return not self.settings

    @property
    def algorithm(self) -> str:
        """The name for a `TunedRange`: empty for the library's own choice."""
        return "" if self.is_own else self.selection.algorithm

    @property
    def key(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """What tells it from the others that can carry the same call."""
        return self.algorithm, tuple(sorted(self.parameters.items()))

    @property
    def shape(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """What tells it from those that the model knows a difference to."""
        name, told = self.key
        return name, tuple((k, bool(v) if k == "segment" else v) for k, v in told)

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value}" for name, value in self.parameters.items())
        return self.selection.algorithm + (f" ({told})" if told else "")


class Candidates:
    """What one library can run in one job.

    Attributes
    ----------
    library, key : str
        As it was named, and its key.
    ranks, local : int

    Parameters
    ----------
    library : str
        ``NAME[@VERSION]``.
    ranks, local : int
        World size, and ranks on each host; 0 where hosts have different numbers.
    settings : mapping of str to str, optional
        What the user has forced, by the library's own names.

    Raises
    ------
    UsageError
        Unknown, or nothing can be told to it from outside.
    """

    def __init__(
        self,
        library: str,
        ranks: int,
        local: int = 1,
        settings: Settings | None = None,
    ) -> None:
        key, version = parse_library(library)
        if key not in TOLD:
            known = ", ".join(TOLD)
            raise UsageError(
                f"nothing is known that tells {library} which algorithm to run "
                f"(known of: {known})"
            )
        self.library, self.key = library, key
        self._told, self._version = TOLD[key], version or LIBRARIES[key].newest
        self.ranks, self.local = ranks, local
        self._settings = settings or {}
        self._others: dict[tuple[str, int], list[Candidate]] = {}

    def is_tunable(self, collective: str) -> bool:
        """Return whether there is anything to choose, and the user has not chosen."""
        known = self.knows(collective) and collective != "barrier"
        return known and not self.forced_by(collective)

    def knows(self, collective: str) -> bool:
        """Return whether the library's rules for a collective are known."""
        return collective in self._told.collectives

    def forced_by(self, collective: str) -> str:
        """Return the user's own setting that chooses already; empty for none."""
        names = self._told.choosers(collective)
        told = (n for n in names if self._settings.get(n, "") not in ("", "0", "auto"))
        return next(told, "")

    def own(self, collective: str, size: int) -> Candidate:
        """Return what the library takes by itself for a call."""
        return Candidate(self._select(collective, size, {}))

    def others(self, collective: str, size: int) -> list[Candidate]:
        """Return what else it can be told to run for a call, each once."""
        key = collective, size
        if key not in self._others:
            self._others[key] = list(self._distinct(collective, size))
        return self._others[key]

    def _distinct(self, collective: str, size: int) -> Iterator[Candidate]:
        own = self.own(collective, size).selection
        runs = {_identity(own)}
        for name, parameters, settings in self._told.ways(
            collective, size, self.local != 1
        ):
            if not self._has(collective, name):
                continue
            chosen = self._select(collective, size, settings)
            if chosen.algorithm != name or _identity(chosen) in runs:
                continue
            runs.add(_identity(chosen))
            yield Candidate(chosen, parameters, settings)

    def again(self, one: Candidate, collective: str, size: int) -> Candidate | None:
        """Return a candidate for another size; None where it does not run there."""
        if one.is_own:
            return self.own(collective, size)
        others = self.others(collective, size)
        return next((other for other in others if other.key == one.key), None)

    def _select(self, collective: str, size: int, told: Settings) -> Selection:
        return select(
            self.library,
            collective,
            self.ranks,
            size,
            local=self.local,
            settings={**self._settings, **told},
        )

    def _has(self, collective: str, name: str) -> bool:
        """Return whether the library's version has an algorithm."""
        family = SCHEDULES[collective].get(name)
        if family is None or family.only not in (None, self.ranks):
            return False
        return any(
            self._version[: len(read)] == read
            for one in family.variants_of(self.key)
            for read in _versions(one.versions)
        )


def _versions(text: str) -> Iterator[tuple[int, ...]]:
    """Yield those that ``Open MPI 4.1, 5.0`` speaks of."""
    for found in re.findall(r"\d+(?:\.\d+)*", text):
        yield tuple(map(int, found.split(".")))


def _identity(chosen: Selection) -> tuple[object, ...]:
    """Return what is the same of settings that come to the same."""
    given = chosen.parameters
    # One chain is the pipeline, and a segment as large as the message is none.
    single = chosen.algorithm == "chain" and given.get("fanout") == 1
    name = "pipeline" if single else chosen.algorithm
    kept = {k: v for k, v in given.items() if v and not (single and k == "fanout")}
    return name, *sorted(kept.items())


def _open_mpi_ways(collective: str, size: int, several: bool) -> Ways:
    """Yield what ``coll_tuned`` can be forced to; HAN is out of the way then."""
    prefix = f"coll_tuned_{collective}_algorithm"
    segmented = IN_SEGMENTS.get(collective, set())
    for number, name in enumerate(ALGORITHMS[collective].split(), 1):
        segments = [one for one in SEGMENTS if one < size] if name in segmented else [0]
        fanouts = FANOUTS if name == "chain" else (0,)
        for segment, fanout in itertools.product(segments, fanouts):
            parameters, settings = {}, {prefix: str(number)}
            if name in segmented:
                parameters["segment"] = segment
                settings[f"{prefix}_segmentsize"] = str(segment)
            if fanout:
                parameters["fanout"] = fanout
                settings[f"{prefix}_chain_fanout"] = str(fanout)
            if several:
                settings["coll_han_priority"] = "0"
            settings["coll_tuned_use_dynamic_rules"] = "1"
            yield name, parameters, settings


def _mpich_ways(collective: str, size: int, several: bool) -> Ways:
    """Yield what ``MPIR_CVAR_*_INTRA_ALGORITHM`` takes, between hosts and of all."""
    prefix = f"MPIR_CVAR_{collective.upper()}"
    flat = {f"{prefix}_DEVICE_COLLECTIVE": "0"}
    for value, name in mpich.FORCED[collective].items():
        radix = mpich.RADIX.get((collective, value), "")
        radixes = RADIXES if radix else (0,)
        kinds = mpich.TREE_TYPES if name == "mpich_tree" else ("",)
        chunks = [one for one in CHUNKS if one < size]
        for k, kind, chunk in itertools.product(
            radixes, kinds, chunks if value == "pipelined_tree" else [0]
        ):
            parameters, settings = {}, {f"{prefix}_INTRA_ALGORITHM": value}
            if k:
                parameters["radix"] = k
                settings[f"{prefix}_{radix}_KVAL"] = str(k)
            if kind:
                settings[f"{prefix}_TREE_TYPE"] = kind
            if chunk:
                parameters["segment"] = chunk
                settings[f"{prefix}_TREE_PIPELINE_CHUNK_SIZE"] = str(chunk)
            whole = f"{name}_{kind}" if kind else name
            if several and collective in mpich.SMP:
                yield f"mpich_smp_{whole.removeprefix('mpich_')}", parameters, settings
                settings = settings | flat
            yield whole, parameters, settings


def _nccl_ways(collective: str, size: int, several: bool) -> Ways:
    """Yield what ``NCCL_ALGO`` takes; what is chosen is told to a tuner plugin."""
    for value, name in nccl.ALGORITHMS[collective].items():
        if name:
            yield name, {}, {NCCL_ALGO: value}


@dataclass(frozen=True)
class _Told:
    """How one library is told.

    Attributes
    ----------
    collectives : collection of str
        Of which something can be told.
    ways : callable
        (collective, bytes, whether hosts have several ranks) -> all there is.
    choosers : callable
        Collective -> settings by which a user has chosen already.
    """

    collectives: Collection[str]
    ways: Callable[[str, int, bool], Ways]
    choosers: Callable[[str], tuple[str, ...]]


TOLD = {
    "openmpi": _Told(
        ALGORITHMS.keys(),
        _open_mpi_ways,
        lambda collective: (f"coll_tuned_{collective}_algorithm", RULES_FILE),
    ),
    "mpich": _Told(
        mpich.FORCED.keys(),
        _mpich_ways,
        lambda collective: (
            f"MPIR_CVAR_{collective.upper()}_INTRA_ALGORITHM",
            f"MPIR_CVAR_{collective.upper()}_COMPOSITION",
            *mpich.RULE_FILES,
        ),
    ),
    "nccl": _Told(
        [name for name, found in nccl.ALGORITHMS.items() if len(found) > 1],
        _nccl_ways,
        lambda collective: BY_USER,
    ),
}
"""Key of a library -> how it is told."""
