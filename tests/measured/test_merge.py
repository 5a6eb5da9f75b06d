from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.infer import infer_fabric
from cloudcoll.measured import synth
from cloudcoll.measured.merge import Split, merge_snapshots, split
from cloudcoll.measured.samples import middle
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot

FABRIC = synth.racks((4, 3), seed=1)


def repeats(count: int, rounds: int = 3) -> list[NetworkSnapshot]:
    """Observe one planted network several times, an hour apart."""
    return [
        dataclasses.replace(
            synth.observe(FABRIC, seed=seed, rounds=rounds),
            created=1e9 + 3600.0 * seed,
            digest=f"{seed:064d}",
        )
        for seed in range(count)
    ]


def disturbed(snapshot: NetworkSnapshot, src: int, dst: int) -> NetworkSnapshot:
    """Make one pair's round trips ten times as long."""
    pair = int(np.flatnonzero((snapshot.rtt.src == src) & (snapshot.rtt.dst == dst))[0])
    seconds = snapshot.rtt.seconds.copy()
    seconds[snapshot.rtt.ends[pair - 1] : snapshot.rtt.ends[pair]] *= 10.0
    return dataclasses.replace(
        snapshot, rtt=dataclasses.replace(snapshot.rtt, seconds=seconds)
    )


def reordered(snapshot: NetworkSnapshot, order: Sequence[int]) -> NetworkSnapshot:
    """Return the same measurements with the hosts listed in another order."""
    place = np.argsort(order)
    parts: dict[str, Any] = {
        name: dataclasses.replace(part, src=place[part.src], dst=place[part.dst])
        for name, part in (("rtt", snapshot.rtt), ("flows", snapshot.flows))
    }
    hosts = tuple(snapshot.hosts[i] for i in order)
    return dataclasses.replace(snapshot, hosts=hosts, **parts)


def test_every_raw_sample_is_kept() -> None:
    """Tests that pairs, samples and windows of all parts are there, rounds apart."""
    parts = repeats(3)
    merged = merge_snapshots(parts)
    joined = np.concatenate([part.rtt.seconds for part in parts])
    assert np.array_equal(merged.rtt.seconds, joined)
    assert len(merged.rtt.src) == sum(len(part.rtt.src) for part in parts)
    rates = np.concatenate([part.flows.bytes_per_s for part in parts])
    assert np.array_equal(merged.flows.bytes_per_s, rates)
    assert set(merged.flows.round.tolist()) == set(range(9))
    assert merged.created == parts[-1].created


def test_a_disturbed_repeat_does_not_count() -> None:
    """Tests that the constant part is the median, and the rest names its cause."""
    first, second, third = repeats(3)
    merged = merge_snapshots([first, disturbed(second, 1, 4), third])
    calm = np.median([s.latency.values[1, 4] for s in (first, second, third)])
    assert merged.latency.values[1, 4] == pytest.approx(calm, rel=0.2)
    parts = split(merged.latency_repeats)
    assert parts.largest == (1, 1, 4)
    assert parts.share > split(merge_snapshots(repeats(3)).latency_repeats).share


def test_the_share_of_the_transient_part() -> None:
    """Tests 1 + 1.5 + 0.5 of 2 + 4 + 2 seconds, where a pair was measured once."""
    none = math.nan
    constant = np.array([[none, 2.0], [4.0, none]])
    transient = np.array(
        [[[none, 1.0], [-1.5, none]], [[none, -0.5], [none, none]]],
    )
    parts = Split(constant, transient)
    assert parts.share == 0.375
    assert parts.largest == (0, 1, 0)
    never = Split(np.full((2, 2), none), np.full((2, 2, 2), none))
    assert math.isnan(never.share)
    assert never.largest is None


def test_the_order_of_hosts_and_snapshots_does_not_matter() -> None:
    """Tests that positions follow the names, and repeats the clock."""
    parts = repeats(3)
    plain = merge_snapshots(parts)
    turned = reordered(parts[2], [3, 6, 0, 2, 5, 1, 4])
    mixed = merge_snapshots([parts[0], turned, parts[1]])
    assert mixed.names == plain.names
    assert np.array_equal(mixed.latency_repeats, plain.latency_repeats, equal_nan=True)
    assert np.array_equal(
        mixed.bandwidth.values, plain.bandwidth.values, equal_nan=True
    )


def test_merging_step_by_step_is_merging_at_once() -> None:
    """Tests that a merged snapshot can be merged again, its repeats kept."""
    parts = repeats(3)
    once = merge_snapshots(parts)
    again = merge_snapshots([merge_snapshots(parts[:2]), parts[2]])
    assert again.metadata == once.metadata
    assert np.array_equal(again.latency_repeats, once.latency_repeats, equal_nan=True)


def test_a_merged_snapshot_survives_its_file(tmp_path: Path) -> None:
    """Tests that repeats are read back, and that racks are found in them."""
    merged = merge_snapshots(repeats(3))
    path = tmp_path / "merged.snap"
    merged.with_fabric(infer_fabric(merged)).save(path)
    loaded = load_snapshot(path)
    assert np.array_equal(
        loaded.latency_repeats, merged.latency_repeats, equal_nan=True
    )
    assert loaded.fabric is not None
    assert sorted(len(group.children) for group in loaded.fabric.groups()[0]) == [3, 4]


def test_loss_counts_all_requests() -> None:
    """Tests that lost requests of all repeats are pooled."""
    first, second = repeats(2)
    sent = dataclasses.replace(second.rtt, sent=second.rtt.sent + 20)
    merged = merge_snapshots([first, dataclasses.replace(second, rtt=sent)])
    assert merged.loss[0, 1] == pytest.approx(20 / 60)


def test_a_host_that_came_back_has_not_failed() -> None:
    """Tests that only hosts that always failed count as failed."""
    first, second = repeats(2)
    first = dataclasses.replace(first, failed={"vm-1": "ssh: refused", "vm-2": "down"})
    second = dataclasses.replace(second, failed={"vm-2": "timed out"})
    assert merge_snapshots([first, second]).failed == {"vm-2": "timed out"}


def test_facts_of_hosts_are_the_latest_of_each() -> None:
    """Tests that a host that the last probe did not reach keeps what it said."""
    facts = [{"a": {"load": 1}, "b": {"load": 2}}, {"b": {"load": 3}}]
    parts = [
        dataclasses.replace(part, metadata={**part.metadata, "agents": fact})
        for part, fact in zip(repeats(2), facts, strict=True)
    ]
    told = merge_snapshots(parts).metadata["agents"]
    assert told == {"a": {"load": 1}, "b": {"load": 3}}


def _other(snapshot: NetworkSnapshot, what: str) -> NetworkSnapshot:
    first, *rest = snapshot.hosts
    booted = {
        "origin": "synthetic",
        "agents": {"vm-1": {"boot_id": "b" if what == "boot" else "a"}},
    }
    changed: dict[str, dict[str, Any]] = {
        "hosts": {"hosts": (Host("vm-9"), *rest)},
        "origin": {"metadata": {}},
        "transport": {"metadata": {"origin": "synthetic", "transport": "mpi"}},
        "window": {"flows": dataclasses.replace(snapshot.flows, window_s=0.1)},
        "ramp": {"flows": dataclasses.replace(snapshot.flows, ramp_up=3)},
        "address": {"hosts": (Host(first.name, "10.0.0.9"), *rest)},
        "boot": {"metadata": booted},
        "none": {"metadata": booted},
    }
    return dataclasses.replace(snapshot, **changed[what])


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("hosts", "host set is 7 hosts with vm-1 in the first and 7 hosts with vm-9"),
        ("transport", "transport is None in the first and mpi in the other"),
        ("origin", "origin is synthetic in the first and measured in the other"),
        ("window", r"window length \(s\) is 0.025 in the first and 0.1 in the other"),
        ("ramp", r"ramp-up \(windows\) is 2 in the first and 3 in the other"),
        ("address", "address of vm-1 is vm-1 in the first and 10.0.0.9 in the other"),
        ("boot", "boot id of vm-1 is a in the first and b in the other"),
    ],
)
def test_incomparable_snapshots_are_refused(what: str, message: str) -> None:
    """Tests that the key and both values are named."""
    first, second = repeats(2)
    if what == "boot":
        first = _other(first, "none")
    with pytest.raises(UsageError, match=message):
        merge_snapshots([first, _other(second, what)])


def test_snapshots_that_are_refused_are_named() -> None:
    """Tests that one that was saved is called by what `show` prints of its digest."""
    first, second = repeats(2)
    first = dataclasses.replace(first, digest="0123456789abcdef" * 4)
    second = dataclasses.replace(_other(second, "hosts"), digest="")
    with pytest.raises(UsageError, match=r"0123456789ab and \(not saved\): host set"):
        merge_snapshots([first, second])


def test_the_same_snapshot_twice_is_no_repeat() -> None:
    """Tests that one file given twice is refused, merged or not."""
    first, second = repeats(2)
    with pytest.raises(UsageError, match="given twice"):
        merge_snapshots([first, merge_snapshots([first, second])])
    with pytest.raises(UsageError, match="two or more"):
        merge_snapshots([first])


@given(
    st.lists(
        st.lists(st.floats(0.0, 1e9) | st.just(math.nan), min_size=6, max_size=6),
        min_size=1,
        max_size=7,
    )
)
def test_the_middle_is_the_median_of_what_was_measured(rows: list[list[float]]) -> None:
    """Tests `middle` against the plain definition, and that parts add up."""
    values = np.array(rows).reshape(-1, 2, 3)
    found = middle(values)
    for place in np.ndindex(2, 3):
        column = values[(slice(None), *place)]
        known = column[np.isfinite(column)]
        expected = np.median(known) if len(known) else math.nan
        np.testing.assert_equal(found[place], expected)
    parts = split(values)
    whole = parts.constant + parts.transient
    np.testing.assert_allclose(whole, values, atol=1e-6)


def test_paced_transfers_count_alone() -> None:
    """Tests that of snapshots those are kept that were paced, in any order."""
    usual, other = repeats(2)
    paced = dataclasses.replace(
        other, flows=dataclasses.replace(other.flows, paced=True)
    )
    for parts in ([usual, paced], [paced, usual]):
        merged = merge_snapshots(parts)
        assert merged.flows.paced
        assert merged.flows.window_bytes.tolist() == other.flows.window_bytes.tolist()
        assert merged.flows.src.tolist() == other.flows.src.tolist()
