"""Tell Open MPI a tuning: a file of rules for ``coll/tuned``.

Read in 4.1.4 to 5.0.10 (``coll_tuned_dynamic_file.c``, ``coll_tuned_module.c``,
``coll_tuned_decision_dynamic.c``) and tried with 4.1.4, 4.1.8 and 5.0.11:

- Bytes are those of the full vector, of allgather, alltoall and reduce_scatter too.
- The rules of the largest world size that is not above a communicator's hold, those
  of the first size for all below it. So the first is 0, with algorithm 0 (the
  library's own), and behind the size that is meant stands the next one with 0 again.
- The first rule of a size is from 0 bytes, else the whole file is passed over. Nothing
  is said then: a build that is no debug build has no messages of that.
- The file beats a forced ``coll_tuned_*_algorithm`` in 4.1 and not in 5.0. So a
  collective that the user forces is not in the file.
- The rules are not asked whether an operation commutes: a ring then gives wrong
  results. `cloudcoll run` has a library in every rank that sees to it
  (shim/algorithms.c).
- HAN, which 5.0 takes on hosts with several ranks, is before tuned for all sizes or
  none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cloudcoll.libraries.open_mpi import HAN, HAN_SINCE, IN_SEGMENTS, RULES_FILE, TRUE
from cloudcoll.libraries.open_mpi_rules import ALGORITHMS, COLLECTIVES
from cloudcoll.libraries.question import dotted, number
from cloudcoll.libraries.telling import Ask, Told, changed, spans, yours
from cloudcoll.tuning import TunedRange

PREFIX = "OMPI_MCA_"
DYNAMIC = "coll_tuned_use_dynamic_rules"
PRIORITY = "coll_han_priority"
RADIX = "coll_tuned_bcast_algorithm_knomial_radix"
DEFAULT_RADIX = 4

OLDEST, NEWEST = (4, 1), (5, 0)
"""Versions whose files are of this form: 6.0 has JSON."""

SINCE = {("allgather", "sparbit"): (5, 0)}
"""Algorithms that came later."""

OTHERS = ("coll_ucc_enable", "coll_hcoll_enable")
"""What puts another library before tuned."""

OWN = (0, 0, 0)
"""Algorithm, fan-out and segment of a rule that leaves the choice to the library."""

FUNCTIONS = {
    "allgather": "basic_linear bruck recursivedoubling ring neighborexchange two_procs "
    "sparbit",
    "allreduce": "basic_linear nonoverlapping recursivedoubling ring ring_segmented "
    "redscat_allgather",
    "alltoall": "basic_linear pairwise bruck linear_sync two_procs",
    "barrier": "basic_linear doublering recursivedoubling bruck two_procs tree",
    "bcast": "basic_linear chain pipeline split_bintree bintree binomial knomial "
    "scatter_allgather scatter_allgather_ring",
    "reduce": "basic_linear chain pipeline binary binomial in_order_binary "
    "redscat_gather",
    "reduce_scatter": "nonoverlapping basic_recursivehalving ring butterfly",
}
"""How the functions end, ``ompi_coll_base_<collective>_intra_...``, by number."""

CHAIN_FANOUT = 4
"""Of a chain that is told none."""


def tell_open_mpi(ask: Ask) -> Told:
    """Return the file of rules, and the parameters that put it in force."""
    if ask.version and not OLDEST <= ask.version[:2] <= NEWEST:
        version = dotted(ask.version)
        return Told(notes=(f"Open MPI {version} reads another form of rules",))
    if refused := _refused(ask):
        return Told(notes=(refused,))
    wanted, notes = [], []
    for collective in changed(ask.tuning):
        if why := _why_not(ask, collective):
            notes.append(why)
        else:
            wanted.append(collective)
    if not wanted:
        return Told(notes=tuple(notes))
    variables = {PREFIX + DYNAMIC: "1"}
    radices = {
        one.parameters.get("radix", DEFAULT_RADIX)
        for one in ask.tuning.ranges
        if "bcast" in wanted and one.algorithm == "knomial"
    }
    if radices - {DEFAULT_RADIX}:
        variables[PREFIX + RADIX] = str(max(radices))
    if off := _han_off(ask, wanted):
        variables[PREFIX + PRIORITY] = "0"
        notes.append(off)
    text = "".join(f"{line}\n" for line in _lines(ask, wanted))
    functions = tuple(
        (collective, one.least, _function(collective, one))
        for collective in wanted
        for one, _ in spans(ask.tuning, collective)
    )
    return Told(
        *(variables, PREFIX + RULES_FILE, text, tuple(notes), tuple(wanted)),
        functions=functions,
    )


def numbers(text: str) -> str:
    """Return a file of rules on one line, without what is said in it."""
    return " ".join(re.sub(r"#.*", "", text).split())


def _refused(ask: Ask) -> str:
    """Return why nothing at all is told, empty if something is."""
    settings = ask.settings
    if settings.get(DYNAMIC, "1").lower() not in TRUE:
        return yours([DYNAMIC], settings, "no algorithm is chosen")
    named = [name for name in (RULES_FILE, "coll") if settings.get(name)]
    named += [name for name in OTHERS if settings.get(name, "0").lower() in TRUE]
    return yours(named, settings, "no algorithm is chosen")


def _why_not(ask: Ask, collective: str) -> str:
    """Return why a collective is not told, empty if it is."""
    forced = f"coll_tuned_{collective}_algorithm"
    if forced in ask.settings:
        return yours([forced], ask.settings, f"no algorithm is chosen for {collective}")
    for one in ask.tuning.of(collective):
        since = SINCE.get((collective, one.algorithm), OLDEST)
        if ask.version and ask.version[:2] < since:
            wanted = dotted(since)
            return f"{one.algorithm} came with Open MPI {wanted}: {collective} stays"
    own = ask.settings.get(PRIORITY)
    flat = any(one.algorithm not in ("", "han") for one in ask.tuning.of(collective))
    two_levels = ask.tuning.local != 1 and collective in HAN
    if two_levels and flat and own is not None and number(ask.settings, PRIORITY, 0):
        return yours(
            [PRIORITY], ask.settings, f"no algorithm is chosen for {collective}"
        )
    radices = {
        one.parameters.get("radix", DEFAULT_RADIX)
        for one in ask.tuning.of(collective)
        if one.algorithm == "knomial"
    }
    if len(radices) > 1:
        return f"Open MPI takes one radix for all sizes: {collective} stays"
    return ""


def _han_off(ask: Ask, wanted: list[str]) -> str:
    """Return the line about HAN if it is turned off, empty if it is not."""
    by_han = [name for name in wanted if name in HAN]
    flat = any(
        one.algorithm not in ("", "han")
        for name in by_han
        for one in ask.tuning.of(name)
    )
    on = (ask.version or NEWEST)[:2] >= HAN_SINCE
    # On a single host, or with a rank on each, it steps aside by itself.
    alone = ask.tuning.local in (1, ask.tuning.ranks)
    if alone or not (on and flat) or PRIORITY in ask.settings:
        return ""
    return (
        f"HAN is off for the sake of {', '.join(by_han)}: it is before tuned for all "
        "sizes or none"
    )


def _lines(ask: Ask, wanted: list[str]) -> Iterator[str]:
    """Yield the file, line by line."""
    ranks = ask.tuning.ranks
    yield f"{len(wanted)} # collectives; by cloudcoll for {ranks} ranks"
    for collective in wanted:
        yield f"{COLLECTIVES[collective]} # {collective}"
        yield "3 # world sizes"
        yield from _world(0, [(0, OWN, "")])
        rules = [
            (one.least, _rule(collective, one), one.algorithm)
            for one, _ in spans(ask.tuning, collective)
        ]
        yield from _world(ranks, rules)
        yield from _world(ranks + 1, [(0, OWN, "")])


def _world(
    ranks: int, rules: list[tuple[int, tuple[int, int, int], str]]
) -> Iterator[str]:
    yield f"{ranks} {len(rules)} # ranks, rules"
    for least, rule, name in rules:
        words = " ".join(map(str, (least, *rule)))
        yield f"{words} # {name or 'its own choice'}"


def _function(collective: str, one: TunedRange) -> str:
    """Return the function that is to run, empty for any."""
    number, _, _ = _rule(collective, one)
    return FUNCTIONS[collective].split()[number - 1] if number else ""


def _rule(collective: str, one: TunedRange) -> tuple[int, int, int]:
    """Return algorithm, fan-out and segment."""
    # HAN is no algorithm of tuned's: where it runs, these rules are not asked.
    if one.algorithm in ("", "han"):
        return OWN
    algorithm = ALGORITHMS[collective].split().index(one.algorithm) + 1
    fanout, segment = 0, 0
    if one.algorithm == "chain":
        fanout = one.parameters.get("fanout", CHAIN_FANOUT)
    if one.algorithm in IN_SEGMENTS.get(collective, ()):
        segment = one.parameters.get("segment", 0)
    return algorithm, fanout, segment
