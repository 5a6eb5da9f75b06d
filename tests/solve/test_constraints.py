"""Every answer keeps what was demanded of it, and what cannot be kept is named."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics, schedules, slot_counts

from cloudcoll.collectives import Schedule, Step, build_schedule
from cloudcoll.collectives.readymade import ready_made
from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.rankmap import RankMap
from cloudcoll.solve import SOLVERS, Constraints, finalists, search, solve
from cloudcoll.solve.constraints import least_gain
from cloudcoll.solve.orders import baseline_orders


def snapshot_of(fabric: Fabric) -> NetworkSnapshot:
    hosts = tuple(Host(name) for name in sorted(fabric.hosts))
    return NetworkSnapshot(hosts, fabric=fabric, digest="abc")


def rack_of(fabric: Fabric) -> dict[str, str]:
    """Return the name of the group right above each host."""
    found: dict[str, str] = {}

    def walk(node: Node) -> None:
        for child in node.children:
            if not child.children:
                found[child.name] = node.name
            walk(child)

    walk(fabric.root)
    return found


@dataclass(frozen=True)
class Problem:
    """A question to `solve`, checked without a line of what is tested."""

    fabric: Fabric
    given: tuple[str, ...]
    slots: tuple[int, ...]
    constraints: Constraints
    free_rank0: bool
    schedule: Schedule

    def keeps(self, order: Sequence[str]) -> bool:
        """Whether these hosts, in this order, keep everything."""
        asked, racks_ = self.constraints, rack_of(self.fabric)
        slots = dict(zip(self.given, self.slots, strict=True))
        at = [name for name in order for _ in range(slots[name])]
        pins = dict(asked.pins)
        if not self.free_rank0:
            pins.setdefault(0, self.given[0])
        return (
            len(set(order)) == len(order) == (asked.take or len(self.given))
            and all(at[rank] == host for rank, host in pins.items())
            and all(len({racks_[at[r]] for r in g}) == 1 for g in asked.same_rack)
        )

    def seconds(self, order: Sequence[str]) -> float:
        part = self.fabric.restrict(order)
        slots = dict(zip(self.given, self.slots, strict=True))
        model = CostModel(self.schedule, part, [slots[name] for name in part.hosts])
        return model.seconds([part.position(name) for name in order])

    def solve(self, solver: str = "local") -> RankMap:
        return solve(
            snapshot_of(self.fabric),
            self.schedule,
            given=self.given,
            slots=self.slots,
            free_rank0=self.free_rank0,
            solver=solver,
            constraints=self.constraints,
        )


@st.composite
def demands(
    draw: st.DrawFn, order: Sequence[str], fabric: Fabric, slots: int
) -> Constraints:
    """Draw constraints that an order, its first hosts at least, is known to keep."""
    take = draw(st.integers(1, len(order)))
    at = [name for name in order[:take] for _ in range(slots)]
    ranks = st.integers(0, len(at) - 1)
    pins = draw(st.lists(ranks, max_size=3, unique=True))
    racks_ = rack_of(fabric)
    group = draw(st.lists(ranks, max_size=4, unique=True))
    kept = [
        [r for r in group if racks_[at[r]] == rack]
        for rack in sorted(set(racks_.values()))
    ]
    return Constraints(
        pins=tuple((rank, at[rank]) for rank in pins),
        take=draw(st.sampled_from([take, take, None])) if take == len(order) else take,
        same_rack=tuple(tuple(sorted(ranks)) for ranks in kept if ranks),
    )


@st.composite
def problems(draw: st.DrawFn, max_hosts: int = 40) -> Problem:
    """Draw a tree of any shape and constraints that some order keeps."""
    fabric = draw(fabrics(min_hosts=2, max_hosts=max_hosts))
    order = draw(st.permutations(fabric.hosts))
    free_rank0 = draw(st.booleans())
    slots = draw(st.integers(1, 3))
    asked = draw(demands(order, fabric, slots))
    given_ = draw(st.permutations(fabric.hosts))
    if not free_rank0:
        # Rank 0 stays where it was given: on the first host of that order.
        given_ = [order[0], *(name for name in given_ if name != order[0])]
    schedule = draw(schedules(slots * (asked.take or len(order))))
    counts = (slots,) * len(order)
    return Problem(fabric, tuple(given_), counts, asked, free_rank0, schedule)


@given(problems(), st.sampled_from(["engine", "plain"]))
def test_every_answer_keeps_its_constraints(problem: Problem, which: str) -> None:
    """Tests any of them together, on any tree, against baselines that keep them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "EVALUATIONS", 400)
        patch.setattr(finalists, "OF_A_HOST", 1)
        patch.setattr(search, "PLAIN_EVALUATIONS", 60)
        if which == "plain":
            patch.setattr(search, "library", lambda: None)
        found = problem.solve()
    assert problem.keeps(found.order)
    assert set(found.order) | set(found.dropped) == set(problem.given)
    assert set(found.slots) == {problem.slots[0]}
    mine = problem.seconds(found.order)
    assert found.predicted["cloudcoll"] == pytest.approx(mine)
    for name, order in baseline_orders(problem.given, problem.fabric).items():
        used = order[: len(found.order)]
        assert found.predicted[name] == pytest.approx(problem.seconds(used))
        if problem.keeps(used):
            assert mine <= problem.seconds(used) * (1 + 1e-8)
            assert name not in found.breaking


@settings(max_examples=40)
@given(problems(max_hosts=6))
def test_exact_is_the_best_of_all_that_keep_them(problem: Problem) -> None:
    """Tests the exact solver against brute force over names."""
    hosts = problem.constraints.take or len(problem.given)
    orders = filter(problem.keeps, itertools.permutations(problem.given, hosts))
    best = min(map(problem.seconds, orders))
    assert problem.solve("exact").predicted["cloudcoll"] == pytest.approx(best)


@pytest.mark.slow
def test_the_search_is_close_to_exact_under_constraints() -> None:
    """Tests 60 instances: at least 57 optima, the rest within 3 %."""
    optima = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        sizes = [[3, 3, 2], [4, 2, 2], [2, 2, 2, 2]][seed % 3]
        fabric = racks(sizes, nic=50e6, uplink=60e6, seed=seed)
        order = tuple(np.roll(sorted(fabric.hosts), seed))
        asked = [
            Constraints(take=6, pins=((3, order[5]),)),
            Constraints(same_rack=((2, 3), (6, 7))),
            Constraints(take=5, same_rack=((1, 4),)),
        ][int(generator.integers(3))]
        algorithm = ["ring", "rabenseifner", "nccl_tree"][seed // 3 % 3]
        ranks = asked.take or 8
        schedule = build_schedule("allreduce", algorithm, ranks, 16 << 20)
        problem = Problem(fabric, order, (1,) * 8, asked, False, schedule)
        exact, local = (
            problem.solve(solver).predicted["cloudcoll"]
            for solver in ("exact", "local")
        )
        assert exact <= local * (1 + 1e-9)
        assert local <= exact * 1.03
        optima += local <= exact * (1 + 1e-9)
    assert optima >= 57


@settings(max_examples=60)
@given(st.data())
def test_uneven_slots_move_the_boundaries_of_hosts(data: st.DataObject) -> None:
    """Tests that hosts keep their own slots whoever they change places with."""
    fabric = data.draw(fabrics(min_hosts=2, max_hosts=20))
    counts = tuple(data.draw(slot_counts(len(fabric.hosts))))
    given_ = tuple(data.draw(st.permutations(fabric.hosts)))
    first = data.draw(st.sampled_from(given_))
    asked = Constraints(pins=((0, first),))
    schedule = data.draw(schedules(sum(counts)))
    problem = Problem(fabric, given_, counts, asked, False, schedule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "EVALUATIONS", 400)
        patch.setattr(finalists, "OF_A_HOST", 1)
        found = problem.solve()
    slots = dict(zip(given_, counts, strict=True))
    assert found.order[0] == first
    assert found.slots == tuple(slots[name] for name in found.order)
    assert found.predicted["cloudcoll"] == pytest.approx(problem.seconds(found.order))


def slowed(fabric: Fabric, *names: str) -> Fabric:
    """Return the fabric with slow cards in these hosts."""

    def walk(node: Node) -> Node:
        rate = 1e6 if node.name in names else node.uplink_bytes_per_s
        return Node(
            node.name, tuple(map(walk, node.children)), rate, rate, node.latency_s
        )

    return Fabric(walk(fabric.root), origin="synthetic")


@pytest.mark.parametrize("sizes", [[5, 5, 5, 5], [40, 40, 40]], ids=str)
def test_slow_hosts_are_dropped(sizes: list[int]) -> None:
    """Tests that those who hold everyone up are left out, and named."""
    fabric = racks(sizes, seed=4)
    slow = fabric.hosts[1 :: len(fabric.hosts) // 4]
    take = sum(sizes) - len(slow)
    ring = build_schedule("allreduce", "ring", take, 16 << 20)
    fabric = slowed(fabric, *slow)
    first = next(name for name in sorted(fabric.hosts) if name not in slow)
    order = [first, *(name for name in sorted(fabric.hosts) if name != first)]
    found = solve(
        snapshot_of(fabric), ring, given=order, constraints=Constraints(take=take)
    )
    assert set(found.dropped) == set(slow)
    assert found.predicted["cloudcoll"] < 0.1 * found.predicted["given"]


def heard_of(fabric: Fabric, *silent: str) -> NetworkSnapshot:
    """Return a snapshot of all hosts in which nothing was measured of some."""
    talking = observe(fabric.restrict([n for n in fabric.hosts if n not in silent]))
    hosts = (*talking.hosts, *map(Host, silent))
    return NetworkSnapshot(hosts, rtt=talking.rtt, fabric=fabric)


@pytest.mark.parametrize("sizes", [[3, 4], [20, 20]], ids=str)
def test_hosts_of_which_nothing_is_known_are_left_out(sizes: list[int]) -> None:
    """Tests that a slow host is taken before one that was never heard of."""
    fabric = racks(sizes, seed=4)
    names = sorted(fabric.hosts)
    fabric = slowed(fabric, names[1])
    silent, take = names[2:4], len(names) - 2
    ring = build_schedule("allreduce", "ring", take, 16 << 20)
    constraints = Constraints(take=take)
    found = solve(heard_of(fabric, *silent), ring, given=names, constraints=constraints)
    assert list(found.dropped) == silent
    pinned = Constraints(take=take, pins=((1, silent[0]),))
    found = solve(heard_of(fabric, *silent), ring, given=names, constraints=pinned)
    assert found.order[1] == silent[0]
    assert silent[1] in found.dropped
    # All of them can not be left out: who is given first is taken.
    found = solve(
        heard_of(fabric, *names[2:5]), ring, given=names, constraints=constraints
    )
    assert list(found.dropped) == names[3:5]


def test_hosts_of_which_nothing_is_known_are_taken_where_needed() -> None:
    """Tests groups that fill both racks: one host of another has to go."""
    fabric = racks([4, 5], seed=4)
    small, large = (tuple(node.leaves()) for node in fabric.root.children)
    constraints = Constraints(take=8, same_rack=((0, 1, 2, 3), (4, 5, 6, 7)))
    ring = build_schedule("allreduce", "ring", 8, 16 << 20)
    found = solve(
        heard_of(fabric, small[2]),
        ring,
        given=[*large, *small],
        constraints=constraints,
    )
    assert small[2] in found.order


def test_hosts_of_as_few_racks_as_possible_are_taken() -> None:
    """Tests that a job of a rack's size gets a rack, that of rank 0."""
    fabric = racks([4, 8, 4], seed=5)
    home = next(n for n in fabric.root.children if len(n.children) == 8)
    first = home.children[3].name
    order = [first, *(name for name in sorted(fabric.hosts) if name != first)]
    ring = build_schedule("allreduce", "ring", 8, 16 << 20)
    found = solve(
        snapshot_of(fabric), ring, given=order, constraints=Constraints(take=8)
    )
    assert set(found.order) == set(home.leaves())


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_a_small_gain_moves_nobody(solver: str) -> None:
    """Tests both sides of the threshold, and what the map says of it."""
    fabric = racks([3, 3], nic=40e6, uplink=50e6, seed=1)
    order = [
        name
        for pair in zip(*(n.children for n in fabric.root.children), strict=True)
        for name in (pair[0].name, pair[1].name)
    ]
    ring = build_schedule("allreduce", "ring", 6, 16 << 20)

    def ask(share: float) -> RankMap:
        return solve(
            snapshot_of(fabric),
            ring,
            given=order,
            solver=solver,
            constraints=Constraints(keep_below=share),
        )

    free = ask(0.0)
    gain = 1 - free.predicted["cloudcoll"] / free.predicted["given"]
    assert 0.1 < gain < 0.9
    assert ask(gain - 0.01).order == free.order
    kept = ask(gain + 0.01)
    assert kept.order == tuple(order)
    assert kept.origin == "given"
    assert kept.reason.startswith("less than")
    assert kept.predicted["cloudcoll"] == kept.predicted["given"]


def test_a_gain_as_flows_alone_moves_ranks() -> None:
    """Tests orders that the cost model takes for equal, with a least gain to reach."""
    racks_ = [
        Node(
            rack,
            tuple(Node(name, (), 100.0, 100.0, delay) for name in rack),
            *(1000.0, 1000.0, 10.0),
        )
        for rack, delay in (("ab", 1.0), ("cd", 4.0))
    ]
    fabric = Fabric(Node("core", tuple(racks_)))
    step = Step(np.array([0, 2]), np.array([1, 3]), np.array([1000.0, 1.0]))
    sent = Schedule("allreduce", "test", "none", 4, 1, (step,))

    def ask(share: float) -> RankMap:
        return solve(
            snapshot_of(fabric),
            sent,
            given=tuple("cdab"),
            free_rank0=True,
            constraints=Constraints(keep_below=share),
        )

    assert ask(0.3).order[:2] == ("a", "b")
    assert ask(0.4).order == tuple("cdab")


@pytest.mark.parametrize(
    ("error", "confidence", "least"),
    [
        (0.2, 0.5, 0.2),  # what the fabric misses
        (0.2, math.nan, 0.2),
        (0.2, 0.95, 0.01),  # sure who shares a link
        (0.004, 0.5, 0.01),
        (0.9, 0.5, 0.5),
        (math.nan, math.nan, 0.01),  # described by hand
    ],
)
def test_the_least_gain_where_nobody_names_one(
    error: float, confidence: float, least: float
) -> None:
    """Tests it at both ends, and where the fabric says little of itself."""
    fabric = racks([3, 3], nic=40e6, uplink=50e6, seed=1)
    known = replace(fabric, holdout_error=error, confidence=confidence)
    assert least_gain(known) == least


def test_the_least_gain_without_a_fabric() -> None:
    assert least_gain(None) == 0.01


def test_towers_of_uneven_racks() -> None:
    """Tests five groups of four, which racks of 5, 6, 4 and 9 just hold."""
    fabric = racks([5, 6, 4, 9], seed=2)
    groups = tuple(tuple(range(first, first + 4)) for first in range(0, 20, 4))
    asked = Constraints(same_rack=groups, take=20)
    workload = ready_made("towers:tower=4", 20)
    found = solve(snapshot_of(fabric), workload, constraints=asked)
    racks_ = rack_of(fabric)
    for group in groups:
        assert len({racks_[found.order[rank]] for rank in group}) == 1


def test_groups_of_several_sizes_need_thought() -> None:
    """Tests 5, 5, 4, 4, 3, 3 in racks of 12: two fives in one leave a host over."""
    fabric = racks([12, 12], seed=2)
    ends = np.cumsum([5, 5, 4, 4, 3, 3]).tolist()
    groups = tuple(tuple(range(*ends_)) for ends_ in itertools.pairwise([0, *ends]))
    ring = build_schedule("allreduce", "ring", 24, 1 << 20)
    found = solve(snapshot_of(fabric), ring, constraints=Constraints(same_rack=groups))
    racks_ = rack_of(fabric)
    for group in groups:
        assert len({racks_[found.order[rank]] for rank in group}) == 1


def refused(constraints: Constraints, slots: Sequence[int] = (2,) * 5) -> str:
    ring = build_schedule("allreduce", "ring", 2 * min(constraints.take or 5, 5), 1024)
    snapshot = snapshot_of(racks([2, 2, 1]))
    with pytest.raises(UsageError) as caught:
        solve(snapshot, ring, constraints=constraints, slots=slots)
    return str(caught.value)


@pytest.mark.parametrize(("sizes", "more"), [([2, 2], ""), ([2, 2, 1], ", ...")])
def test_a_few_hosts_are_named_for_one_that_is_none(
    sizes: list[int], more: str
) -> None:
    """Tests four names, and that there are more of them where there are."""
    ring = build_schedule("allreduce", "ring", sum(sizes), 1024)
    with pytest.raises(UsageError) as caught:
        solve(snapshot_of(racks(sizes)), ring, constraints=Constraints(((1, "x"),)))
    names = ", ".join(f"vm-{number}" for number in range(1, 5))
    assert f"--pin 1=x: no such host (there are {names}{more})" in str(caught.value)


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        (Constraints(pins=((9, "x"),)), "--pin 9=x: no such host (there are vm-1"),
        (Constraints(pins=((10, "vm-2"),)), "--pin: no rank 10, they are 0 to 9"),
        (Constraints(pins=((-1, "vm-2"),)), "--pin: no rank -1, they are 0 to 9"),
        (
            Constraints(pins=((2, "vm-2"), (3, "vm-3"))),
            "--pin 3=vm-3: that place is vm-2's, as a host's ranks stay together",
        ),
        (
            Constraints(pins=((2, "vm-2"), (4, "vm-2"))),
            "--pin 4=vm-2: this host has another place already",
        ),
        (Constraints(pins=((4, "vm-1"),)), "it holds rank 0, the first host given"),
        (Constraints(take=6), "--take 6: there are 5 hosts to take from"),
        (Constraints(take=2, pins=((4, "vm-2"),)), "no rank 4, they are 0 to 3"),
        (Constraints(same_rack=((0, 10),)), "--same-rack: no rank 10"),
        (
            Constraints(same_rack=((0, 2, 4),)),
            "ranks 0, 1, 2, 3, 4, 5 need 3 hosts of one rack, the largest has 2",
        ),
        (
            Constraints(same_rack=((0, 2), (4, 6), (2, 4))),
            "ranks 0, 1, 2, 3, 4, 5, ... need 4 hosts of one rack",
        ),
    ],
)
def test_what_cannot_be_is_named(constraints: Constraints, said: str) -> None:
    """Tests constraints that contradict the hosts or each other."""
    assert said in refused(constraints)


def test_rooms_that_do_not_fit_beside_what_is_pinned() -> None:
    """Tests hosts pinned into one group from two racks, and racks too full."""
    fabric = racks([2, 2, 1])
    home = rack_of(fabric)
    first = "vm-1"
    other = next(name for name in sorted(home) if home[name] != home[first])
    pins = ((0, first), (2, other))
    said = refused(Constraints(pins=pins, same_rack=((0, 2),)))
    assert f"{first} and {other} are in different racks" in said
    pairs = ((2, 4), (6, 8))
    assert "groups of 2, 2 hosts do not fit into racks of 2, 2, 1 beside" in refused(
        Constraints(
            same_rack=pairs, pins=((0, fabric.root.children[0].children[0].name),)
        )
    )


def test_slots_that_differ() -> None:
    """Tests that only the first place can be pinned where slots are uneven."""
    for asked in (
        Constraints(pins=((2, "vm-2"),)),
        Constraints(take=4),
        Constraints(same_rack=((0, 2),)),
    ):
        assert "needs the same slots on every host" in refused(asked, (2, 2, 2, 1, 3))


def test_contradictions_are_found_without_a_network() -> None:
    """Tests what is wrong whatever the hosts."""
    with pytest.raises(UsageError, match="rank 1 on both a and b"):
        Constraints(pins=((1, "a"), (1, "b")))
    with pytest.raises(UsageError, match="at least one host"):
        Constraints(take=0)
    with pytest.raises(UsageError, match="--keep-below 150%"):
        Constraints(keep_below=1.5)


def test_rank_0_can_be_given_away() -> None:
    """Tests that a pin of rank 0 overrides the host given first, which then moves."""
    fabric = racks([3, 3], seed=1)
    names = sorted(fabric.hosts)
    ring = build_schedule("allreduce", "ring", 6, 1 << 20)
    pins = ((0, names[4]), (5, names[0]))
    found = solve(snapshot_of(fabric), ring, constraints=Constraints(pins=pins))
    assert (found.order[0], found.order[5]) == (names[4], names[0])
    assert found.constraints == {"pin": {"0": names[4], "5": names[0]}}
    assert "given" in found.breaking
    assert RankMap.from_json(found.to_json()) == found
