"""Orders of hosts that need no search: the baselines, and where search starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloudcoll.arrays import Bools, Ints
from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Workload
from cloudcoll.hosts import natural_key
from cloudcoll.model.cost import FlatSteps
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.solve.ring import best_ring
from cloudcoll.solve.ring.gates import visited
from cloudcoll.solve.rules import Rules


def baseline_orders(given: Sequence[str], fabric: Fabric) -> dict[str, tuple[str, ...]]:
    """Return the orders that people use without a solver, by name.

    ``given``; ``sorted`` by name as strings; ``natural``, by name with numbers as
    numbers; ``grouped``, hosts of one group of `fabric` side by side, otherwise as
    given.
    """
    return {
        "given": tuple(given),
        "sorted": tuple(sorted(given)),
        "natural": tuple(sorted(given, key=natural_key)),
        "grouped": grouped_order(given, fabric),
    }


def grouped_order(given: Sequence[str], fabric: Fabric) -> tuple[str, ...]:
    """Return the hosts group by group, each level in order of first appearance.

    The host given first stays first.
    """
    rank = {name: position for position, name in enumerate(given)}

    def walk(node: Node) -> tuple[str, ...]:
        if not node.children:
            return (node.name,)
        parts = sorted(map(walk, node.children), key=lambda part: rank[part[0]])
        return tuple(name for part in parts for name in part)

    return walk(fabric.root)


def laid_orders(workload: Workload, grouped: Ints, slots: int) -> dict[str, Ints]:
    """Return orders that put the ranks of each group of an operation side by side.

    By what the groups are called. Moves of a host or two seldom find them: half of the
    hosts go elsewhere at once. `grouped` has the positions of the hosts in the fabric,
    those of one switch side by side; every host has as many slots.
    """
    orders = {}
    for operation in workload.operations:
        ranks = np.concatenate(sorted(operation.groups, key=min))
        _, first = np.unique(ranks // slots, return_index=True)
        # The place that is asked for first gets the first host.
        order = np.empty_like(grouped)
        order[(ranks // slots)[np.sort(first)]] = grouped
        orders[operation.where] = order
    return orders


def random_orders(given: Sequence[str], count: int, seed: int) -> list[tuple[str, ...]]:
    """Return `count` random permutations; the same for the same seed."""
    generator = np.random.default_rng(seed)
    return [
        tuple(given[i] for i in generator.permutation(len(given))) for _ in range(count)
    ]


SEEDS = 6
"""Places from which a part is grown, at most; the best part is taken."""

PULLS = (2, 64)
"""What bytes to a part count against those to elsewhere: the first keeps the cut
small from place to place, the second keeps a part connected."""


@dataclass(frozen=True)
class HostTraffic:
    """Bytes between places of an order, both ways together.

    Integers, so that sums are the same on every machine.

    Attributes
    ----------
    first : ndarray of int64, shape (places + 1,)
        The partners of place ``i`` are ``partner[first[i]:first[i + 1]]``.
    partner : ndarray of int64, shape (pairs,)
    size : ndarray of int64, shape (pairs,)
        Bytes, and one for every message.
    """

    first: Ints
    partner: Ints
    size: Ints

    def row(self, place: int) -> tuple[Ints, Ints]:
        """Return the partners of a place, and what it trades with each."""
        row = slice(self.first[place], self.first[place + 1])
        return self.partner[row], self.size[row]

    def among(self, places: Ints) -> HostTraffic:
        """Return the traffic of some places, ascending, among each other."""
        number = np.full(len(self.first) - 1, -1)
        number[places] = np.arange(len(places))
        mine = np.repeat(number, np.diff(self.first))
        kept = (mine >= 0) & (number[self.partner] >= 0)
        ends = np.searchsorted(mine[kept], np.arange(len(places) + 1))
        return HostTraffic(ends, number[self.partner[kept]], self.size[kept])

    def toward(self, chosen: Bools) -> Ints:
        """Return what each place trades with the chosen ones, shape (places,)."""
        sums = np.cumsum(np.concatenate([[0], self.size * chosen[self.partner]]))
        found: Ints = sums[self.first[1:]] - sums[self.first[:-1]]
        return found


def traffic(flat: FlatSteps) -> HostTraffic:
    """Return what the places of an order trade; every host has the same slots."""
    hosts, slots = len(flat.slots), int(flat.slots[0])
    src, dst = flat.src // slots, flat.dst // slots
    size = np.rint(flat.size + flat.wait_weight[flat.step]).astype(np.int64)
    away = src != dst
    src, dst, size = src[away], dst[away], size[away]
    pairs, index = np.unique(
        np.concatenate([src * hosts + dst, dst * hosts + src]), return_inverse=True
    )
    sums = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(sums, index, np.tile(size, 2))
    ends = np.searchsorted(pairs // hosts, np.arange(hosts + 1))
    return HostTraffic(ends, pairs % hosts, sums)


def partitioned(flat: FlatSteps, front: int) -> Ints:
    """Return an order, `front` first, that keeps what is sent inside groups of hosts.

    `flat` has the same slots on every host.
    """
    hosts, member = len(flat.slots), flat.links.member
    order = np.empty(hosts, dtype=np.int64)

    def lay(depth: int, below: Ints, places: Ints, trade: HostTraffic) -> None:
        _, group, sizes = np.unique(
            member[depth, below], return_inverse=True, return_counts=True
        )
        if sizes.max() == 1:
            order[places] = below
            return
        ahead = group[below == front]
        for number, part in _parts(trade, sizes, ahead.item() if len(ahead) else -1):
            lay(depth + 1, below[group == number], places[part], trade.among(part))

    lay(0, np.arange(hosts), np.arange(hosts), traffic(flat))
    place = int(np.flatnonzero(order == front)[0])
    order[0], order[place] = order[place], order[0]
    return order


def _parts(trade: HostTraffic, sizes: Ints, ahead: int) -> Iterator[tuple[int, Ints]]:
    """Yield parts of the places, each by its number: the one ahead has place 0.

    The others follow, the largest first.
    """
    free = np.ones(len(trade.first) - 1, dtype=bool)
    for number in sorted(range(len(sizes)), key=lambda n: (n != ahead, -sizes[n])):
        size = int(sizes[number])
        if size == np.count_nonzero(free):
            part = free.copy()
        else:
            part = _best_part(trade, free, size, 0 if number == ahead else None)
        free &= ~part
        yield number, np.flatnonzero(part)


def _best_part(trade: HostTraffic, free: Bools, size: int, seed: int | None) -> Bools:
    """Return `size` free places that trade much with each other, little with others.

    Of those alike, the ones that trade most with earlier parts: the rest stays in
    one piece.
    """
    degree, taken = trade.toward(free), trade.toward(~free)
    found: list[tuple[int, int, Bools]] = []
    for start in _seeds(degree, taken, free) if seed is None else [seed]:
        for pull in PULLS:
            part = _grown(trade, degree, free, start, size, pull)
            inside = int(trade.toward(part)[part].sum())
            behind = int(taken[part].sum())
            outside = int(degree[part].sum()) - inside + behind
            found.append((outside - inside, -behind, part))
    return min(found, key=lambda entry: entry[:2])[2]


def _seeds(degree: Ints, taken: Ints, free: Bools) -> list[int]:
    """Return free places to grow from: loosest, next to earlier parts, spread out."""
    places = np.flatnonzero(free)
    chosen = [
        places[0],
        places[np.argmin(degree[places])],
        places[np.argmin(taken[places])],
        places[np.argmax(taken[places])],
        *places[:: -(-len(places) // SEEDS)],
    ]
    return [int(place) for place in dict.fromkeys(chosen)][:SEEDS]


def _grown(
    trade: HostTraffic, degree: Ints, free: Bools, seed: int, size: int, pull: int
) -> Bools:
    """Grow a part from one place, by the one that trades most with it each time."""
    part = np.zeros(len(free), dtype=bool)
    worst = np.iinfo(np.int64).min
    value = np.where(free, -degree, worst)
    place = seed
    for _ in range(size):
        part[place] = True
        value[place] = worst
        partners, sizes = trade.row(place)
        inside = free[partners] & ~part[partners]
        value[partners[inside]] += pull * sizes[inside]
        place = int(np.argmax(value))
    return part


KICKS = 20_000
"""Of the search for a ring: some 0.4 s for 1024 hosts."""


def starting_orders(
    sent: Schedule | Workload,
    baselines: dict[str, Ints],
    fabric: Fabric,
    rules: Rules,
    flat: FlatSteps,
) -> dict[str, Ints]:
    """Return orders that obey, the baselines among them wherever they do.

    Parameters
    ----------
    sent : Schedule or Workload
        For a workload, also each operation's groups on hosts of one switch.
    baselines : dict of str to ndarray of int64, shape (hosts,)
        With ``given`` and ``grouped``; positions of the hosts in the fabric.
    flat : FlatSteps
        What is sent, and the ranks of each host.

    Returns
    -------
    dict
        By name; that of the order given, or what is made of it, comes first.

    Raises
    ------
    UsageError
        No order obeys.
    """
    orders, grouped = dict(baselines), baselines["grouped"]
    if rules.seats < rules.hosts:
        orders["largest groups"] = _largest_first(grouped, rules)
        orders |= _without_the_slowest(orders, fabric, rules)
    even = len(set(flat.slots.tolist())) == 1
    if even:
        front = rules.pins.get(0, int(baselines["given"][0]))
        orders["partners in one group"] = partitioned(flat, front)
        ring = _fastest_ring(flat, baselines["given"])
        orders |= {} if ring is None else {"fastest ring": ring}
    if even and isinstance(sent, Workload):
        seated, bench = np.split(grouped, [rules.seats])
        laid = laid_orders(sent, seated, int(flat.slots[0]))
        orders |= {
            f"{name} side by side": np.concatenate([order, bench])
            for name, order in laid.items()
        }
    starts: dict[str, Ints] = {}
    for name, order in orders.items():
        starts |= _obeying(name, order, rules)
    return starts


def _obeying(name: str, order: Ints, rules: Rules) -> dict[str, Ints]:
    """Return the ways to start from an order that need not obey.

    A rotation keeps every ring as it is, swaps keep every other host in its
    place.
    """
    if rules.allows(order):
        return {name: order}
    ways = {f"{name}, swapped": rules.adapt(order)}
    if 0 in rules.pins:
        place = int(np.flatnonzero(order == rules.pins[0])[0])
        rotated = np.roll(order, -place)
        ways = {f"{name}, rotated": rules.adapt(rotated), **ways}
    return ways


def _fastest_ring(flat: FlatSteps, given: Ints) -> Ints | None:
    """Return the order whose slowest pair is fastest, None where none is a ring.

    Only of pairs is that known: links are shared, and have their own search.
    """
    if flat.pairs is None:
        return None
    slots = int(flat.slots[0])
    visits = visited(flat.src // slots, flat.dst // slots, len(flat.slots))
    if visits is None:
        return None
    seconds = flat.pairs.seconds(float(flat.sent.max()))
    order = np.empty_like(given)
    order[visits] = best_ring(
        seconds, objective="bottleneck", steps=KICKS, start=given[visits]
    )
    return order


def _largest_first(grouped: Ints, rules: Rules) -> Ints:
    """Return the order that takes hosts of as few groups as it can.

    The group of the host in front is the first of them.
    """
    size = np.bincount(rules.rack)[rules.rack[grouped]]
    if 0 in rules.pins:
        size[rules.rack[grouped] == rules.rack[rules.pins[0]]] = rules.hosts
    return grouped[np.lexsort((rules.rack[grouped], -size))]


def _without_the_slowest(
    orders: Mapping[str, Ints], fabric: Fabric, rules: Rules
) -> dict[str, Ints]:
    """Return orders with the slowest cards, or the latest, on the bench.

    A search seldom finds them: with two slow hosts, to drop one gains nothing.
    """
    cards = {
        child.name: child
        for level in fabric.groups()
        for group in level
        for child in group.children
    }
    nodes = [cards[name] for name in fabric.hosts]
    rate = [min(n.uplink_bytes_per_s, n.downlink_bytes_per_s) for n in nodes]
    latency = [n.latency_s for n in nodes]
    found = {}
    for what, slow in (("slowest", -np.array(rate)), ("latest", np.array(latency))):
        slow = np.where(np.isnan(slow), -np.inf, slow)
        slow[list(rules.pins.values())] = -np.inf
        for name, order in orders.items():
            # Of those alike the last ones go; the worst stand at the very end.
            bench = np.argsort(slow[order], kind="stable")[rules.seats :]
            kept = np.delete(order, bench)
            found[f"{name} without the {what}"] = np.append(kept, order[bench])
    return found
