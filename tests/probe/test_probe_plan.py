from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.probe.plan import MODES, ProbePlan, plan_probes
from cloudcoll.units import seconds

sizes = st.integers(2, 130)
seeds = st.integers(0, 2**63 - 1)


def make_hosts(count: int) -> tuple[Host, ...]:
    return tuple(Host(f"vm-{i}") for i in range(count))


@given(sizes, seeds, st.integers(1, 70))
def test_every_pair_meets_once(count: int, seed: int, concurrency: int) -> None:
    """Tests that a full tournament has every pair exactly once."""
    plan = plan_probes(
        make_hosts(count), mode="standard", seed=seed, concurrency=concurrency
    )
    met = Counter(
        frozenset(pair)
        for slot in plan.rounds()
        if slot.kind == "rtt"
        for pair in slot.pairs
    )
    assert len(met) == count * (count - 1) // 2
    assert set(met.values()) == {1}


@given(sizes, seeds, st.integers(1, 70), st.sampled_from(["quick", "standard"]))
def test_rounds_are_disjoint(
    count: int, seed: int, concurrency: int, mode: str
) -> None:
    """Tests that no host meets two in a round, nor more pairs than allowed."""
    plan = plan_probes(make_hosts(count), mode=mode, seed=seed, concurrency=concurrency)
    for slot in plan.rounds():
        pairs = {frozenset(pair) for pair in slot.pairs}
        assert len(slot.pairs) == len(pairs) * (2 if slot.kind == "duplex" else 1)
        hosts = [host for pair in pairs for host in pair]
        assert len(set(hosts)) == len(hosts)
        assert all(0 <= host < count for host in hosts)
        assert slot.kind == "duplex" or len(slot.pairs) <= concurrency


@given(sizes, st.sampled_from(sorted(MODES)), st.integers(1, 70))
def test_rounds_follow_each_other(count: int, mode: str, concurrency: int) -> None:
    """Tests that rounds are numbered, start in order and end in `seconds`."""
    count = min(count, 24)  # a full probe has many rounds
    plan = plan_probes(make_hosts(count), mode=mode, concurrency=concurrency)
    rounds = list(plan.rounds())
    assert [slot.number for slot in rounds] == list(range(plan.count))
    starts = [slot.start for slot in rounds]
    assert starts == sorted(starts)
    tail = plan.load_s + plan.load_gap_s
    if rounds[-1].kind == "rtt":
        tail = plan.rtt_s + plan.rtt_gap_s
    assert plan.seconds == pytest.approx(starts[-1] + tail)


@given(st.integers(2, 130), seeds, st.booleans())
def test_quick_load_reaches_every_host(count: int, seed: int, duplex: bool) -> None:
    """Tests that in a quick probe each host sends under load and receives."""
    plan = plan_probes(make_hosts(count), seed=seed, duplex=duplex)
    pairs = [p for slot in plan.rounds() if slot.kind != "rtt" for p in slot.pairs]
    assert {src for src, _ in pairs} == set(range(count))
    assert {dst for _, dst in pairs} == set(range(count))


@pytest.mark.parametrize("load", ["load", "duplex"])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 16])
def test_full_goes_both_ways(count: int, load: str) -> None:
    """Tests that a full probe asks and loads every ordered pair."""
    ordered = {(a, b) for a in range(count) for b in range(count) if a != b}
    plan = plan_probes(make_hosts(count), mode="full", duplex=load == "duplex")
    for kind, times in (("rtt", 3), (load, 1)):
        met = Counter(p for s in plan.rounds() if s.kind == kind for p in s.pairs)
        assert met == dict.fromkeys(ordered, times)


def test_quick_samples_large_sets() -> None:
    """Tests that beyond `FULL_MESH` hosts a quick probe takes few rounds."""
    plan = plan_probes(make_hosts(1000))
    assert [rounds for kind, rounds, _ in plan.passes if kind == "rtt"] == [40]
    assert plan.seconds < 10


@given(st.integers(3, 32))
def test_quick_takes_latency_before_and_after_loads(count: int) -> None:
    """Tests that a moment's trouble never has all of a pair's round trips."""
    kinds = [slot.kind for slot in plan_probes(make_hosts(count)).rounds()]
    mesh = count - 1 + count % 2
    assert kinds.count("rtt") == 2 * mesh
    assert [kind for kind, _ in itertools.groupby(kinds)] == ["rtt", "duplex", "rtt"]


def test_as_many_round_trips_at_once_as_before_and_after() -> None:
    """Tests that those of many hosts, which are taken once, are not fewer."""
    few, many = (plan_probes(make_hosts(count)) for count in (32, 33))
    assert many.samples == 2 * few.samples
    assert many.rtt_s == pytest.approx(2 * few.rtt_s)


def test_plan_is_deterministic_by_seed() -> None:
    """Tests that a seed gives the same rounds and another seed others."""
    one, same, other = (plan_probes(make_hosts(9), seed=seed) for seed in (1, 1, 2))
    assert list(one.rounds()) == list(same.rounds())
    assert list(one.rounds()) != list(other.rounds())


@pytest.mark.parametrize("concurrency", [None, 64])
@pytest.mark.parametrize("mode", ["quick", "standard"])
def test_a_thousand_agents_are_no_herd(mode: str, concurrency: int | None) -> None:
    """Tests that no time has more than twice the mean of what begins in all."""
    plan = plan_probes(make_hosts(1000), mode=mode, concurrency=concurrency)
    for kind in ("rtt", "duplex"):
        begun = [len(slot.pairs) for slot in plan.rounds() if slot.kind == kind]
        assert max(begun) <= 2 * sum(begun) / len(begun)


def test_one_host_needs_no_round() -> None:
    """Tests that a single host is a valid plan without rounds."""
    plan = plan_probes(make_hosts(1))
    assert (list(plan.rounds()), plan.seconds, plan.bytes) == ([], 0.0, 0)


def test_bytes_bound_what_is_sent() -> None:
    """Tests that `bytes` counts each flow's limit and each ping's packets."""
    plan = replace(
        plan_probes(make_hosts(4)),
        passes=(("rtt", 3, False), ("load", 2, False), ("duplex", 1, False)),
        flow_bytes=1000,
        samples=10,
        ports=2,
        warm_up=1,
        sure_s=0.0,
        repeat_s=0.0,
    )
    assert plan.bytes == 2 * (3 * 12 * 2 * 64 + 2 * 1000 + 2 * 1000)


@pytest.mark.slow
@given(st.integers(1, 200), st.sampled_from(sorted(MODES)))
@example(2000, "standard")
def test_uplinks_have_a_budget(count: int, mode: str) -> None:
    """Tests that time and bytes for uplinks are bounded, and none in quick mode."""
    plan = plan_probes(make_hosts(count), mode=mode)
    assert (
        (plan.uplink_s > 0)
        == (plan.uplink_flows > 0)
        == (mode != "quick" and count > 3)
    )
    assert plan.uplink_s <= MODES[mode].uplink_s
    without = replace(plan, uplink_s=0.0, uplink_flows=0)
    assert plan.bytes - without.bytes == plan.uplink_flows * plan.flow_bytes
    assert list(plan.rounds()) == list(without.rounds())
    assert not {"sure_s", "uplink_s", "uplink_flows", "repeat_s"} & set(
        plan.parameters()
    )


@pytest.mark.parametrize(
    ("count", "mode", "most"),
    [
        (16, "quick", 15.0),
        (16, "standard", 35.0),
        (1000, "quick", 4.0),
        (1000, "standard", 90.0),
        (1000, "full", 600.0),
    ],
)
def test_modes_stay_within_their_time(count: int, mode: str, most: float) -> None:
    """Tests the time budgets, with uplinks and what may have to be repeated."""
    at_once = 2 if count == 16 else None
    plan = plan_probes(make_hosts(count), mode=mode, concurrency=at_once)
    parts = (plan.lead_s, plan.seconds, plan.repeat_s, plan.sure_s, plan.uplink_s)
    assert plan.most_seconds == pytest.approx(sum(parts))
    assert plan.most_seconds < most
    _, once, _ = plan.passes[0]
    assert once * plan.length("rtt") <= MODES[mode].mesh_s + 1e-9
    text = "\n".join(plan.describe())
    assert f"at most {seconds(plan.most_seconds)} and" in text
    rounds = int(plan.uplink_s / plan.length("load"))
    assert (f"up to {rounds} rounds that fill the uplinks" in text) == (rounds > 0)
    assert rounds or "fill the uplinks" not in text


def test_description_has_the_plans_numbers() -> None:
    """Tests that a dry run names hosts, rounds, seconds and bytes."""
    plan = plan_probes(make_hosts(16), concurrency=2)
    text = "\n".join(plan.describe())
    for part in ("16 hosts", "15 rounds", f"{plan.most_seconds:.1f} s", "GB"):
        assert part in text


def test_what_is_probably_sent() -> None:
    """Tests that it is what the flows' rate gives, and never more than the most."""
    plan = plan_probes(make_hosts(16), mode="standard", concurrency=2)
    flows = sum(2 * 8 * rounds for kind, rounds, _ in plan.passes if kind == "duplex")
    flows += plan.uplink_flows // 3
    slow = plan.likely_bytes(12.5e6)
    packets = plan.likely_bytes(0.0)
    assert slow - packets == flows * 12.5e6 * plan.load_s
    assert 0 < packets < 10e6
    assert plan.likely_bytes(1e12) < plan.bytes
    assert "679 GB moved" in plan.describe()[-1]
    many = plan_probes(make_hosts(1000), mode="standard")
    assert " and 34.9 TB moved" in many.describe()[-1]


@pytest.mark.parametrize(
    ("hosts", "options", "words"),
    [
        (0, {}, "no host"),
        (2, {"mode": "thorough"}, "quick, standard, full"),
        (2, {"seed": -1}, "seed -1"),
        (2, {"concurrency": 0}, "concurrency 0"),
    ],
)
def test_nonsense_is_refused(hosts: int, options: dict[str, str], words: str) -> None:
    """Tests that a plan that cannot be is an error that says why."""
    make: type[ProbePlan] = plan_probes  # type: ignore[assignment]
    with pytest.raises(UsageError, match=words):
        make(make_hosts(hosts), **options)  # type: ignore[arg-type]


def test_another_tournament_has_other_rounds() -> None:
    """Tests that all pairs meet once more, at other times; without failed hosts."""
    plan = plan_probes(make_hosts(8))
    first = [slot for slot in plan.rounds() if slot.kind != "rtt"]
    again = plan.once_more(1, 100, 60.0)
    assert [slot.number for slot in again] == list(range(100, 107))
    assert [slot.start for slot in again] == pytest.approx(
        [turn * plan.length("duplex") for turn in range(7)]
    )
    met = [{frozenset(pair) for pair in slot.pairs} for slot in again]
    assert set().union(*met) == {
        frozenset(pair) for pair in itertools.combinations(range(8), 2)
    }
    assert met != [{frozenset(pair) for pair in slot.pairs} for slot in first]
    assert len(plan.once_more(2, 0, 2.5 * plan.length("duplex"))) == 2
    assert not plan.once_more(2, 0, 0.1)
    without = plan.once_more(1, 0, 60.0, {3})
    assert not any(3 in pair for slot in without for pair in slot.pairs)


@pytest.mark.parametrize(
    ("hosts", "mode", "more"),
    [
        (2, "quick", False),
        (3, "quick", True),
        (32, "quick", True),
        (33, "quick", False),  # four rounds tell nothing
        (64, "standard", True),
        (65, "standard", False),
    ],
)
def test_more_rounds_where_they_tell(hosts: int, mode: str, more: bool) -> None:
    """Tests that time is planned where it is known how sure groups are."""
    plan = plan_probes(make_hosts(hosts), mode=mode)
    assert (plan.sure_s > 0) == more
    assert any("until it is sure" in line for line in plan.describe()) == more


@pytest.mark.parametrize(
    ("hosts", "times"), [(8, 1.0), (16, 1.0), (24, 23 / 15), (32, 31 / 15)]
)
def test_more_hosts_have_more_time(hosts: int, times: float) -> None:
    """Tests that all pairs can be loaded again as often as those of 16 hosts."""
    plan = plan_probes(make_hosts(hosts))
    assert plan.sure_s == pytest.approx(times * MODES["quick"].sure_s)
    assert len(plan.once_more(1, 0, plan.sure_s)) == hosts - 1
    # From 40 rounds on a standard probe loads no more, nor again.
    standard, most = MODES["standard"], plan_probes(make_hosts(64), mode="standard")
    assert most.sure_s == pytest.approx(40 / 15 * standard.sure_s)
