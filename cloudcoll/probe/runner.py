"""Run a plan: start the agents, lead them through it, keep what they saw."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.hosts import Host
from cloudcoll.infer import preload, with_rates_of
from cloudcoll.infer.holdout import COVERED, measured
from cloudcoll.infer.sharing import in_line
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric
from cloudcoll.probe.agents import Agents, need_two, prepare
from cloudcoll.probe.extra_rounds import (
    REPEATS,
    RESERVED_S,
    inner_rounds,
    lone_rounds,
    opposed_rounds,
    repeat_loads,
    repeat_trips,
    telling_rounds,
    untested,
)
from cloudcoll.probe.frames import Frame
from cloudcoll.probe.pacing import (
    TRIED_ROUNDS,
    TRIES,
    highest_pace,
    through,
    usual_pace,
)
from cloudcoll.probe.plan import ProbePlan, Round
from cloudcoll.probe.results import Results
from cloudcoll.probe.spool import rounds_left, spooling
from cloudcoll.probe.transport import Conduct, Inference, RemoteShell, origin
from cloudcoll.probe.uplink_rounds import Escalation, find_uplinks
from cloudcoll.rankmap import SURE

GRACE_SECONDS = 3.0
"""How much later than planned an agent may be done."""


def run_probe(
    hosts: tuple[Host, ...],
    plan: ProbePlan,
    transport: RemoteShell,
    conduct: Conduct | None = None,
    *,
    infer: Inference | None = None,
) -> NetworkSnapshot:
    """Measure the network between `hosts` as planned.

    A host that cannot be reached, or dies on the way, costs its own row and
    column only; the snapshot's `failed` says why.

    Parameters
    ----------
    plan : ProbePlan
        Made for these hosts.
    transport : RemoteShell
        How to start an agent on a host.
    conduct : Conduct, optional
        Its ``force``, ``resume``, ``spool`` and ``progress`` count here.
    infer : callable, optional
        Finds the groups in what the plan's rounds measured. Their uplinks are
        then loaded, as far as the plan has time for it; not without `infer`.

    Returns
    -------
    NetworkSnapshot
        With the fabric that `infer` found in all of it; without one where some of it
        was measured later.

    Raises
    ------
    UsageError
        The plan is for another number of hosts, or a host makes no sense to
        the transport; the spool is no probe of these hosts and this plan.
    UnusableError
        The transport does not work here, another probe is running on a host,
        fewer than two hosts answered, or no packet passed between any two;
        the message gives reasons.
    """
    if plan.hosts != len(hosts):
        raise UsageError(f"a plan for {plan.hosts} hosts cannot probe {len(hosts)}")
    if reason := transport.available():
        raise UnusableError(f"cannot probe via {transport.name}: {reason}")
    begin = time.monotonic()
    if len(hosts) == 1:
        return NetworkSnapshot(hosts, metadata=origin(plan, transport.name))
    # All that was reported is freed before what stays is made among it.
    snapshot, facts = _probed(hosts, plan, transport, conduct or Conduct(), infer)
    for fact in facts.values():
        fact.pop("type", None)
    metadata = {
        **origin(plan, transport.name),
        **snapshot.metadata,
        "agents": {snapshot.names[i]: fact for i, fact in facts.items()},
        "seconds": time.monotonic() - begin,
    }
    return replace(snapshot, metadata=metadata)


def _probed(
    hosts: tuple[Host, ...],
    plan: ProbePlan,
    transport: RemoteShell,
    conduct: Conduct,
    infer: Inference | None,
) -> tuple[NetworkSnapshot, dict[int, Frame]]:
    """Return what agents measured as planned, and what each said of its host."""
    results, resume = Results(plan, conduct.progress), conduct.resume
    first = plan.led() if resume else plan.beginning() if infer else plan
    with (
        spooling(conduct.spool, hosts, plan, results, resume),
        transport.starts(hosts) as starts,
        Agents(starts) as agents,
    ):
        if infer:
            agents.begin()
            preload()
        facts = prepare(agents, hosts, first, conduct.force)
        usage = _measure(agents, first, results)
        need_two(agents)
        stall = not resume and first != plan and _stalls(hosts, agents, plan, results)
        spared_s = _go_on(agents, plan, results, first.count, stall)
        need_two(agents)
        plan = replace(plan, sure_s=plan.sure_s + spared_s)
        snapshot = _refine(hosts, agents, plan, results, infer)
    return snapshot, {i: fact | usage.get(i, {}) for i, fact in facts.items()}


def _refine(
    hosts: tuple[Host, ...],
    agents: Agents,
    plan: ProbePlan,
    results: Results,
    infer: Inference | None,
) -> NetworkSnapshot:
    """Measure what the plan's rounds turned out to need; return all results."""
    repeated = _repeat_starved(agents, plan, results)
    need_two(agents)
    snapshot = _snapshot(hosts, agents, results)
    notes: dict[str, Any] = {
        "starved": {"meetings": len(results.starved), "repeated": repeated}
    }
    first, fabric, pace = plan.count + repeated, None, 0
    count = first
    if infer and plan.sure_s:
        if usual := usual_pace(snapshot) if _again_fits(plan) else 0:
            plan, pace, count = _find_pace(agents, plan, results, usual, first)
        snapshot, fabric, more = _until_sure(
            hosts, agents, plan, results, (snapshot, count), infer, pace
        )
        count += more
        notes["sure"] = {"first": first, "rounds": count - first}
        if pace:
            notes["pace"] = pace
    elif infer and plan.uplink_s:
        fabric = infer(snapshot)
    if fabric and plan.uplink_s:
        found = find_uplinks(fabric, snapshot.names)
        escalation = Escalation(found, plan, count)
        notes["uplinks"] = _load_uplinks(agents, plan, results, escalation, pace)
        need_two(agents)
        snapshot, fabric = _snapshot(hosts, agents, results), None
    metadata = {**snapshot.metadata, **notes, "sent_bytes": results.sent}
    return replace(snapshot, metadata=metadata, fabric=fabric)


def _until_sure(
    hosts: tuple[Host, ...],
    agents: Agents,
    plan: ProbePlan,
    results: Results,
    known: tuple[NetworkSnapshot, int],
    infer: Inference,
    pace: int,
) -> tuple[NetworkSnapshot, Fabric, int]:
    """Load some pairs again until the groups are sure, or the plan's time is spent.

    Then hosts meet inside their groups, for what their cards carry. `known` are all
    results so far, and the number of the next round. With a `pace` in bytes/s, all
    pairs are loaded at it first. Returns all results, the groups in them, and how many
    rounds that took.
    """
    snapshot, first = known
    # What stalled is measured again before anybody looks for groups in it.
    if not pace:
        fabric = infer(snapshot)
    deadline, turn, count = time.monotonic() + plan.sure_s, 0, 0
    within, opposed, spent = False, False, 0.0
    tried: set[tuple[int, int]] = set()

    def load(
        rounds: Sequence[Round], groups: Fabric | None = None
    ) -> tuple[NetworkSnapshot, Fabric]:
        nonlocal spent
        spent += _run(agents, plan, results, rounds, pace=pace)
        need_two(agents)
        found = _snapshot(hosts, agents, results)
        if groups and found.failed == snapshot.failed:
            return found, with_rates_of(found, groups)
        return found, infer(found)

    if pace:
        turn, dead = 1, _dead(agents, plan)
        rounds = plan.once_more(turn, first, _again_s(plan), dead)
        count = len(rounds)
        snapshot, fabric = load(rounds)
    while not math.isnan(fabric.confidence):  # more would not tell
        left = deadline - time.monotonic() - plan.lead_s
        seconds, names = left - RESERVED_S, snapshot.names
        dead, number, groups = _dead(agents, plan), first + count, None
        pairs = untested(snapshot.flows, fabric, names)
        pairs = [pair for pair in pairs if pair not in tried]
        rounds = lone_rounds(plan, pairs, fabric, names, number, dead)
        rounds = rounds[: max(0, int(left / plan.length("duplex")))]
        tried.update(pairs)
        if not rounds and not opposed and len(fabric.root.children) == len(names):
            opposed = True
            line = in_line(measured(snapshot))
            rounds = opposed_rounds(plan, line, number, seconds, dead)
        if not rounds and fabric.confidence < SURE:
            rounds = telling_rounds(plan, fabric, names, number, seconds, dead)
            if not rounds:
                turn += 1
                rounds = plan.once_more(turn, number, seconds, dead)
        if not rounds and not within:
            within = True
            # However long it took to tell what the groups are.
            left = plan.sure_s - spent - plan.lead_s
            rounds = inner_rounds(plan, fabric, names, number, left, dead)
            # Who shares a link is not asked again: these rounds say nothing of that.
            groups = fabric
        if not rounds:
            break
        count += len(rounds)
        snapshot, fabric = load(rounds, groups)
    return snapshot, fabric, count


def _again_fits(plan: ProbePlan) -> bool:
    """Return whether enough pairs can be loaded again to forget what they were before.

    Of flows that stall more is known than too few pairs would tell at their own pace.
    """
    return _again_s(plan) / plan.length("duplex") >= COVERED * (plan.hosts - 1)


def _again_s(plan: ProbePlan) -> float:
    """Return the seconds for loading all pairs again; others are kept for the end."""
    return plan.sure_s - plan.lead_s - RESERVED_S


def _snapshot(
    hosts: tuple[Host, ...], agents: Agents, results: Results
) -> NetworkSnapshot:
    """Return what has been measured so far, with who failed and what went wrong."""
    names = [host.name for host in hosts]
    failed = {i: a.failed for i, a in enumerate(agents.agents) if a.failed}
    rtt = results.rtt(failed.keys())
    if not len(rtt.seconds):
        busy = f", or their CPUs were busy: {len(results.starved)} meetings began late"
        raise UnusableError(
            f"agents ran on {len(hosts) - len(failed)} hosts but not one packet got "
            "from one to another: let their ephemeral UDP and TCP ports through the "
            f"firewall or security group{busy if results.starved else ''}"
        )
    return NetworkSnapshot(
        hosts,
        rtt=rtt,
        flows=results.flows(failed.keys()),
        failed={names[i]: reason for i, reason in failed.items()},
        metadata={"troubles": results.messages(names)},
    )


def _go_on(
    agents: Agents, plan: ProbePlan, results: Results, first: int, stall: bool
) -> float:
    """Let the agents do what is left of the plan's rounds, from number `first` on.

    Where flows `stall`, those under load would tell nothing: returns the seconds that
    are spared.
    """
    missing = {slot: who for slot, who in results.missing.items() if slot >= first}
    spared_s = 0.0
    for rounds in rounds_left(plan, missing):
        if stall and rounds[0].kind != "rtt":
            results.spare(rounds)
            spared_s += len(rounds) * plan.length(rounds[0].kind)
        else:
            _run(agents, plan, results, rounds)
    return spared_s


def _stalls(
    hosts: tuple[Host, ...], agents: Agents, plan: ProbePlan, results: Results
) -> bool:
    """Return whether flows stall so much that they are to be paced, if that fits."""
    if not _again_fits(plan):
        return False
    return usual_pace(_snapshot(hosts, agents, results)) > 0


def _find_pace(
    agents: Agents, plan: ProbePlan, results: Results, usual: int, first: int
) -> tuple[ProbePlan, int, int]:
    """Try some paces in rounds from number `first` on, as far as there is time for it.

    Returns the plan with the time that is left, the pace in bytes/s, and the number of
    the next round.
    """
    number, turns = first, itertools.count(1)
    trial_s = TRIED_ROUNDS * plan.length("duplex")
    left_s = plan.sure_s - TRIES * (plan.lead_s + trial_s)
    if not _again_fits(replace(plan, sure_s=left_s)):
        return plan, usual, first

    def gets_through(pace: int) -> bool:
        nonlocal number
        begin, dead = number, _dead(agents, plan)
        rounds = plan.once_more(next(turns), begin, trial_s, dead)
        _run(agents, plan, results, rounds, pace=pace, trial=True)
        need_two(agents)
        number += len(rounds)
        return through(results.flows(dead), begin, pace)

    pace = highest_pace(usual, gets_through)
    return replace(plan, sure_s=left_s), pace, number


def _measure(agents: Agents, plan: ProbePlan, results: Results) -> dict[int, Frame]:
    """Let the agents go all at once; return their ``done`` frames."""
    start = time.monotonic() + plan.lead_s
    for position in agents.alive:
        agents.send(position, "go", after_s=max(0.0, start - time.monotonic()))
    return _collect(agents, results, start + plan.seconds)


def _repeat_starved(agents: Agents, plan: ProbePlan, results: Results) -> int:
    """Repeat what starved hosts measured; return how many rounds that took."""
    count, left = 0, plan.repeat_s
    for _ in range(REPEATS):
        dead = _dead(agents, plan)
        first, pairs = plan.count + count, results.starved_pairs(dead)
        trips = repeat_trips(plan, pairs, first, left - plan.lead_s)
        left -= _run(agents, plan, results, trips)
        loads = results.starved_loads(dead)
        first += len(trips)
        again = repeat_loads(plan, loads, dead, first, left - plan.lead_s)
        left -= _run(agents, plan, results, again, loads)
        count += len(trips) + len(again)
    return count


def _load_uplinks(
    agents: Agents,
    plan: ProbePlan,
    results: Results,
    escalation: Escalation,
    pace: int,
) -> dict[str, Any]:
    """Load uplinks until each is full; return how that went, for the metadata."""
    while rounds := escalation.turn(_dead(agents, plan)):
        _run(agents, plan, results, rounds, pace=pace)
        starved = {number for _, number, _ in results.starved}
        escalation.learn(results.flows(_dead(agents, plan)), starved)
    done = {"rounds": escalation.rounds, "complete": escalation.complete}
    return {"first": escalation.first, **done}


def _run(
    agents: Agents,
    plan: ProbePlan,
    results: Results,
    rounds: Sequence[Round],
    repeated: Sequence[Round] = (),
    *,
    pace: int = 0,
    trial: bool = False,
) -> float:
    """Let the agents meet in rounds of one kind; return the seconds planned for it.

    Once a `pace` was found in a `trial` or more, only paced rounds count.
    """
    if not rounds:
        return 0.0
    results.expect(rounds, repeated, paced=pace > 0 and not trial)
    start = time.monotonic() + plan.lead_s
    for position in agents.alive:
        agents.send(
            position,
            "rounds",
            kind=rounds[0].kind,
            after_s=max(0.0, start - time.monotonic()),
            first=rounds[0].number,
            meetings=meetings_of(rounds, position, pace),
        )
    length = rounds[-1].start + plan.length(rounds[0].kind)
    _collect(agents, results, start + length)
    return plan.lead_s + length


def _collect(agents: Agents, results: Results, end: float) -> dict[int, Frame]:
    """Take reports until all agents are done, which they are to be by `end`."""
    seconds = end - time.monotonic() + GRACE_SECONDS
    done = agents.collect("done", seconds, results.add)
    results.sent += sum(frame["sent"] for frame in done.values())
    return done


def _dead(agents: Agents, plan: ProbePlan) -> set[int]:
    return set(range(plan.hosts)).difference(agents.alive)


def meetings_of(
    rounds: Iterable[Round], position: int, pace: int = 0
) -> list[tuple[int, int, bool, int]]:
    """Return a host's part of some rounds as a ``rounds`` frame has it."""
    found = []
    for turn, slot in enumerate(rounds):
        for src, dst in slot.pairs:
            if position == src:
                found.append((turn, dst, True, pace))
            elif position == dst and slot.kind != "duplex":
                # A pair that sends both ways is there twice, but meets once.
                found.append((turn, src, False, 0))
    return found
