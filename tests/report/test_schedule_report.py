"""What crosses the levels of a fabric, and the lines about a schedule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.collectives import build_schedule
from cloudcoll.measured import synth
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.report.traffic import crossing_lines, crossings, schedule_lines


def pods() -> Fabric:
    """Two pods of two racks of two hosts, and a host that hangs on the core."""
    racks = [
        Node(f"r{rack}", tuple(Node(f"h{2 * rack + i}") for i in range(2)))
        for rack in range(4)
    ]
    pairs = [Node(f"p{pod}", tuple(racks[2 * pod : 2 * pod + 2])) for pod in range(2)]
    return Fabric(Node("core", (*pairs, Node("lone"))))


def test_every_level_is_counted() -> None:
    """Tests a ring over pods, racks and a host without either."""
    fabric = pods()
    ring = build_schedule("allreduce", "ring", 9, 9000).pair_bytes()
    found = crossings(ring, fabric, fabric.hosts, (1,) * 9)
    edge = 2 * 8 * 1000.0
    assert [(c.level, c.groups, c.bytes) for c in found] == [
        (-1, 9, 9 * edge),
        (0, 5, 5 * edge),
        (1, 3, 3 * edge),
    ]
    assert found[1].share == pytest.approx(5 / 9)


@given(st.permutations(range(9)), st.lists(st.integers(1, 3), min_size=9, max_size=9))
def test_less_crosses_each_level_up(order: list[int], slots: list[int]) -> None:
    """Tests that what leaves a pod has left a rack, in any order, with any slots."""
    fabric = pods()
    pairs = build_schedule("allreduce", "rabenseifner", sum(slots), 1 << 16)
    hosts = [fabric.hosts[place] for place in order]
    found = crossings(pairs.pair_bytes(), fabric, hosts, slots)
    shares = [c.share for c in found]
    assert shares == sorted(shares, reverse=True)
    assert 0.0 < shares[-1] <= shares[0] <= 1.0


def test_nothing_sent_is_no_share() -> None:
    """Tests an empty matrix: no division by its sum."""
    fabric = synth.racks((2, 2), seed=1)
    found = crossings(np.zeros((4, 4)), fabric, fabric.hosts, (1,) * 4)
    assert [c.share for c in found] == [0.0, 0.0]
    assert "0.0%" in crossing_lines({"given": found})[1]


def test_long_schedules_are_cut() -> None:
    """Tests that many steps and pairs say how many are not shown."""
    lines = schedule_lines(build_schedule("alltoall", "pairwise", 40, 40_000))
    assert "and 23 more steps" in lines
    text = " ".join(" ".join(lines).split())
    assert "and 1544 more" in text
    assert max(map(len, lines)) <= 80
