from __future__ import annotations

import json
import time

import pytest

from cloudcoll.fabric import synth
from cloudcoll.fabric.infer import infer_fabric
from cloudcoll.rankmap import RankMap
from cloudcoll.report.checks import check_snapshot
from cloudcoll.report.text import map_lines, snapshot_json, snapshot_lines
from cloudcoll.snapshot import NetworkSnapshot


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


def test_an_old_snapshot_is_doubted() -> None:
    """Tests that age, and the lack of bandwidth, are said."""
    snapshot = planted(2, 2)
    old = NetworkSnapshot(snapshot.hosts, snapshot.rtt, created=time.time() - 9000)
    doubts = check_snapshot(old)
    assert any("2.5 h old" in doubt for doubt in doubts)
    assert any("no bandwidth" in doubt for doubt in doubts)
