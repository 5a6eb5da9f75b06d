from __future__ import annotations

import pytest

from cloudcoll.collectives import build_schedule
from cloudcoll.daemon import verdict
from cloudcoll.daemon.verdict import OrderQuestion
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import racks
from cloudcoll.network.tree import Fabric
from cloudcoll.rankmap import RankMap

SENT = build_schedule("allreduce", "ring", 8, 1 << 24)
NIC = 50e6


def snapshot(fabric: Fabric) -> NetworkSnapshot:
    """Return a snapshot that knows a fabric."""
    return NetworkSnapshot(tuple(map(Host, sorted(fabric.hosts))), fabric=fabric)


@pytest.fixture
def fabric() -> Fabric:
    """Two racks, whose names are shuffled."""
    return racks((4, 4), nic=NIC, uplink=NIC, seed=2)


@pytest.fixture
def question(fabric: Fabric) -> OrderQuestion:
    """A ring over hosts sorted by name."""
    return OrderQuestion("q", SENT, tuple(sorted(fabric.hosts)), (1,) * 8)


def test_what_an_order_leaves_to_gain(question: OrderQuestion, fabric: Fabric) -> None:
    """Tests that the best leaves nothing, and another the share of its time."""
    known = snapshot(fabric)
    best = question.found(known).best
    assert question.found(known, best).gain == 0.0
    names = RankMap(question.hosts, question.slots)
    fast, slow = (best.predicted[name] for name in ("cloudcoll", "given"))
    assert slow > fast
    assert question.found(known, names).gain == pytest.approx(1 - fast / slow, rel=1e-6)


def test_the_order_in_force_is_never_beaten_by_worse(fabric: Fabric) -> None:
    """Tests an order that no search is given the time to find."""
    known = snapshot(fabric)
    sent = build_schedule("allreduce", "rabenseifner", 8, 1 << 24)
    question = OrderQuestion("q", sent, tuple(sorted(fabric.hosts)), (1,) * 8)
    best = question.found(known).best
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdict, "SEARCH_S", 0.0)
        again = question.found(known, best)
    assert again.best.predicted["cloudcoll"] <= best.predicted["cloudcoll"]
    assert again.gain == 0.0


def test_an_order_that_is_kept(question: OrderQuestion, fabric: Fabric) -> None:
    """Tests that order and origin stay, and figures are the new snapshot's."""
    first = question.found(snapshot(fabric)).best
    slower = racks((4, 4), nic=NIC, uplink=NIC / 2, seed=2)
    kept = question.found(snapshot(slower), first).kept
    assert kept is not None
    assert (kept.order, kept.origin) == (first.order, first.origin)
    assert kept.predicted["cloudcoll"] == pytest.approx(question.seconds(first, slower))
    assert kept.predicted.keys() == first.predicted.keys()
    assert kept.predicted["given"] > first.predicted["given"]
    assert first.lower_bound is not None
    assert kept.lower_bound is not None
    assert kept.lower_bound > first.lower_bound


def test_the_seconds_of_an_order(question: OrderQuestion, fabric: Fabric) -> None:
    """Tests what half of the rate makes of an order that the uplinks limit."""
    order = question.found(snapshot(fabric)).best
    slower = racks((4, 4), nic=NIC, uplink=NIC / 2, seed=2)
    usual = question.seconds(order, fabric)
    assert question.seconds(order, slower) == pytest.approx(2.0 * usual, rel=0.01)
