"""The best order of ten hosts or so, by branch and bound: a referee for searches.

Orders grow from the front. Of one that is not complete, the messages whose two ranks
have hosts are counted as the cost model counts them, and those of which one end has
a host as far as it is certain: they leave every group all of whose hosts are placed.
No host that comes later makes any of that less (Land and Doig 1960).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.model.cost import Cost, CostModel, FlatSteps

CHUNK = 1000
"""Orders that are bounded at once."""


def branch_and_bound(
    model: CostModel, starts: Sequence[Ints], pinned: int
) -> tuple[Ints, Cost]:
    """Return an order than which none is faster.

    The better the best start, the less is left to try. Hosts that differ in nothing
    but their name are tried in one order.

    Parameters
    ----------
    model : CostModel
    starts : sequence of ndarray of int64, shape (hosts,)
    pinned : int
        The first hosts of a start that stay in front.
    """
    flat = model.flat()
    twins, hosts = _earlier_twins(flat), len(flat.slots)
    best = min(starts, key=model.cost)
    cost = model.cost(best)
    if hosts - pinned < 2:
        return best, cost
    heads = {tuple(start[:pinned].tolist()) for start in starts}
    stack = [np.array([head], dtype=np.int64).reshape(1, pinned) for head in heads]
    while stack:
        prefixes = _longer(stack.pop(), twins)
        bounds = lower_bounds(flat, prefixes)
        promising = np.flatnonzero(bounds < cost[0] * (1 - 1e-9))
        # The best last: it is popped first.
        promising = promising[np.argsort(-bounds[promising], kind="stable")]
        if prefixes.shape[1] < hosts:
            cuts = range(0, len(promising), CHUNK // hosts)
            stack += [prefixes[promising[i : i + CHUNK // hosts]] for i in cuts]
        elif len(promising):
            best = prefixes[promising[-1]]
            cost = model.cost(best)
    return best, cost


def _earlier_twins(flat: FlatSteps) -> list[Ints]:
    """Return, for each host, those before it that differ in nothing but their name."""
    links, card = flat.links, flat.links.member[-1]
    traits = [
        (
            *links.member[:-1, host].tolist(),
            links.up[card[host]],
            links.down[card[host]],
            links.latency[card[host]],
            flat.slots[host],
        )
        for host in range(len(card))
    ]
    return [
        np.array([i for i in range(host) if traits[i] == traits[host]], dtype=np.int64)
        for host in range(len(card))
    ]


def _longer(prefixes: Ints, twins: list[Ints]) -> Ints:
    """Return the prefixes with one more host, twins in turn."""
    used = np.zeros((len(prefixes), len(twins)), dtype=bool)
    used[np.arange(len(prefixes))[:, None], prefixes] = True
    longer = [prefixes[:0, :1].reshape(0, prefixes.shape[1] + 1)]
    for host, before in enumerate(twins):
        rows = prefixes[~used[:, host] & used[:, before].all(axis=1)]
        longer.append(np.column_stack([rows, np.full(len(rows), host)]))
    return np.concatenate(longer)


def lower_bounds(flat: FlatSteps, prefixes: Ints) -> Floats:
    """Return seconds below which no order is that begins like this.

    Parameters
    ----------
    flat : FlatSteps
    prefixes : ndarray of int64, shape (orders, places)
        Hosts of the first places; of all places, and it is the order's time.

    Returns
    -------
    ndarray of float64, shape (orders,)
    """
    links, rows = flat.links, np.arange(len(prefixes))[:, None]
    host = _host_of_rank(flat, prefixes)
    src, dst = host[:, flat.src], host[:, flat.dst]
    width, ends = len(links.up), len(flat.phase)
    load = np.zeros((2, len(prefixes) * flat.phases * width))
    path, slowest = np.zeros(src.shape), np.zeros(src.shape)
    cell = (rows * flat.phases + flat.phase[flat.step]) * width
    for row in links.member:
        whole = _whole(row, prefixes, width)
        up, down = row[src], row[dst]
        apart = (src >= 0) & (dst >= 0) & (up != down)
        leaves = apart | ((src >= 0) & (dst < 0) & whole[rows, up])
        enters = apart | ((dst >= 0) & (src < 0) & whole[rows, down])
        for way, crosses, link, rate in (
            (0, leaves, up, links.up),
            (1, enters, down, links.down),
        ):
            size = np.broadcast_to(flat.size, src.shape)[crosses]
            load[way] += np.bincount((cell + link)[crosses], size, load.shape[1])
            path += crosses * links.latency[link]
            slowest = np.maximum(slowest, crosses / rate[link])
    path += slowest * flat.alone
    busy = load.reshape(2, len(prefixes), flat.phases, width)
    busy /= np.stack([links.up, links.down])[:, None, None, :]
    starts = np.searchsorted(flat.step, np.arange(ends))
    wait = np.maximum.reduceat(path, starts, axis=1) @ flat.wait_weight
    seconds: Floats = busy.max(axis=(0, 3)).sum(axis=1) + wait
    return seconds


def _host_of_rank(flat: FlatSteps, prefixes: Ints) -> Ints:
    """Return the host of every rank, -1 for none yet; shape (orders, ranks)."""
    slots = flat.slots[prefixes]
    ranks = slots.sum(axis=1)
    host = np.full((len(prefixes), int(flat.slots.sum())), -1)
    host[np.arange(host.shape[1]) < ranks[:, None]] = np.repeat(
        prefixes.ravel(), slots.ravel()
    )
    return host


def _whole(link_of_host: Ints, prefixes: Ints, links: int) -> Bools:
    """Return whether all hosts below each link are placed; shape (orders, links)."""
    placed = np.zeros((len(prefixes), links), dtype=np.int64)
    rows = np.broadcast_to(np.arange(len(prefixes))[:, None], prefixes.shape)
    np.add.at(placed, (rows, link_of_host[prefixes]), 1)
    all_placed: Bools = placed == np.bincount(link_of_host, minlength=links)
    return all_placed
