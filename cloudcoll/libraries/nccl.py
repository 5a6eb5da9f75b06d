"""NCCL's choice, as far as it can be known without its tuner's measurements.

NCCL compares predicted times of all its algorithms, with figures of the
machine's own PCI tree, NICs and GPUs. What is not told is taken to be the ring.
Names and conditions as in NCCL 2.19 to 2.30 ``src/init.cc`` and
``src/graph/tuning.cc``.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from cloudcoll.errors import UsageError
from cloudcoll.files import read_text
from cloudcoll.files.limits import LOGGED_BYTES
from cloudcoll.libraries.question import Question, Selection, number, only

IN_SWITCHES = ""
"""Stands for a schedule where switches of the network add up (CollNet, NVLS)."""

RING = {"ring": "nccl_ring"}

SCATTERED = RING | {
    "collnetdirect": IN_SWITCHES,
    "nvls": IN_SWITCHES,
    "pat": "nccl_pat",
}

ALGORITHMS: dict[str, dict[str, str]] = {
    "allreduce": RING
    | {
        "tree": "nccl_tree",
        "collnetdirect": IN_SWITCHES,
        "collnetchain": IN_SWITCHES,
        "nvls": IN_SWITCHES,
        "nvlstree": "nccl_tree",
    },
    "allgather": SCATTERED,
    "alltoall": {},
    "bcast": RING,
    "reduce": RING,
    "reduce_scatter": SCATTERED,
}
"""Collective -> names in ``NCCL_ALGO`` -> names in `SCHEDULES`.

NVLSTree's ways between nodes are those of the tree; an alltoall has one algorithm.
"""

LARGE = {
    "allreduce": "nccl_ring",
    "allgather": "nccl_ring",
    "reduce_scatter": "nccl_ring",
    "alltoall": "nccl_p2p",
    "bcast": "nccl_ring",
    "reduce": "nccl_ring",
    "sendrecv": "both",
}
"""What it does with large vectors where its tuner finds nothing better."""

NAMES = {name for algorithms in ALGORITHMS.values() for name in algorithms}

FUNCTIONS = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "broadcast": "bcast",
    "reduce": "reduce",
    "reducescatter": "reduce_scatter",
}
"""Collectives as ``NCCL_ALGO`` names them."""

PAT_SINCE, REFUSES_SINCE = (2, 23), (2, 24)
"""First versions that have PAT, and that refuse a collective of which ``NCCL_ALGO``
leaves nothing; before, a ring was taken."""

CHOICES = "CLOUDCOLL_NCCL_CHOICES"
"""The variable with the file to which the tuner plugin logs what NCCL takes, and of
which predictions then know it."""

HEAD = "cloudcoll NCCL choices 1"
"""First line of that file."""


class Choice(NamedTuple):
    """What NCCL was seen to take.

    Attributes
    ----------
    ranks, nodes : int
        Of the communicator.
    collective : str
        A key of `SCHEDULES`.
    size : int
        Bytes of the first call of its size, by powers of two.
    name : str
        Of the algorithm, as ``NCCL_ALGO`` has it.
    """

    ranks: int
    nodes: int
    collective: str
    size: int
    name: str


def read_choices(path: str | Path) -> tuple[Choice, ...]:
    """Return what the tuner plugin has logged, of each size what came last."""
    text = read_text(path, f"NCCL's choices {path}", most=LOGGED_BYTES)
    head, *lines = text.splitlines() or [""]
    if head != HEAD:
        raise UsageError(f"{path} is no log of NCCL's choices: {HEAD!r} is not first")
    found = dict[tuple[int, int, str, int], Choice]()
    for number_, line in enumerate(lines, 2):
        words = line.split(" ")
        if len(words) != 5 or words[2] not in FUNCTIONS or not _are_numbers(words):
            raise UsageError(f"{path}:{number_}: {line[:80]!r} is no choice of NCCL's")
        ranks, nodes, size = int(words[0]), int(words[1]), int(words[3])
        one = Choice(ranks, nodes, FUNCTIONS[words[2]], size, words[4])
        found[ranks, nodes, one.collective, size.bit_length()] = one
    order = tuple(FUNCTIONS.values()).index
    return tuple(
        sorted(found.values(), key=lambda one: (*one[:2], order(one[2]), one[3]))
    )


def _are_numbers(words: list[str]) -> bool:
    return all(words[i].isdecimal() and len(words[i]) < 19 for i in (0, 1, 3))


_read_once = functools.lru_cache(maxsize=1)(read_choices)


def _seen(question: Question) -> Selection | None:
    """Return what a job of this shape was seen to take, None where none was."""
    path = question.settings.get(CHOICES, "")
    if not path or not Path(path).exists():  # the first job is still to write it
        return None
    for one in _read_once(path):
        nodes = question.hosts or one.nodes
        wanted = question.ranks, nodes, question.collective, question.size.bit_length()
        if (*one[:3], one.size.bit_length()) == wanted:
            algorithm = ALGORITHMS[one.collective].get(one.name, IN_SWITCHES)
            if algorithm != IN_SWITCHES:
                local = _local(question, algorithm)
                return Selection(algorithm, local, f"seen in {path}")
    return None


def choose(question: Question) -> Selection:
    """Return what NCCL was seen to take, or ``NCCL_ALGO`` leaves; else a ring.

    ``NCCL_PROTO`` changes how bytes are packed, not who sends to whom.
    """
    if question.collective in ALGORITHMS and (seen := _seen(question)):
        return seen
    known = only("NCCL", ALGORITHMS, question.collective)
    if not known:
        return Selection("nccl_p2p", _local(question, "nccl_p2p"), "its only one")
    text = question.settings.get("NCCL_ALGO", "").lower()
    if strange := sorted(_words(text) - NAMES):
        assumption = f"{strange[0]!r} in NCCL_ALGO is none of NCCL's: a ring is assumed"
        return Selection("nccl_ring", rule=f"NCCL_ALGO={text}", assumption=assumption)
    named = _allowed(text, question.collective, tuple(known))
    reasons = {name: _excluded(question, name) for name in named}
    left = [name for name in named if not reasons[name]]
    rule = f"NCCL_ALGO={text}" if text else "its tuner's figures are not known"
    if not left:
        words = (
            "; ".join(dict.fromkeys(reasons.values()))
            or f"no {question.collective} is among these"
        )
        return Selection("nccl_ring", {}, rule, _refused(question, words))
    found = {known[name] for name in left}
    if len(known) == 1 or found == {"nccl_ring"}:
        return Selection("nccl_ring", {}, rule if text else "its only one here")
    if found == {IN_SWITCHES}:
        assumption = "what is added up in switches is not known: a ring is assumed"
        return Selection("nccl_ring", {}, rule, assumption)
    if len(found) == 1:
        algorithm = found.pop()
        return Selection(algorithm, _local(question, algorithm), rule)
    # Without a ring among them the first of those with a schedule stands for all.
    algorithm = "nccl_ring" if "ring" in left else max(found)
    word = algorithm.removeprefix("nccl_")
    open_ = f"{rule} does not settle it: " if text else ""
    assumption = f"{open_}a {word} is assumed"
    return Selection(algorithm, _local(question, algorithm), rule, assumption)


def _local(question: Question, algorithm: str) -> dict[str, int]:
    """Return the ranks of a node for those schedules that depend on them."""
    wanted = algorithm in ("nccl_p2p", "nccl_tree") and question.local > 1
    return {"local": question.local} if wanted else {}


def _excluded(question: Question, name: str) -> str:
    """Return why an algorithm can't be taken, empty if it can."""
    collnet = number(question.settings, "NCCL_COLLNET_ENABLE", 0)
    pat = question.settings.get("NCCL_PAT_ENABLE", "2")
    if name == "pat" and question.version[:2] < PAT_SINCE:
        return "PAT came with 2.23"
    if name == "pat" and (pat == "0" or (pat == "2" and question.local != 1)):
        return "PAT is for one rank on each node, unless NCCL_PAT_ENABLE says else"
    if name == "nvlstree" and question.hosts == 1:
        return "NVLSTree is for several nodes"
    several = name == "nvls" and question.hosts != 1
    if (several or name.startswith("collnet")) and not collnet:
        return f"{name} between nodes needs CollNet: NCCL_COLLNET_ENABLE=1"
    return ""


def _refused(question: Question, reasons: str) -> str:
    """Return what is assumed where nothing is left."""
    if question.version[:2] >= REFUSES_SINCE:
        return f"NCCL refuses it ({reasons}): a ring is assumed"
    return f"nothing is left ({reasons}): a ring is assumed"


def _words(text: str) -> set[str]:
    """Return all names of algorithms in a value of ``NCCL_ALGO``."""
    lists = [
        part.rpartition(":")[2].strip().removeprefix("^") for part in text.split(";")
    ]
    return {name.strip() for names in lists for name in names.split(",")} - {""}


def _allowed(text: str, collective: str, known: tuple[str, ...]) -> list[str]:
    """Return which algorithms a value of ``NCCL_ALGO`` leaves.

    ``ring,tree`` for all, ``^tree`` for all but these, and since 2.24 with a
    collective before: ``ring;allreduce:tree``.
    """
    names = ""
    for part in text.split(";"):
        function, colon, listed = part.rpartition(":")
        if not colon or FUNCTIONS.get(function.strip()) == collective:
            names = listed.strip()
    if not names:
        return list(known)
    words = [name.strip() for name in names.removeprefix("^").split(",")]
    if names.startswith("^"):
        return [name for name in known if name not in words]
    return [name for name in known if name in words]
