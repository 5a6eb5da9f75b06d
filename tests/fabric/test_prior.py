"""Labels beside few measurements: they fill in, and never overrule."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.fabric.infer import infer_fabric
from cloudcoll.fabric.prior import GROUP, informed, label_groups, label_numbers
from cloudcoll.fabric.synth import observe, racks
from cloudcoll.fabric.tree import Fabric
from cloudcoll.hosts import Host
from cloudcoll.samples import RttSamples
from cloudcoll.snapshot import NetworkSnapshot

SIZES = (16,) * 8
ROUND_TRIPS_EACH = 20
KEPT = 0.25
"""Share of the pairs measured, as with labels at this number of hosts."""


def truth(fabric: Fabric) -> dict[str, str]:
    """Return each host's planted rack."""
    return {host: rack.name for rack in fabric.groups()[0] for host in rack.leaves()}


def labelled(snapshot: NetworkSnapshot, said: Mapping[str, str]) -> NetworkSnapshot:
    hosts = tuple(
        Host(name, labels={GROUP: said[name]} if name in said else {})
        for name in snapshot.names
    )
    return dataclasses.replace(snapshot, hosts=hosts)


def sparse(fabric: Fabric, seed: int, share: float = KEPT) -> NetworkSnapshot:
    """Return what a probe sees that takes the latency of some of the pairs."""
    whole = observe(fabric, samples=ROUND_TRIPS_EACH, noise=0.25, seed=seed)
    rtt = whole.rtt
    keep = np.random.default_rng(seed).random(len(rtt.src)) < share
    left = RttSamples(
        rtt.src[keep],
        rtt.dst[keep],
        rtt.sent[keep],
        np.arange(1, keep.sum() + 1) * ROUND_TRIPS_EACH,
        rtt.seconds[np.repeat(keep, ROUND_TRIPS_EACH)],
    )
    return dataclasses.replace(whole, rtt=left)


def bottom(fabric: Fabric) -> set[frozenset[str]]:
    return {frozenset(node.leaves()) for node in fabric.groups()[0]}


def swapped(said: Mapping[str, str], *pairs: tuple[str, str]) -> dict[str, str]:
    """Return labels in which the two hosts of each pair have each other's."""
    wrong = dict(said)
    for a, b in pairs:
        wrong[a], wrong[b] = said[b], said[a]
    return wrong


def test_labels_find_racks_that_few_pairs_do_not() -> None:
    """Tests that labels make exact what a sparse probe alone gets wrong."""
    alone = 0
    for seed in range(5):
        planted = racks(SIZES, seed=seed)
        seen = sparse(planted, seed, share=0.12)
        fabric = infer_fabric(labelled(seen, truth(planted)))
        assert bottom(fabric) == bottom(planted)
        assert fabric.warnings == ()
        alone += bottom(infer_fabric(seen)) == bottom(planted)
    assert alone < 5


def test_a_wrong_label_is_overruled_and_named() -> None:
    """Tests racks exact all the same, and a line with host, label and group."""
    for seed in range(5):
        planted = racks(SIZES, seed=seed)
        said = truth(planted)
        a, b = planted.hosts[3], planted.hosts[50]
        fabric = infer_fabric(labelled(sparse(planted, seed), swapped(said, (a, b))))
        assert bottom(fabric) == bottom(planted)
        group = {
            host: node.name for node in fabric.groups()[0] for host in node.leaves()
        }
        starts = {
            f"labels put {host} in {said[other]}, measured it stands in group "
            f"{group[host]} with "
            for host, other in ((a, b), (b, a))
        }
        assert {
            line.partition("with ")[0] + "with " for line in fabric.warnings
        } == starts


def test_labels_that_mean_nothing_change_nothing() -> None:
    """Tests that shuffled labels leave the fabric that measurements give."""
    for seed in range(5):
        planted = racks(SIZES, seed=seed)
        said = truth(planted)
        shuffled = np.random.default_rng(seed).permutation(list(said.values()))
        seen = sparse(planted, seed)
        wrong = dict(zip(said, shuffled.tolist(), strict=True))
        fabric = infer_fabric(labelled(seen, wrong))
        assert bottom(fabric) == bottom(infer_fabric(seen))
        assert fabric.warnings[-1].endswith("more hosts disagree: probe without labels")


def test_a_late_host_keeps_its_label() -> None:
    """Tests that a delay on all of a host's round trips is filled in as well."""
    planted = racks(SIZES, seed=1)
    trips = planted.links().pair_rtt()
    np.fill_diagonal(trips, math.nan)
    labels = np.repeat(np.arange(8), 16)
    trips[5] += 400e-6
    trips[:, 5] += 400e-6
    keep = np.triu(np.random.default_rng(1).random(trips.shape) < KEPT, 1)
    some = np.where(keep | keep.T, trips, math.nan)
    filled = informed(some, labels)
    gaps = np.isnan(some) & ~np.eye(len(some), dtype=bool)
    assert filled[gaps] == pytest.approx(trips[gaps])


@pytest.mark.parametrize("wrong", [False, True])
def test_labels_show_racks_that_latency_does_not(wrong: bool) -> None:
    """Tests one round trip everywhere, and too few loaded rounds to find groups."""
    planted = racks((8, 8, 8), rtt=200e-6, rack_rtt=200e-6, seed=2)
    said = truth(planted)
    a, b = planted.hosts[2], planted.hosts[12]
    seen = observe(planted, rounds=3, noise=0.05, seed=3)
    labels = swapped(said, (a, b)) if wrong else said
    assert len(infer_fabric(seen).groups()) == 1
    fabric = infer_fabric(labelled(seen, labels))
    moved = {a, b} if wrong else set()
    kept = {rack - moved for rack in bottom(planted)}
    assert bottom(fabric) == kept


def test_hosts_without_labels_are_left_to_the_measurement() -> None:
    """Tests which hosts count as labelled, and that the rest fills nothing in."""
    hosts = [Host("a", labels={GROUP: "x"}), Host("b"), Host("c", labels={GROUP: "x"})]
    hosts.append(Host("d", labels={GROUP: "alone"}))
    assert label_groups(hosts) == [("x", frozenset({"a", "c"}))]
    assert label_numbers(hosts).tolist() == [0, -1, 0, -1]
    assert label_numbers([]).tolist() == []
    unknown = np.full((4, 4), math.nan)
    assert np.isnan(informed(unknown, label_numbers(hosts))).all()


@given(
    st.integers(2, 9).flatmap(
        lambda hosts: st.tuples(
            st.lists(st.integers(-1, 3), min_size=hosts, max_size=hosts),
            st.lists(
                st.none() | st.floats(1e-6, 1.0),
                min_size=hosts * hosts,
                max_size=hosts * hosts,
            ),
        )
    )
)
def test_what_was_measured_is_never_changed(
    drawn: tuple[list[int], list[float | None]],
) -> None:
    """Tests any labels and any round trips: only gaps are filled, alike both ways."""
    labels, figures = drawn
    trips = np.array(figures, dtype=np.float64).reshape(len(labels), -1)
    trips = np.fmin(trips, trips.T)
    np.fill_diagonal(trips, math.nan)
    filled = informed(trips, np.array(labels))
    known = np.isfinite(trips)
    assert (filled[known] == trips[known]).all()
    assert np.array_equal(filled, filled.T, equal_nan=True)
