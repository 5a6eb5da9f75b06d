from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from strategies import fabrics

from cloudcoll.measured.synth import racks
from cloudcoll.model import (
    ASSUMPTION,
    CARD,
    OVERSUBSCRIPTION,
    with_alike_links,
    with_assumed_uplinks,
)
from cloudcoll.network.tree import Fabric, Node


def measured(uplinks: list[float], error: float) -> Fabric:
    """Return racks of two with these uplinks, seen with an error."""
    fabric = racks([2] * len(uplinks))
    children = tuple(
        dataclasses.replace(rack, uplink_bytes_per_s=rate)
        for rack, rate in zip(fabric.root.children, uplinks, strict=True)
    )
    return Fabric(Node("core", children), holdout_error=error)


def uplinks(fabric: Fabric) -> list[float]:
    return [rack.uplink_bytes_per_s for rack in fabric.root.children]


def test_what_noise_explains_is_gone() -> None:
    """Tests uplinks within 5 % of each other, measured to 10 %: all the mean."""
    found = uplinks(with_alike_links(measured([95e6, 100e6, 105e6], 0.1)))
    assert found == pytest.approx([(95e6 * 100e6 * 105e6) ** (1 / 3)] * 3)


def test_what_noise_does_not_explain_stays() -> None:
    """Tests a 4:1 difference, measured to 10 %: nearly all of it is kept."""
    seen = [25e6, 100e6, 100e6, 25e6]
    found = uplinks(with_alike_links(measured(seen, 0.1)))
    assert found == pytest.approx(seen, rel=0.02)
    assert found != seen


def test_by_hand() -> None:
    """Tests the share that is kept: variance ln(2)^2 / 2 against 0.3^2."""
    kept = 1 - 0.3**2 / (math.log(2) ** 2 / 2)
    found = uplinks(with_alike_links(measured([50e6, 100e6], 0.3)))
    assert math.log(found[1] / found[0]) == pytest.approx(kept * math.log(2))
    assert math.prod(found) == pytest.approx(50e6 * 100e6)


def test_a_link_without_limit_says_nothing_of_others() -> None:
    """Tests that it stays, and that the others are judged as they are without it."""
    alone = uplinks(with_alike_links(measured([50e6, 100e6], 0.3)))
    found = uplinks(with_alike_links(measured([50e6, math.inf, 100e6], 0.3)))
    assert found == [alone[0], math.inf, alone[1]]


@given(fabrics())
def test_an_error_that_is_not_known_changes_nothing(fabric: Fabric) -> None:
    """Tests fabrics from labels or files of others."""
    assert with_alike_links(fabric) is fabric


@given(fabrics(min_hosts=2))
def test_nothing_but_figures_changes(fabric: Fabric) -> None:
    """Tests that hosts and groups stay, and what is not known stays unknown."""
    seen = dataclasses.replace(fabric, holdout_error=0.2)
    found = with_alike_links(seen)
    assert found.hosts == seen.hosts
    links, again = seen.links, found.links
    assert (links.member == again.member).all()
    assert (np.isinf(links.up) == np.isinf(again.up)).all()
    assert ((links.latency == 0) == (again.latency == 0)).all()


def test_uplinks_that_nobody_measured_are_assumed() -> None:
    """Tests labels alone: unknown cards are alike, each group's uplink is 4:1."""
    rack = Node("rack", tuple(Node(f"vm-{i}") for i in range(8)))
    pair = Node("pair", (Node("a", (), 1e9, 1e9), Node("b", (), 1e9, 1e9)))
    fabric = Fabric(Node("core", (rack, pair)), origin="labels")
    assumed, words = with_assumed_uplinks(fabric)
    assert words == ASSUMPTION
    found = {node.name: node for node in assumed.root.children}
    # 10 Gbit/s.
    assert found["rack"].children[0].uplink_bytes_per_s == CARD == 10e9 / 8
    assert found["rack"].uplink_bytes_per_s == 8 * CARD / OVERSUBSCRIPTION
    # What is known of a card stays, and no uplink is narrower than one.
    assert found["pair"].children[0].downlink_bytes_per_s == 1e9
    assert found["pair"].downlink_bytes_per_s == 1e9


def test_what_was_measured_is_not_assumed() -> None:
    """Tests that a probe's network, and one that knows an uplink, stay as they are."""
    known = Node("rack", (Node("a"), Node("b")), 1e9)
    for fabric in (
        Fabric(Node("core", (Node("rack", (Node("a"), Node("b"))), Node("c")))),
        Fabric(Node("core", (known, Node("c"))), origin="labels"),
        Fabric(Node("core", (Node("a"), Node("c"))), origin="labels"),
    ):
        assert with_assumed_uplinks(fabric) == (fabric, "")
