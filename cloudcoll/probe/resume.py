"""What an interrupted probe left to do. Nothing here touches a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from cloudcoll.probe.plan import ProbePlan, Round

AT_ONCE = 4096
"""Rounds that an agent can be told of in one frame, at most."""


def without_rounds(plan: ProbePlan) -> ProbePlan:
    """Return a plan that takes as long, and leaves it to us to tell each round."""
    spare = plan.repeat_s + plan.seconds
    return replace(plan, passes=(("rtt", 0, False),), repeat_s=spare)


def rounds_left(
    plan: ProbePlan, missing: Mapping[int, Sequence[int]]
) -> list[list[Round]]:
    """Return what is left of a plan's rounds, by their own numbers.

    Parameters
    ----------
    plan : ProbePlan
    missing : mapping of int to sequence of int
        See `cloudcoll.probe.results.Results.missing`.

    Returns
    -------
    list of list of Round
        Each list has rounds of one kind whose numbers follow each other, with
        `start` in seconds after the first.
    """
    left = []
    for slot in plan.rounds():
        reporter = 0 if slot.kind == "rtt" else 1
        who = missing.get(slot.number, ())
        if pairs := tuple(pair for pair in slot.pairs if pair[reporter] in who):
            left.append(replace(slot, pairs=pairs))
    runs = [list(run) for _, run in groupby(enumerate(left), _run_of)]
    return [
        [
            replace(slot, start=turn * plan.length(slot.kind))
            for turn, (_, slot) in enumerate(run)
        ]
        for run in runs
    ]


def _run_of(place: tuple[int, Round]) -> tuple[str, int, int]:
    """Return what rounds that follow each other have in common."""
    index, slot = place
    return slot.kind, slot.number - index, slot.number // AT_ONCE
