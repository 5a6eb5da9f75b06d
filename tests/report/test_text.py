from __future__ import annotations

import dataclasses
import json
import math
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import snapshots

from cloudcoll.hosts import Host
from cloudcoll.infer import infer_fabric
from cloudcoll.measured import synth
from cloudcoll.measured.merge import merge_snapshots
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.rankmap import RankMap
from cloudcoll.report.checks import check_snapshot, next_steps
from cloudcoll.report.findings import honest_fabric
from cloudcoll.report.heatmap import heatmap_lines
from cloudcoll.report.maps import map_lines
from cloudcoll.report.snapshot import groups_words, snapshot_json, snapshot_lines


def planted(*sizes: int) -> NetworkSnapshot:
    fabric = synth.racks(sizes, seed=2)
    snapshot = synth.observe(fabric, seed=3)
    return snapshot.with_fabric(infer_fabric(snapshot))


def test_show_names_every_group() -> None:
    """Tests that the tree has a line for the core and one for each rack."""
    snapshot = planted(5, 3, 2)
    lines = snapshot_lines(snapshot)
    assert sum(line.lstrip("├└─ ").startswith("group ") for line in lines) == 3
    assert any(line.startswith("core: 10 hosts") for line in lines)


def test_json_levels_go_from_the_leaves_up() -> None:
    """Tests that level 0 holds the racks and the last level the core."""
    snapshot = planted(5, 3, 2)
    levels = snapshot_json(snapshot)["levels"]
    assert sorted(len(group) for group in levels[0]["groups"]) == [2, 3, 5]
    assert sorted(levels[-1]["groups"][0]) == sorted(snapshot.names)
    assert levels[-1]["uplink_bytes_per_s"] == [None]
    assert levels[0]["rtt_s"][0] == pytest.approx(50e-6, rel=0.2)


def test_json_is_strict() -> None:
    """Tests that nothing not a number reaches the JSON."""
    # Six pairs: too few to keep one out of the fit.
    text = json.dumps(snapshot_json(planted(2, 2)), allow_nan=False)
    assert json.loads(text)["holdout_error"] is None


def test_a_map_that_keeps_the_order_says_so() -> None:
    """Tests the words for an order that stays."""
    kept = RankMap(("a", "b"), (1, 1), predicted={"cloudcoll": 1.0, "given": 1.0})
    assert "no gain expected: order kept" in map_lines(kept)


def test_an_assumed_map_shows_no_seconds() -> None:
    """Tests that a bet on labels is not shown as a measurement."""
    predicted = {"cloudcoll": 1.0, "given": 2.0}
    bet = RankMap(
        ("a", "b"), (1, 1), predicted=predicted, origin="search", assumption="a bet"
    )
    lines = map_lines(bet)
    assert "     given          -   2.00x assumed" in lines
    assert lines[-1] == "warning: a bet"


def test_lines_fit_a_terminal() -> None:
    """Tests that nothing is wider than 80 columns, warnings and long lists too."""
    snapshot = planted(30, 20, 5)
    snapshot = dataclasses.replace(
        snapshot, failed={f"gone-{i}": "ssh: connection refused" for i in range(9)}
    )
    snapshot = snapshot.with_fabric(infer_fabric(snapshot))
    lines = snapshot_lines(snapshot)
    assert max(map(len, lines)) <= 80
    assert any("and 14 more" in line for line in lines)


def test_a_dead_host_is_shown_without_rates() -> None:
    """Tests that no rate is shown that only other hosts were measured with."""
    snapshot = planted(4, 4)
    dead = NetworkSnapshot(
        (*snapshot.hosts, Host("vm-9")),
        rtt=snapshot.rtt,
        flows=synth.observe(synth.racks((4, 4)), rounds=3).flows,
        failed={"vm-9": "ssh: connection refused"},
    )
    dead = dead.with_fabric(infer_fabric(dead))
    lines = snapshot_lines(dead)
    assert "└─ vm-9  nothing measured" in lines
    assert "next: find out why vm-9 did not answer, and probe again" in lines
    data = snapshot_json(dead)
    assert data["silent"] == ["vm-9"]
    (node,) = [n for n in data["fabric"]["root"]["children"] if n["name"] == "vm-9"]
    assert node["uplink_bytes_per_s"] is None


def test_oversubscription_is_shown() -> None:
    """Tests n:1 in the tree and in the levels."""
    fabric = synth.racks((4, 4), seed=2)
    snapshot = synth.observe(fabric, rounds=2).with_fabric(fabric)
    lines = snapshot_lines(snapshot)
    assert sum(line.endswith("down 400 Mbit/s  4.0:1") for line in lines) == 2
    levels = snapshot_json(snapshot)["levels"]
    assert levels[0]["oversubscription"] == [4.0, 4.0]


def test_a_merged_snapshot_says_what_comes_and_goes() -> None:
    """Tests the line on repeats, and the share in the JSON."""
    parts = [
        dataclasses.replace(
            synth.observe(synth.racks((3, 3)), seed=seed), created=1e9 + 3600 * seed
        )
        for seed in range(3)
    ]
    merged = merge_snapshots(parts)
    assert any(
        line.startswith("3 snapshots over 2 h: round trips vary by ")
        for line in snapshot_lines(merged)
    )
    assert 0.0 < snapshot_json(merged)["repeats"]["transient"] < 0.2
    assert snapshot_json(parts[0])["repeats"] is None


def test_a_flat_network_needs_nothing() -> None:
    """Tests that a host's place in a flat network is not worth a bench."""
    assert next_steps(planted(6)) == [
        "nothing: the network is flat, all orders are equally good"
    ]


@pytest.mark.parametrize(
    ("mode", "step"),
    [
        ("standard", "'cloudcoll probe --full': whether there are racks is not sure"),
        ("full", "nothing: more measuring will not tell whether there are racks"),
    ],
)
def test_a_network_that_may_be_flat_is_not_called_so(mode: str, step: str) -> None:
    """Tests that the next step says no more than the line on racks."""
    snapshot = planted(6)
    assert snapshot.fabric
    unsure = dataclasses.replace(snapshot.fabric, confidence=0.6)
    found = dataclasses.replace(snapshot, metadata={"mode": mode}, fabric=unsure)
    assert next_steps(found) == [step]


@given(snapshots(), st.booleans())
def test_whatever_was_measured_can_be_shown(
    snapshot: NetworkSnapshot, matrices: bool
) -> None:
    """Tests that text, JSON and maps are made of any measurements."""
    snapshot = dataclasses.replace(snapshot, fabric=None)
    for value in (snapshot, snapshot.with_fabric(infer_fabric(snapshot))):
        assert snapshot_lines(value)
        json.dumps(snapshot_json(value, matrices), allow_nan=False)
        for matrix in (value.latency, value.bandwidth):
            assert heatmap_lines(matrix, value.names, honest_fabric(value))


def test_a_tree_that_was_imported_takes_no_room_for_pairs() -> None:
    """Tests that what knows of no pair makes no matrix of all pairs."""
    fabric = synth.racks([50] * 20)
    hosts = tuple(map(Host, fabric.hosts))
    origin = {"origin": "imported"}
    snapshot = NetworkSnapshot(hosts, fabric=fabric, metadata=origin)
    tracemalloc.start()
    try:
        snapshot_lines(snapshot)
        snapshot_json(snapshot)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(hosts) ** 2


def test_an_old_snapshot_is_doubted() -> None:
    """Tests that age, and the lack of bandwidth, are said."""
    snapshot = planted(2, 2)
    old = NetworkSnapshot(snapshot.hosts, snapshot.rtt, created=time.time() - 9000)
    doubts = check_snapshot(old)
    assert any("2.5 h old" in doubt for doubt in doubts)
    assert any("no bandwidth" in doubt for doubt in doubts)


@pytest.mark.parametrize(
    ("sizes", "confidence", "words"),
    [
        ((5, 3, 2), 0.97, "racks of 5, 3, 2 hosts: sure (97%)"),
        (
            (5, 3, 2),
            0.9,
            "racks of 5, 3, 2 hosts: not sure (90%); other groups explain it nearly as "
            "well",
        ),
        ((4,), 0.99, "no racks: sure (99%)"),
        ((4,), 0.3, "racks: none found, and not sure that there are none"),
        ((4,), math.nan, "no racks; how sure that is is not known"),
    ],
)
def test_how_sure_the_racks_are(
    sizes: tuple[int, ...], confidence: float, words: str
) -> None:
    """Tests the words for racks that are sure, unsure, none and not known."""
    fabric = dataclasses.replace(synth.racks(sizes), confidence=confidence)
    assert groups_words(fabric) == words


@pytest.mark.parametrize(
    ("confidence", "words"),
    [
        (0.99, "a rack of 3 hosts: sure (99%)"),
        (
            0.5,
            "a rack of 3 hosts: not sure (50%); other groups explain it nearly as well",
        ),
    ],
)
def test_a_rack_beside_hosts_without_one_is_named(
    confidence: float, words: str
) -> None:
    """Tests that it is not called no racks, as where all hosts are alone."""
    rack, loose = synth.racks([3, 2]).root.children
    root = Node("core", (rack, *loose.children))
    assert groups_words(Fabric(root, confidence=confidence)) == words
