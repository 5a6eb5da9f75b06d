from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics, pair_figures, slot_counts

from benchmarks.exact import branch_and_bound
from cloudcoll import engine
from cloudcoll.collectives import SCHEDULES, build_schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.engine import library
from cloudcoll.measured.synth import racks
from cloudcoll.model.cost import Cost, CostModel, FlatSteps
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.solve import search
from cloudcoll.solve.kernel import Kernel
from cloudcoll.solve.rules import Rules

FAMILIES = [(name, key) for name, table in SCHEDULES.items() for key in table]
SAMPLE = [
    ("allreduce", "rabenseifner"),
    ("allreduce", "nccl_tree"),
    ("allreduce", "lightgbm"),
    ("allreduce", "ring"),
    ("alltoall", "modified_bruck"),
]


GREEDY = [0, 2, 1, 3, 12, 6, 5, 7, 9, 10, 11, 8, 4]
ANNEALED = [0, 4, 1, 2, 3, 6, 5, 7, 11, 9, 10, 8, 12]


def engine_of(model: CostModel) -> Kernel:
    engine = library()
    assert engine is not None, "the engine was not built: pip install -e ."
    return Kernel(engine, model.flat())


def stays(hosts: int, first: int = 0) -> Rules:
    """Return the rules by which one host keeps the first place."""
    return Rules.only(hosts, {0: first})


def agree(one: Cost, other: Cost) -> bool:
    """Whether two costs are the same but for rounding."""
    return one == pytest.approx(other, rel=1e-9, abs=0)


@st.composite
def models(draw: st.DrawFn, max_hosts: int = 40) -> CostModel:
    fabric = draw(fabrics(min_hosts=2, max_hosts=max_hosts))
    slots = draw(slot_counts(len(fabric.hosts)))
    collective, algorithm = draw(st.sampled_from(FAMILIES))
    ranks = SCHEDULES[collective][algorithm].only or sum(slots)
    if ranks != sum(slots):
        fabric = Fabric(Node("core", (Node("a", (), 1e7, 2e7, 1e-5), Node("b"))))
        slots = [1, 1]
    size = draw(st.sampled_from([8, 4096, 1 << 20, (64 << 20) + 4]))
    schedule = build_schedule(collective, algorithm, sum(slots), size)
    pairs = draw(st.none() | pair_figures(len(slots)))
    return CostModel(schedule, fabric, slots, pairs)


@given(models(), st.data())
def test_the_engine_counts_what_the_cost_model_counts(
    model: CostModel, data: st.DataObject
) -> None:
    """Tests every algorithm on any tree, with any slots and order."""
    order = data.draw(st.permutations(range(len(model.slots))))
    assert agree(engine_of(model).cost(order), model.cost(order))


@given(models(max_hosts=24), st.data(), st.integers(0, 2**64), st.booleans())
def test_figures_kept_up_to_date_do_not_drift(
    model: CostModel, data: st.DataObject, seed: int, hot: bool
) -> None:
    """Tests, to the last bit, long walks of moves: all taken, or many undone."""
    order = data.draw(st.permutations(range(len(model.slots))))
    kernel = engine_of(model)
    heat = 1e9 if hot else 0.01 * model.seconds(order)
    found = kernel.search(order, steps=2000, seed=seed, heat=heat, smooth=1.0)
    assert found.steps == 2000
    assert sorted(found.last.tolist()) == sorted(order)
    assert found.last_cost == kernel.cost(found.last)
    assert found.cost == kernel.cost(found.order)
    assert agree(found.cost, model.cost(found.order))
    assert found.cost[0] <= kernel.cost(order)[0] * (1 + 1e-8)


def problem(algorithm: str, sizes: list[int]) -> CostModel:
    fabric = racks(sizes, nic=50e6, uplink=60e6, seed=len(sizes))
    schedule = build_schedule("allreduce", algorithm, sum(sizes), 16 << 20)
    return CostModel(schedule, fabric, [1] * sum(sizes))


def test_a_hot_walk_reaches_every_order() -> None:
    """Tests that no order is left out, and the pinned host stays in front."""
    kernel = engine_of(problem("ring", [3, 2]))
    walks = [
        kernel.search(range(5), steps=50, rules=stays(5), seed=seed, heat=1e9)
        for seed in range(400)
    ]
    ends = {tuple(walk.last.tolist()) for walk in walks}
    assert len(ends) == math.factorial(4)
    assert {order[0] for order in ends} == {0}


def test_steps_that_overlap_or_count_twice() -> None:
    """Tests weights and phases of any kind, as several collectives have them."""
    model = problem("rabenseifner", [3, 4, 2])
    flat = model.flat()
    weights = np.arange(1.0, len(flat.phase) + 1)
    phase = np.arange(len(flat.phase)) // 3
    joint = dataclasses.replace(
        flat,
        size=flat.size * weights[flat.step],
        phase=phase,
        phases=int(phase[-1]) + 1,
        wait_weight=weights,
    )
    order = np.random.default_rng(3).permutation(9)
    engine = library()
    assert engine is not None
    assert agree(Kernel(engine, joint).cost(order), counted_slowly(joint, order))


def counted_slowly(flat: FlatSteps, order: npt.NDArray[np.int64]) -> Cost:
    """Return the cost message by message: one rank on each host."""
    links = flat.links
    load = np.zeros((flat.phases, 2, len(links.up)))
    path = np.zeros(len(flat.phase))
    for src, dst, step, size, alone in zip(
        flat.src, flat.dst, flat.step, flat.size, flat.alone, strict=True
    ):
        way = links.member[:, order[src]], links.member[:, order[dst]]
        crossed = [(up, down) for up, down in zip(*way, strict=True) if up != down]
        latency = sum(links.latency[up] + links.latency[down] for up, down in crossed)
        slowest = max(1 / min(links.up[u], links.down[d]) for u, d in crossed)
        path[step] = max(path[step], latency + alone * slowest)
        for up, down in crossed:
            load[flat.phase[step], 0, up] += size / links.up[up]
            load[flat.phase[step], 1, down] += size / links.down[down]
    wait = float((path * flat.wait_weight).sum())
    busiest = float(load.max(axis=(1, 2)).sum())
    return busiest + wait, float(np.sqrt((load**2).sum(axis=(1, 2))).sum()) + wait


@pytest.mark.parametrize(
    ("heat", "expected"),
    [(0.0, GREEDY), (0.1, ANNEALED)],
)
def test_the_same_answer_on_every_machine(heat: float, expected: list[int]) -> None:
    """Tests one walk against what it once gave: seed and steps alone decide."""
    kernel = engine_of(problem("lightgbm", [5, 3, 4, 1]))
    found = kernel.search(
        range(13), steps=60, rules=stays(13), seed=7, heat=heat, smooth=3.0
    )
    assert found.last.tolist() == expected


def instance(seed: int) -> CostModel:
    """Draw a tree of 4 to 8 hosts with an uplink that matters, and a schedule."""
    generator = np.random.default_rng(seed)
    hosts = int(generator.integers(4, 9))
    rates = iter(generator.uniform(1e7, 1e8, 4 * hosts).tolist())

    def link(name: str, latency: float, *children: Node) -> Node:
        return Node(name, children, next(rates), next(rates), latency)

    cards = [link(f"vm-{i}", 1e-5) for i in range(hosts)]
    cuts = sorted({0, hosts, *generator.integers(1, hosts, 2).tolist()})
    groups = [
        link(f"rack-{low}", 5e-5, *cards[low:high])
        for low, high in itertools.pairwise(cuts)
    ]
    collective, algorithm = SAMPLE[seed % len(SAMPLE)]
    schedule = build_schedule(collective, algorithm, hosts, 1 << 20)
    return CostModel(schedule, Fabric(Node("core", tuple(groups))), [1] * hosts)


def test_small_problems_are_solved_to_the_optimum() -> None:
    """Tests 100 instances against a proof: 95 optima, the rest within 2 %.

    ``benchmarks/optimum.py`` has 500.
    """
    optima = 0
    for seed in range(100):
        model = instance(seed)
        start = np.random.default_rng(seed).permutation(len(model.slots))
        rules = stays(len(start), int(start[0]))
        _, (seconds, _) = search.local_search(model, [start], rules, seed)
        _, (least, _) = branch_and_bound(model, [start], 1)
        assert least <= seconds * (1 + 1e-8)
        assert seconds <= least * 1.02
        optima += seconds <= least * (1 + 1e-8)
    assert optima >= 95


@settings(max_examples=60)
@given(models(max_hosts=30), st.data(), st.booleans())
def test_never_worse_than_any_start(
    model: CostModel, data: st.DataObject, pinned: bool
) -> None:
    """Tests that a search with few steps, or hardly any, keeps its best start."""
    hosts = len(model.slots)
    rules = stays(hosts) if pinned else Rules.only(hosts)
    drawn = [np.array(data.draw(st.permutations(range(hosts)))) for _ in range(3)]
    starts = [rules.adapt(order) for order in drawn]
    for name, value in (("EVALUATIONS", 400), ("MESSAGES", 10)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(search, name, value)
            order, cost = search.local_search(model, starts, rules, 0)
        assert cost == model.cost(order)
        assert all(cost <= model.cost(start) for start in starts)
        assert rules.allows(order)


@pytest.mark.parametrize("heat", [0.0, 1e-12])
def test_without_heat_nothing_gets_slower(heat: float) -> None:
    """Tests walks from a good order: the tie-break has no weight if none is given."""
    kernel = engine_of(problem("ring", [3, 3]))
    for seed in range(20):
        walk = kernel.search(range(6), steps=10, seed=seed, heat=heat)
        assert walk.last_cost[0] <= kernel.cost(range(6))[0] * (1 + 1e-6)


def test_a_search_ends_in_time(caplog: pytest.LogCaptureFixture) -> None:
    """Tests that a cap ends it early, and that a line says so."""
    kernel = engine_of(problem("ring", [8, 8]))
    stopped = kernel.search(range(16), steps=2**32 - 2, heat=1e9, limit_s=0.0)
    assert 0 < stopped.steps < 10**5
    model, out_of_time = problem("ring", [8, 8]), search.Watch(limit_s=0.0)
    search.local_search(model, [np.arange(16)], stays(16), 0, out_of_time)
    (line,) = caplog.messages
    assert "ended after 0 s, with 4 of 8 rounds" in line


def test_without_the_engine_the_search_is_slow_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Tests an installation that had no compiler."""
    monkeypatch.setattr(engine, "LIBRARY", tmp_path / "kernel")
    library.cache_clear()
    try:
        model, start = problem("ring", [3, 3, 2]), np.array([0, 3, 6, 1, 4, 7, 2, 5])
        for _ in range(2):
            order, cost = search.local_search(model, [start], stays(8), 0)
    finally:
        library.cache_clear()
    assert cost == model.cost(order) < model.cost(start)
    (line,) = caplog.messages
    assert "the search engine was not built" in line
    assert "install cloudcoll with a C compiler" in line


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that one core, two and four give the same order."""
    model, start = problem("lightgbm", [9, 4, 6, 5]), np.arange(24)[::-1]
    orders = []
    for cores in (1, 2, 4):
        monkeypatch.setattr(search, "_cores", lambda cores=cores: cores)
        orders.append(search.local_search(model, [start], stays(24, 23), 5)[0].tolist())
    assert orders[0] == orders[1] == orders[2]


def test_whole_racks_trade_places() -> None:
    """Tests a way down that leads through one move of all hosts of two racks.

    Twelve ranks exchange much with each other and with twelve more, through the narrow
    uplink: moving any one of them makes it worse.
    """
    groups = np.arange(36).reshape(12, 3).T
    pairs = np.stack([groups[0], groups[2]], axis=1)
    job = Workload(
        "job",
        36,
        (
            Operation("alltoall", "linear", 64 << 20, groups),
            Operation("sendrecv", "both", 1 << 20, [*pairs, *groups[1][:, None]]),
        ),
    )
    fabric = racks([12, 12, 12], nic=100e6, uplink=50e6, seed=1)
    narrow, *others = fabric.root.children
    narrow = dataclasses.replace(narrow, uplink_bytes_per_s=5e6)
    root = dataclasses.replace(fabric.root, children=(narrow, *others))
    model = CostModel(job, Fabric(root), [1] * 36)
    start = np.arange(36).reshape(3, 12).T.ravel()
    found = engine_of(model).search(start, steps=3000, seed=1)
    assert found.cost[0] < 0.99 * model.seconds(start)
    in_racks = {frozenset((found.order[group] // 12).tolist()) for group in groups}
    assert in_racks == {frozenset([0]), frozenset([1]), frozenset([2])}


def test_what_is_no_order_is_refused() -> None:
    """Tests that nothing but permutations and countable steps reach the engine."""
    kernel = engine_of(problem("ring", [2, 2]))
    for wrong in ([0, 1, 2], [0, 1, 2, 2], [1, 2, 3, 4], [0, 1, 2, -1]):
        with pytest.raises(ValueError, match="not an order of 4 hosts"):
            kernel.search(wrong, steps=1)
    for steps in (-1, 2**32 - 1):
        with pytest.raises(ValueError, match="can be counted"):
            kernel.search(range(4), steps=steps)
    with pytest.raises(ValueError, match="the rules of the search forbid its start"):
        kernel.search(range(4), steps=1, rules=stays(4, 1))
