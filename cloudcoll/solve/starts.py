"""Where a search starts: the baselines and more, made to obey its rules."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Workload
from cloudcoll.model.cost import FlatSteps, Ints
from cloudcoll.network.tree import Fabric
from cloudcoll.solve.orders import laid_orders
from cloudcoll.solve.partition import partitioned
from cloudcoll.solve.ring import best_ring
from cloudcoll.solve.ring.threshold import visited
from cloudcoll.solve.rules import Rules

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
    fabric : Fabric
    rules : Rules
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
