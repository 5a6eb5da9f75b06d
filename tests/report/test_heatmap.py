from __future__ import annotations

import math
import re

import numpy as np
import pytest

from cloudcoll.measured import synth
from cloudcoll.measured.samples import PairMatrix
from cloudcoll.network.tree import Fabric, Node, flat
from cloudcoll.report.heatmap import color_wanted, heatmap_lines, painted

NAMES = ("a1", "b1", "a2", "b2", "c1")
RACKS = Fabric(
    Node(
        "core",
        (
            Node("a", (Node("a1"), Node("a2"))),
            Node("b", (Node("b1"), Node("b2"))),
            Node("c1"),
        ),
    )
)


def matrix(kind: str, same: float, other: float) -> PairMatrix:
    group = np.array([0, 1, 0, 1, 2])
    values = np.where(group[:, None] == group, same, other)
    values[4, :4] = math.nan
    np.fill_diagonal(values, math.nan)
    return PairMatrix(kind, "measured", values)


def test_rows_are_senders_in_the_order_of_groups() -> None:
    """Tests the whole map: order, gaps, shades, what was not measured, legend."""
    lines = heatmap_lines(matrix("rtt", 50e-6, 200e-6), NAMES, RACKS)
    assert lines == [
        "round trip from a row's host to a column's; dark is slow",
        "group a    b    co",
        "   a1   ░░ ████ ██",
        "   a2 ░░   ████ ██",
        "",
        "   b1 ████   ░░ ██",
        "   b2 ████ ░░   ██",
        "",
        "   c1 ···· ····",
        "",
        "░ ≤ 70.7 us  ▒ ≤ 100 us  ▓ ≤ 141 us  █ more  · not measured",
    ]


def test_low_rates_are_dark() -> None:
    """Tests that for bandwidth little is bad."""
    lines = heatmap_lines(matrix("bandwidth", 50e6, 10e6), NAMES, RACKS)
    assert "   a1   ░░ ████ ██" in lines
    assert lines[-1].startswith("░ ≥ 267 Mbit/s  ▒ ≥ 179 Mbit/s")


def test_noise_does_not_look_like_structure() -> None:
    """Tests that figures within some percent have one shade."""
    values = np.random.default_rng(1).uniform(50e-6, 53e-6, (8, 8))
    names = tuple(f"vm-{i}" for i in range(8))
    lines = heatmap_lines(PairMatrix("rtt", "measured", values), names, flat(names))
    assert not set("▒▓█") & set("".join(lines[:-1]))


def test_nothing_measured_is_said() -> None:
    """Tests a matrix of NaN alone."""
    nothing = PairMatrix("bandwidth", "measured", np.full((5, 5), math.nan))
    lines = heatmap_lines(nothing, NAMES, RACKS)
    assert lines[-1] == "· not measured"


@pytest.mark.parametrize("racks", [(16, 16, 16, 16), (4,) * 16, (64,)])
@pytest.mark.parametrize("domain", ["", ".europe-west4-a.c.project.internal"])
def test_64_hosts_fit_80_columns(racks: tuple[int, ...], domain: str) -> None:
    """Tests the width, long names included."""
    fabric = synth.racks(racks)
    snapshot = synth.observe(fabric, samples=2)
    names = {name: f"a-long-instance-{name}{domain}" for name in snapshot.names}

    def renamed(node: Node) -> Node:
        children = tuple(map(renamed, node.children))
        return Node(names.get(node.name, node.name), children)

    long = Fabric(renamed(fabric.root))
    lines = heatmap_lines(snapshot.latency, tuple(names.values()), long)
    assert max(map(len, lines)) <= 80
    assert sum("-vm-" in line for line in lines) == 64


def test_colours_add_nothing_but_colour() -> None:
    """Tests that the map without its colours is the map."""
    figures = matrix("rtt", 50e-6, 200e-6)
    lines = [painted(line) for line in heatmap_lines(figures, NAMES, RACKS)]
    assert any("\x1b[" in line for line in lines)
    bare = [re.sub(r"\x1b\[\d+m", "", line) for line in lines]
    assert bare == heatmap_lines(figures, NAMES, RACKS)


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that colours need a terminal and no NO_COLOR."""
    assert not color_wanted(is_terminal=True)
    monkeypatch.delenv("NO_COLOR")
    assert color_wanted(is_terminal=True)
    assert not color_wanted(is_terminal=False)
