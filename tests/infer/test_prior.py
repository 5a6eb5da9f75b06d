"""Labels beside few measurements: they fill in, and never overrule."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.hosts import Host
from cloudcoll.infer import infer_fabric
from cloudcoll.infer.holdout import Figures
from cloudcoll.infer.prior import (
    GROUP,
    _believed,
    _contrasts,
    _medians,
    disagreements,
    informed,
    label_groups,
    label_numbers,
    with_labels_for,
)
from cloudcoll.measured.samples import RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.network.tree import Fabric, Node

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
    trips = planted.links.pair_rtt()
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


@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_medians_of_blocks(hosts: int, seed: int) -> None:
    """Tests each block against NumPy; neither the diagonal nor what is NaN counts."""
    draw = np.random.default_rng(seed)
    values = draw.integers(0, 9, (hosts, hosts)).astype(float)
    values[draw.random(values.shape) < 0.3] = math.nan
    rows, columns = draw.integers(-1, 3, hosts), draw.integers(-1, 2, hosts)
    found = _medians(values, rows, columns, (3, 2))
    np.fill_diagonal(values, math.nan)
    for row in range(3):
        for column in range(2):
            block = values[rows == row][:, columns == column]
            told = block[np.isfinite(block)]
            expected = np.median(told) if len(told) else math.nan
            assert np.array_equal(found[row, column], expected, equal_nan=True)


def test_by_how_much_a_group_is_the_nearest() -> None:
    """Tests the next one of each, by hand: of the nearest it is the second."""
    near = np.array([[1.0, 3.0, math.nan], [5.0, 2.0, 4.0], [math.nan, 7.0, math.nan]])
    expected = np.array([[2.0, -2.0, math.nan], [-3.0, 2.0, -2.0], [math.nan] * 3])
    assert np.array_equal(_contrasts(near), expected, equal_nan=True)


@pytest.mark.parametrize(
    ("own", "other", "label"),
    [(2.0, 10.0, 0), (6.0, 10.0, 0), (6.5, 10.0, -1), (9.0, 5.0, -1)],
)
def test_half_of_what_is_usual_bears_a_label_out(
    own: float, other: float, label: int
) -> None:
    """Tests a host's round trips to its group and to another, by hand.

    Two groups 2 wide and 10 apart: their hosts are nearer to their own by 8.
    """
    labels = np.repeat([0, 1], 5)
    trips = np.where(labels[:, None] == labels, 2.0, 10.0)
    trips[0] = trips[:, 0] = np.where(labels == 0, own, other)
    np.fill_diagonal(trips, math.nan)
    assert _believed(trips, labels, 2).tolist() == [label, *labels[1:].tolist()]


def two_racks(first: str, second: str) -> Fabric:
    racks_ = [Node(n, tuple(map(Node, h))) for n, h in (("1", first), ("2", second))]
    return Fabric(Node("core", tuple(racks_)))


@pytest.mark.parametrize(
    ("labels", "lines"),
    [
        ({"x": "abc", "y": "def"}, []),
        # Finer and coarser labels do not disagree.
        ({"x": "ab", "y": "de"}, []),
        ({"x": "abcdef"}, []),
        (
            {"x": "abd", "y": "cef"},
            [
                "d in x, it stands in group 2 with e",
                "c in y, it stands in group 1 with a",
            ],
        ),
        # No group has most of it: all that stand with others are named.
        (
            {"x": "ad", "y": "bcef"},
            [
                "a in x, it stands in group 1 with b",
                "d in x, it stands in group 2 with e",
                "b in y, it stands in group 1 with a",
                "3 more hosts disagree",
            ],
        ),
    ],
)
def test_who_stands_elsewhere(labels: dict[str, str], lines: list[str]) -> None:
    """Tests labels that are finer, coarser or crossed with what was measured."""
    said = [(name, frozenset(hosts)) for name, hosts in labels.items()]
    found = disagreements(two_racks("abc", "def"), said)
    short = [
        line.removeprefix("labels put ")
        .replace("measured it", "it")
        .replace(": the measurement is kept", "")
        .replace(": probe without labels", "")
        for line in found
    ]
    assert short == lines


def test_labels_of_nobody_say_nothing() -> None:
    """Tests that a fabric without labels has no line."""
    assert disagreements(two_racks("abc", "def"), []) == []


def answer(labels: list[int], rates: dict[tuple[int, int], float]) -> object:
    """Return the groups among hosts of these labels, given rates that some sent at."""
    hosts = len(labels)
    src, dst = np.array(list(rates)).T
    seen = Figures(
        names=tuple(map(str, range(hosts))),
        rtt=np.full((hosts, hosts), math.nan),
        round=np.arange(len(rates)),
        src=src,
        dst=dst,
        rate=np.array(list(rates.values())),
    )
    split = with_labels_for(
        lambda items, likely: None, seen, np.arange(hosts), np.array(labels)
    )
    # Inside of a group they have no say.
    assert split(list(range(1, hosts)), None) is None
    return split(list(range(hosts)), None)


def test_labels_answer_where_few_pairs_were_loaded() -> None:
    """Tests less than a third of the ways, and just a third, of six hosts."""
    labels = [0, 0, 0, 1, 1, -1]
    some = dict.fromkeys([(0, 1), (2, 0), (3, 4), (5, 3)], 100.0)
    assert answer(labels, some) == [[0, 1, 2], [3, 4], [5]]
    assert answer(labels, {**some, (1, 2): 100.0}) is None
    assert answer([0] * 6, some) is None
    assert answer([-1] * 6, some) is None


@pytest.mark.parametrize(
    ("inside", "stays"), [(100.0, True), (75.0, True), (73.0, False), (20.0, False)]
)
def test_a_host_that_is_held_back_in_its_group_leaves_it(
    inside: float, stays: bool
) -> None:
    """Tests the one transfer that it had there, at 1.35 times less than elsewhere."""
    labels = [0, 0, 0, 0, 1, 1, 1, 1]
    rates = dict.fromkeys([(0, 1), (0, 2), (4, 5), (6, 7), (3, 7)], 100.0)
    found = answer(labels, {**rates, (0, 3): inside})
    kept = [[0, 1, 2, 3], [4, 5, 6, 7]] if stays else [[0, 1, 2], [4, 5, 6, 7], [3]]
    assert found == kept
