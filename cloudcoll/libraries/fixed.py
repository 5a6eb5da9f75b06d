"""Libraries that leave little to choose: Gloo as torch uses it, LightGBM, XGBoost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from cloudcoll.errors import UsageError
from cloudcoll.libraries.question import ELEMENT, Question, Selection

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

Known = TypeVar("Known")

RELAY_SINCE = (3, 3)
"""First XGBoost in which a broadcast goes by way of rank 0 (``broadcast.cc``)."""


def only(library: str, algorithms: Mapping[str, Known], collective: str) -> Known:
    """Return what is known of a collective.

    Raises
    ------
    UsageError
        The library does not have the collective.
    """
    if collective not in algorithms:
        known = ", ".join(algorithms)
        raise UsageError(
            f"unknown collective {collective!r} of {library} (known: {known})"
        )
    return algorithms[collective]


def gloo(question: Question) -> Selection:
    """Return what torch's ProcessGroupGloo takes: it names no algorithm.

    Gloo's own default is a ring (torch 2.13 ``ProcessGroupGloo.cpp``, Gloo
    ``allreduce.cc``).
    """
    algorithm = only("Gloo", GLOO, question.collective)
    return Selection(algorithm, rule="torch names none, this is Gloo's default")


def lightgbm(question: Question) -> Selection:
    """Return LightGBM's own choice, which `collectives.boosting` makes by size."""
    algorithm = only("LightGBM", LIGHTGBM, question.collective)
    return Selection(algorithm, rule="network.cpp chooses by ranks and bytes")


def xgboost(question: Question) -> Selection:
    """Return XGBoost's algorithm: vectors of fewer elements than ranks are gathered.

    ``src/collective/allreduce.cc``; elements are taken to be of 4 bytes.
    """
    algorithm = only("XGBoost", XGBOOST, question.collective)
    if question.collective == "allreduce" and question.size < question.ranks * ELEMENT:
        return Selection("xgboost_gather", rule="fewer elements than ranks")
    if question.collective == "bcast" and question.version[:2] < RELAY_SINCE:
        return Selection("xgboost_binomial", rule="its only one until 3.2")
    return Selection(algorithm, rule="its only one")
