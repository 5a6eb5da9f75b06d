from __future__ import annotations

import numpy as np
import pytest

from cloudcoll.arrays import Ints
from cloudcoll.collectives import Schedule, Step, build_schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.measured.synth import racks
from cloudcoll.model.contention import contended_seconds, replayed_work
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.solve import finalists
from cloudcoll.solve.finalists import gain_as_flows, settle
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


def test_what_flows_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests orders alike by the cost model, both ways, and too long a replay."""
    model = near_and_far()
    assert gain_as_flows(FAR, NEAR, model) == pytest.approx(1 - 12 / 18)
    assert gain_as_flows(NEAR, FAR, model) == pytest.approx(1 - 18 / 12)
    monkeypatch.setattr(finalists, "_affordable", lambda _: 1)
    assert gain_as_flows(FAR, NEAR, model) == 0.0


def test_messages_that_are_all_sent_at_once_are_not_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests an all-to-all without steps: on unlike links, replays would take hours."""

    def replayed(self: object, order: Ints) -> float:
        raise AssertionError

    monkeypatch.setattr(finalists._Flows, "seconds", replayed)
    linear = build_schedule("alltoall", "linear", 128, 1 << 20)
    model = CostModel(linear, racks([64, 64]), [1] * 128)
    assert gain_as_flows(np.arange(128), np.arange(128), model) == 0.0


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


@pytest.mark.parametrize(
    ("algorithm", "gain", "best"),
    [
        # Without a pipeline flows are believed to a hundredth.
        ("ring", 0.008, "given"),
        ("ring", 0.012, "sorted"),
        # Where a pipeline's steps overlap, to what its replay is off by.
        ("nccl_tree", 0.012, "given"),
        ("nccl_tree", 0.04, "given"),
        ("nccl_tree", 0.06, "sorted"),
    ],
)
def test_how_much_faster_as_flows_another_order_has_to_be(
    algorithm: str, gain: float, best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a gain below what the replay is off by moves nobody."""
    call = Operation("allreduce", algorithm, 400, np.arange(4)[None])
    model = CostModel(Workload("job", 4, (call,)), TWO_RACKS, [1] * 4)
    monkeypatch.setattr(
        finalists._Flows,
        "seconds",
        lambda self, order, limit_s=np.inf: (
            1.0 - gain if order.tolist() == [*BAD] else 1.0
        ),
    )
    starts = {"given": GOOD, "sorted": BAD}
    assert settle(model, starts, [GOOD], RULES, 0)[0] == best


@pytest.fixture
def bad_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have flows find the order `BAD` ten times as fast as any other."""
    monkeypatch.setattr(
        finalists._Flows,
        "seconds",
        lambda self, order, limit_s=np.inf: 0.1 if order.tolist() == [*BAD] else 1.0,
    )


GOOD, BAD = np.array([0, 1, 2, 3]), np.array([0, 2, 1, 3])
TWO_RACKS = racks([2, 2], nic=100.0, uplink=100.0)


def rings_of_four() -> CostModel:
    """Return a workload of one ring."""
    ring = Operation("allreduce", "ring", 400, np.arange(4)[None])
    return CostModel(Workload("job", 4, (ring,)), TWO_RACKS, [1] * 4)


@pytest.mark.usefixtures("bad_is_fast")
def test_never_worse_than_a_start_under_the_cost_model() -> None:
    """Tests that what is faster as flows alone does not win."""
    ring = CostModel(build_schedule("allreduce", "ring", 4, 400), TWO_RACKS, [1] * 4)
    starts = {"given": BAD, "sorted": GOOD}
    assert settle(ring, starts, [GOOD, BAD], RULES, 0)[0] == "sorted"


@pytest.mark.usefixtures("bad_is_fast")
@pytest.mark.parametrize("work", [finalists.WORK, 1])
def test_flows_judge_the_starts_of_a_workload(
    work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that one of these may win, and what the search met may not."""
    monkeypatch.setattr(finalists, "WORK", work)
    monkeypatch.setattr(finalists, "PLAIN_WORK", work)
    job = rings_of_four()
    assert job.seconds(BAD) > job.seconds(GOOD)
    starts = {"given": BAD, "sorted": GOOD}
    few = settle(job, starts, [GOOD, BAD], RULES, 0)[0]
    assert few == ("sorted" if work == 1 else "given")
    assert settle(job, {"given": GOOD}, [GOOD, BAD], RULES, 0)[0] == "given"


@pytest.mark.usefixtures("bad_is_fast")
def test_a_few_orders_are_replayed_where_all_take_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that each may take twice what all of them may."""
    job = rings_of_four()
    each = replayed_work(job)
    starts = {"given": BAD, "sorted": GOOD}
    for work, best in ((each // 2, "given"), (each // 2 - 1, "sorted")):
        monkeypatch.setattr(finalists, "WORK", work)
        monkeypatch.setattr(finalists, "PLAIN_WORK", work)
        assert settle(job, starts, [GOOD], RULES, 0)[0] == best


@pytest.mark.parametrize("orders", [8, 20])
def test_no_more_orders_are_replayed_than_there_is_time_for(
    orders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests all replays, those next to the finalists included, against `WORK`."""
    job, replayed = rings_of_four(), list[list[int]]()

    def seconds(self: object, order: Ints, limit_s: float = np.inf) -> float:
        replayed.append(order.tolist())
        return 1.0

    monkeypatch.setattr(finalists._Flows, "seconds", seconds)
    for work in ("WORK", "PLAIN_WORK"):
        monkeypatch.setattr(finalists, work, orders * replayed_work(job))
    starts = {"given": GOOD, "sorted": BAD, "other": np.array([0, 3, 1, 2])}
    settle(job, starts, [GOOD], RULES, 0)
    assert 3 < len(replayed) <= orders


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


def test_no_rack_is_parted_for_what_round_trips_scatter() -> None:
    """Tests an order .1 us a step faster, with links full that others use by half."""
    legs = dict.fromkeys("abcdefgh", 1e-6) | {"a": 1.1e-6}
    cards = [Node(name, (), 1e6, 1e6, leg) for name, leg in legs.items()]
    pairs = enumerate((cards[:4], cards[4:]))
    two = [Node(f"rack {i}", tuple(rack), 2e6, 2e6, 1e-5) for i, rack in pairs]
    ring = build_schedule("allreduce", "ring", 8, 1 << 20)
    model = CostModel(ring, Fabric(Node("core", tuple(two))), [1] * 8)
    whole, parted = np.arange(8), np.array([0, 1, 4, 5, 2, 6, 7, 3])
    mixed = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    assert model.seconds(parted) < model.seconds(whole)
    rules = Rules.only(8)
    assert settle(model, {"grouped": whole}, [parted], rules, 0)[0] == "grouped"
    _, found = settle(model, {"given": mixed}, [parted, whole], rules, 0)
    assert found.tolist() == whole.tolist()
