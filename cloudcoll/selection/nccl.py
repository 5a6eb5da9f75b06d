"""NCCL's choice, as far as it can be known without its tuner's measurements.

NCCL compares predicted times of all its algorithms, with figures of the
machine's own PCI tree, NICs and GPUs. What is not told is taken to be the ring.
Names as in NCCL 2.30 ``src/init.cc`` and ``src/graph/tuning.cc``.
"""

from __future__ import annotations

from cloudcoll.selection.fixed import only
from cloudcoll.selection.question import Question, Selection

ALGORITHMS = {
    "allreduce": {"ring": "nccl_ring", "tree": "nccl_tree"},
    "allgather": {"ring": "nccl_ring", "pat": "nccl_pat"},
    "reduce_scatter": {"ring": "nccl_ring", "pat": "nccl_pat"},
}
"""What there is to choose from; anything else has one algorithm."""

DEFAULTS = {
    **dict.fromkeys(ALGORITHMS, "nccl_ring"),
    "alltoall": "nccl_p2p",
    "bcast": "nccl_ring",
    "reduce": "nccl_ring",
}

FUNCTIONS = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "reducescatter": "reduce_scatter",
}
"""Collectives as ``NCCL_ALGO`` names them."""


def choose(question: Question) -> Selection:
    """Return what ``NCCL_ALGO`` leaves; the ring is assumed where that is open.

    ``NCCL_PROTO`` changes how bytes are packed, not who sends to whom.
    """
    algorithm = only("NCCL", DEFAULTS, question.collective)
    known = ALGORITHMS.get(question.collective)
    local = {"local": question.local} if question.local > 1 else {}
    if known is None:
        parameters = local if algorithm == "nccl_p2p" else {}
        return Selection(algorithm, parameters, "its only one")
    text = question.settings.get("NCCL_ALGO", "").lower()
    left = _allowed(text, question.collective, tuple(known))
    if len(left) == 1:
        algorithm = known[left[0]]
        parameters = local if algorithm == "nccl_tree" else {}
        return Selection(algorithm, parameters, f"NCCL_ALGO={text}")
    if not text:
        rule = "its tuner's figures are not known"
        return Selection(algorithm, rule=rule, assumption="a ring is assumed")
    assumption = f"NCCL_ALGO={text} does not settle it: a ring is assumed"
    return Selection(algorithm, rule="its tuner decides", assumption=assumption)


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
    words = [name.strip() for name in names.removeprefix("^").split(",")]
    if names.startswith("^"):
        return [name for name in known if name not in words]
    return [name for name in known if name in words]
