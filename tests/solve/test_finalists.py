from __future__ import annotations

import numpy as np
import pytest

from cloudcoll.contention import contended_seconds
from cloudcoll.cost import CostModel
from cloudcoll.fabric.synth import racks
from cloudcoll.fabric.tree import Fabric, Node
from cloudcoll.schedule import Schedule, Step, build_schedule
from cloudcoll.solve import finalists
from cloudcoll.solve.finalists import settle
from cloudcoll.solve.rules import Rules


def near_and_far() -> CostModel:
    """Return a large and a small message; the core is far for hosts c and d.

    By the cost model the step takes its longest path and its busiest link, whichever
    message has them; as flows a small message far away costs nothing.
    """
    cards = [Node(name, (), 100.0, 100.0, 1.0) for name in "ab"]
    cards += [Node(name, (), 100.0, 100.0, 4.0) for name in "cd"]
    ends = np.array([0, 2]), np.array([1, 3])
    step = Step(*ends, np.array([1000.0, 1.0]))
    sent = Schedule("allreduce", "test", "none", 4, 1, (step,))
    return CostModel(sent, Fabric(Node("core", tuple(cards))), [1] * 4)


RULES = Rules.only(4)
FAR, NEAR = np.array([2, 3, 0, 1]), np.array([0, 1, 2, 3])


def test_flows_settle_what_the_cost_model_cannot() -> None:
    """Tests orders that it takes for equal: the faster as flows wins."""
    model = near_and_far()
    assert model.seconds(FAR) == model.seconds(NEAR) == 18.0
    assert contended_seconds(model, FAR) == pytest.approx(18.0)
    assert contended_seconds(model, NEAR) == pytest.approx(12.0)
    name, order = settle(model, {"given": FAR, "sorted": NEAR}, [FAR], RULES, 0)
    assert name == "sorted"
    assert order.tolist() == NEAR.tolist()
    name, order = settle(model, {"given": FAR}, [FAR, NEAR], RULES, 0)
    assert name == "search"
    assert order.tolist() == NEAR.tolist()


def test_ranks_stay_where_flows_gain_nothing() -> None:
    """Tests that of orders alike the first stays, whatever the search found."""
    model = near_and_far()
    twin = np.array([1, 0, 2, 3])
    assert (
        settle(model, {"given": NEAR, "sorted": twin}, [twin], RULES, 0)[0] == "given"
    )
    assert (
        settle(model, {"given": FAR, "sorted": twin}, [twin, NEAR], RULES, 0)[0]
        == "sorted"
    )


def test_never_worse_than_a_start_under_the_cost_model() -> None:
    """Tests that what is faster as flows alone does not win."""
    fabric = racks([2, 2], nic=100.0, uplink=100.0)
    ring = CostModel(build_schedule("allreduce", "ring", 4, 400), fabric, [1] * 4)
    good, bad = np.array([0, 1, 2, 3]), np.array([0, 2, 1, 3])
    with pytest.MonkeyPatch.context() as patch:
        fast = {tuple(bad): 0.1}
        patch.setattr(
            finalists._Flows,
            "seconds",
            lambda self, order, limit_s=np.inf: fast.get(tuple(order.tolist()), 1.0),
        )
        starts = {"given": bad, "sorted": good}
        assert settle(ring, starts, [good, bad], RULES, 0)[0] == "sorted"


def test_long_schedules_are_left_to_the_cost_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that above a number of messages nothing is replayed."""
    monkeypatch.setattr(finalists, "WORK", 1)
    monkeypatch.setattr(finalists, "PLAIN_WORK", 1)
    starts = {"given": FAR, "sorted": NEAR}
    assert settle(near_and_far(), starts, [FAR], RULES, 0)[0] == "given"


def test_a_better_order_nearby_is_found() -> None:
    """Tests that an order that nobody proposed wins, unless rules forbid it."""
    model = near_and_far()
    name, order = settle(model, {"given": FAR}, [FAR], RULES, 0)
    assert name == "search"
    assert contended_seconds(model, order) == pytest.approx(12.0)
    fixed = Rules.only(4, {0: 2, 1: 3})
    assert settle(model, {"given": FAR}, [FAR], fixed, 0)[0] == "given"
