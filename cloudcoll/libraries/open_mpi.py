"""Open MPI's choice: HAN on hosts with several ranks, else tuned.

Read in Open MPI 4.1 and 5.0: ``ompi/mca/coll/tuned`` and ``coll/han``. Settings
are MCA parameters.
"""

from __future__ import annotations

from dataclasses import replace

from cloudcoll.errors import UsageError
from cloudcoll.libraries.open_mpi_rules import ALGORITHMS, file_rule, fixed_rule
from cloudcoll.libraries.question import (
    ELEMENT,
    Question,
    Selection,
    number,
    power_of_two,
)

HAN = frozenset({"allgather", "allreduce", "barrier", "bcast", "reduce"})
"""Collectives that ``coll_han_module.c`` takes over."""

HAN_SEGMENT = 65536
"""Bytes of a broadcast that tuned sends; libnbc sends the rest in as many each."""

HAN_SINCE = (5, 0)
"""First version in which HAN's priority, 35, is above tuned's, 30."""

LARGE = {
    "allreduce": "rabenseifner",
    "allgather": "ring",
    "reduce_scatter": "ring",
    "alltoall": "pairwise",
    "bcast": "pipeline",
    "reduce": "pipeline",
    "barrier": "recursive_doubling",
    "sendrecv": "openmpi_both",
}
"""What it does with large vectors (``coll_tuned_decision_fixed.c``)."""

TURNS = (64 + 128) << 10
"""``btl_tcp_rndv_eager_limit`` and ``btl_tcp_rdma_pipeline_send_length``
(``btl_tcp_component.c``). What is beyond these is put where the other rank asks for it,
on the connection that carries both ways, and mostly one rank waits for the other's to
pass. Two ranks of 5.0.11 that trade 64 KiB to 2 MiB over TCP at 100 Mbit/s need
``2 bytes / rate - 16 ms`` from 256 KiB on, and one message's time below
(``benchmarks/exchange.py``): 16 ms are 195 KiB."""

RULES_FILE = "coll_tuned_dynamic_rules_filename"

TRUE = frozenset({"1", "true", "yes", "t", "y", "enabled"})

IN_SEGMENTS = {
    "allreduce": {"segmented_ring"},
    "bcast": {
        "binary_tree",
        "binomial",
        "chain",
        "knomial",
        "pipeline",
        "split_binary_tree",
    },
    "reduce": {"binary", "binomial", "chain", "in_order_binary", "pipeline"},
}
"""What heeds ``coll_tuned_*_algorithm_segmentsize``."""

FEW = {
    ("allreduce", "ring"): "recursive_doubling",
    ("allreduce", "segmented_ring"): "recursive_doubling",
    ("allreduce", "rabenseifner"): "basic_linear",
    ("bcast", "scatter_allgather"): "linear",
    ("bcast", "scatter_allgather_ring"): "linear",
    ("reduce", "rabenseifner"): "linear",
}
"""What is run instead with fewer elements than ranks, or than the power of two
below the ranks where halves are traded (``coll_base_*.c``)."""


def choose(question: Question) -> Selection:
    """Return Open MPI's algorithm, ``MPI_Reduce_scatter``'s of the two.

    UsageError for a collective without a rule, or components that leave out tuned.
    """
    if question.two_levels and _han(question):
        return _two_levels(question)
    if not _enabled(question, "tuned"):
        components = question.settings["coll"]
        raise UsageError(
            f"coll={components} leaves out tuned, of whose rules alone something is "
            "known: name the algorithm with --algorithm"
        )
    return _tuned(question)


def _han(question: Question) -> bool:
    """Return whether HAN is before tuned: as many ranks on each host."""
    default = 35 if question.version[:2] >= HAN_SINCE else 0
    first = number(question.settings, "coll_han_priority", default)
    second = number(question.settings, "coll_tuned_priority", 30)
    even = question.local and question.ranks % question.local == 0
    wanted = question.collective in HAN and _enabled(question, "han")
    return bool(even) and wanted and first > second


def _two_levels(question: Question) -> Selection:
    """Return HAN's algorithm, with what tuned takes between the hosts.

    A setting of HAN's own that is not its priority may change it.
    """
    parameters = {"local": question.local}
    between = replace(question, ranks=question.hosts, local=1)
    match question.collective:
        case "bcast":
            first = replace(between, size=min(question.size, HAN_SEGMENT))
            parameters["bcast"] = _number(first)
        case "allgather" if question.version[:2] < HAN_SINCE:
            # Its module between hosts is basic: a gather, then a broadcast.
            parameters["allgather"] = 1
        case "allgather" | "barrier":
            parameters[question.collective] = _number(between)
    rule = f"coll/han, {question.local} ranks on each host"
    told = sorted(
        name
        for name in question.settings
        if name.startswith("coll_han_") and name != "coll_han_priority"
    )
    notes = (
        [f"its defaults: what {', '.join(told)} changes is not known"] if told else []
    )
    if question.version[:2] < HAN_SINCE:
        notes.append("read, but not counted before 5.0")
    return Selection("han", parameters, rule, "; ".join(notes))


def _number(question: Question) -> int:
    """Return tuned's number of what it takes."""
    selection = _tuned(question)
    # A chain that nothing is said of is one chain: a pipeline.
    single = selection.parameters.get("fanout") == 1
    name = "pipeline" if single else selection.algorithm
    return ALGORITHMS[question.collective].split().index(name) + 1


def _enabled(question: Question, component: str) -> bool:
    """Return whether the parameter ``coll`` leaves a component."""
    named = question.settings.get("coll", "")
    if not named:
        return True
    listed = component in named.removeprefix("^").split(",")
    return listed != named.startswith("^")


def _dynamic(question: Question) -> bool:
    text = question.settings.get("coll_tuned_use_dynamic_rules", "")
    return text.lower() in TRUE


def _tuned(question: Question) -> Selection:
    call = question.collective
    size = question.block if call in {"allgather", "alltoall"} else question.size
    chosen, where = fixed_rule(call, question.ranks, size)
    names = ALGORITHMS[call].split()
    variable = f"coll_tuned_{call}_algorithm"
    forced = question.settings.get(variable, "0") if _dynamic(question) else "0"
    if forced in names:
        return _forced(question, forced, f"{variable}={forced}")
    if forced.isdecimal() and 0 < int(forced) <= len(names):
        return _forced(question, names[int(forced) - 1], f"{variable}={forced}")
    from_file, note = _from_file(question, names)
    if from_file:
        return from_file
    name = _few_elements(question, names[chosen - 1])
    rule = f"coll/tuned {chosen}, {where}"
    # Here a chain is told a fan-out of 0, which is taken as 1.
    parameters = {"fanout": 1} if name == "chain" else _parts(question, name)
    return Selection(name, parameters, rule, note)


def _from_file(question: Question, names: list[str]) -> tuple[Selection | None, str]:
    """Return what a file of rules says of a call, and a word if it can't be told."""
    path = question.settings.get(RULES_FILE, "")
    if not (path and _dynamic(question)):
        return None, ""
    try:
        rule = file_rule(path, question.collective, question.ranks, question.size)
    except UsageError as error:
        return None, f"{error}: as if {RULES_FILE} were not set"
    if not rule or not rule.algorithm:
        return None, ""
    if rule.algorithm > len(names):
        return None, f"{path} asks for an algorithm {rule.algorithm} that is not known"
    name = names[rule.algorithm - 1]
    parameters = _parts(question, name)
    if name in IN_SEGMENTS.get(question.collective, ()):
        parameters["segment"] = rule.segment
    if name == "chain":
        parameters["fanout"] = max(rule.fanout, 1)
    name = _few_elements(question, name)
    return Selection(name, parameters, f"rule {rule.algorithm} of {path}"), ""


def _forced(question: Question, name: str, rule: str) -> Selection:
    """Return an algorithm with what the settings say of segments and shapes."""
    call, settings = question.collective, question.settings
    prefix = f"coll_tuned_{call}_algorithm"
    parameters = _parts(question, name)
    if name in IN_SEGMENTS.get(call, ()):
        parameters["segment"] = number(settings, f"{prefix}_segmentsize", 0)
    if name == "chain":
        parameters["fanout"] = number(settings, f"{prefix}_chain_fanout", 4)
    if (call, name) == ("bcast", "knomial"):
        parameters["radix"] = number(settings, f"{prefix}_knomial_radix", 4)
    return Selection(_few_elements(question, name), parameters, rule)


def _few_elements(question: Question, name: str) -> str:
    """Return what is run instead where there are fewer elements than it needs."""
    instead = FEW.get((question.collective, name), name)
    ranks = question.ranks
    needed = power_of_two(ranks) if name == "rabenseifner" else ranks
    return instead if question.size < needed * ELEMENT else name


def _parts(question: Question, name: str) -> dict[str, int]:
    """Return by which algorithms a composed one does its parts."""
    parts: tuple[str, ...] = ()
    if name == "nonoverlapping":
        parts = (
            ("reduce", "bcast") if question.collective == "allreduce" else ("reduce",)
        )
    return {part: _number(replace(question, collective=part)) for part in parts}
