"""Racks as a tree in the terminal, with an order's way through them."""

from __future__ import annotations

import pytest

from cloudcoll.measured import synth
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.report.snapshot import paint_lanes, picture_lines


def hosts(*names: str) -> tuple[Node, ...]:
    return tuple(Node(name, (), 1e9, 1e9) for name in names)


def test_a_picture_shows_racks_uplinks_and_the_way() -> None:
    """Tests every line for two racks and a host beside them."""
    racks = (Node("a", hosts("h1", "h2"), 4e9, 4e9), Node("b", hosts("h3", "h4")))
    fabric = Fabric(Node("core", (*racks, *hosts("h5"))), origin="labels")
    assert picture_lines(fabric, ["h4", "h1", "h5", "h2"]) == [
        "the order from left to right, dark where it is in a rack",
        "core: 5 hosts",
        "├─ group a: 2 hosts  up 32 Gbit/s down 32 Gbit/s  0.5:1",
        "│     ··██··██",
        "│     h1 h2",
        "├─ group b: 2 hosts",
        "│     ██······",
        "│     h4",
        "└─ h5  up 8 Gbit/s down 8 Gbit/s  number 3 of the order",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("sizes", [(5, 3, 6, 2), (40,) * 25])
def test_a_picture_fits(sizes: tuple[int, ...], width: int) -> None:
    """Tests that lanes are as long as there is room, and each host has its place."""
    fabric = synth.racks(sizes, seed=1)
    order = [name for rack in fabric.root.children for name in rack.leaves()]
    _, *lines = picture_lines(fabric, order, width)
    lanes = [line[6:] for line in lines if set(line[6:]) <= set("·░▒▓█")]
    assert len(lanes) == len(sizes)
    columns = {len(lane) for lane in lanes}
    assert columns == {2 * 16 if sum(sizes) == 16 else width - 6}
    # A rack and its figures take a line, however narrow.
    assert max(len(line) for line in lines) <= max(width, 80)
    for column in zip(*lanes, strict=True):
        assert set(column) != {"·"}
    # Racks one after the other: each lane begins where the one above has ended.
    starts = [min(lane.find(mark) for mark in set(lane) - {"·"}) for lane in lanes]
    assert starts == sorted(starts)


def test_a_long_name_is_cut() -> None:
    """Tests that the figures of a group with a name of any length stay in sight."""
    fabric = Fabric(Node("core", (Node("r" * 90, hosts("a", "b"), 1e9, 1e9),)))
    head = picture_lines(fabric, ["a", "b"])[2]
    assert len(head) == 80
    assert "rrr…: 2 hosts" in head
    assert head.endswith("2.0:1")


def test_colour_is_put_around_blocks_alone() -> None:
    """Tests that the words stay as they are."""
    assert paint_lanes("│  ··██·") == "│  ··\x1b[36m██\x1b[0m·"
    assert paint_lanes("rack-1") == "rack-1"
