"""Leave out rounds of a probe that would only find labelled groups again.

Labels are a prior, not a measurement: every group still meets inside and with
every other one, so that a wrong label shows. Nothing here touches a network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cloudcoll import units
from cloudcoll.hosts import Host
from cloudcoll.infer.prior import label_numbers
from cloudcoll.probe.plan import MODES, ProbePlan, labels, tournament_round


def cut_by_labels(plan: ProbePlan, hosts: Sequence[Host]) -> ProbePlan:
    """Return the plan of these hosts with only the rounds that labels leave to do.

    Pairs are loaded until each group of the labels has sent within itself and
    with every other one, in at least as many rounds as a quick probe loads.
    Latency is taken until each host has met another of its group too, but in no
    more than 4 log2 N rounds, as in a quick probe. The rounds are the
    first of the same tournament: agents work them out as before. Without labels of two
    groups the plan stays as it is.
    """
    groups = label_numbers(hosts)
    if groups.max(initial=-1) < 1:
        return plan
    loaded, latency = _rounds_needed(plan, groups.tolist())
    loaded = max(loaded, MODES["quick"].loaded_rounds)
    latency = min(latency, 4 * math.ceil(math.log2(len(hosts))))
    passes = tuple(
        (kind, min(rounds, latency if kind == "rtt" else loaded), flip)
        for kind, rounds, flip in plan.passes
    )
    return replace(plan, passes=passes)


def spared(plan: ProbePlan, cut: ProbePlan) -> str:
    """Return a line that says what a cut plan saves against the whole one."""
    counts = []
    for kinds in (("rtt",), ("load", "duplex")):
        whole, left = (
            sum(rounds for kind, rounds, _ in some.passes if kind in kinds)
            for some in (plan, cut)
        )
        counts.append(f"{whole - left} of {whole}")
    return (
        f"labels save {counts[0]} rounds of latency and {counts[1]} under load: "
        f"{units.seconds(plan.seconds - cut.seconds)}, "
        f"at most {units.decimal_size(plan.bytes - cut.bytes)}"
    )


def _rounds_needed(plan: ProbePlan, groups: Sequence[int]) -> tuple[int, int]:
    """Return after how many rounds all groups, and all hosts too, have met.

    That is: every two groups and two hosts of each group; and each host with
    a group another one of it. All rounds, where hosts are too few for that.
    """
    player = labels(plan.hosts, plan.seed)
    rounds = max((count for _, count, _ in plan.passes), default=0)
    met = np.zeros((max(groups) + 1,) * 2, dtype=bool)
    # A host without a group has nobody of its own to meet.
    at_home = np.array(groups) < 0
    loaded = rounds
    for number in range(rounds):
        for a, b in tournament_round(plan.hosts + plan.hosts % 2, number):
            if max(a, b) >= plan.hosts:
                continue
            one, other = groups[player[a]], groups[player[b]]
            if min(one, other) >= 0:
                met[one, other] = met[other, one] = True
                if one == other:
                    at_home[[player[a], player[b]]] = True
        if met.all():
            loaded = min(loaded, number + 1)
            if at_home.all():
                return loaded, number + 1
    return loaded, rounds
