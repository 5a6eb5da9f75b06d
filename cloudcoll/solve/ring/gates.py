"""Rings laid through the few fast pairs that lead from one group to another.

Where hosts lie in racks and pods, most pairs of two pods are slow, and a ring needs
some of the rare fast ones. A search that changes few pairs at a time hardly ever
meets a set of them that goes round, so such a set is chosen first: a closed walk
through all groups. Inside the groups there is choice enough for the search.
"""

from __future__ import annotations

import random
from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from cloudcoll.arrays import Bools, Floats, Ints


def visited(src: Ints, dst: Ints, places: int) -> Ints | None:
    """Return the places as one ring of messages visits them, from place 0.

    What stays at a place does not count. None where messages are no ring of all places.
    """
    away = src != dst
    following = np.full(places, -1)
    following[src[away]] = dst[away]
    if (following < 0).any() or (following[src[away]] != dst[away]).any():
        return None
    ring = [0]
    while (place := int(following[ring[-1]])) != 0 and len(ring) < places:
        ring.append(place)
    return np.array(ring) if len(set(ring)) == places else None


def bottleneck_bound(seconds: npt.ArrayLike) -> float:
    """Return the least t at which the pairs up to t may hold a ring, in seconds.

    Where both directions are alike, these pairs have to be a biconnected graph:
    no host is a cut vertex of a ring. Where they differ, too, in one direction or
    the other; besides, every host has to reach every other one, and a matching has
    to give each a host to send to. `seconds`, shape (hosts, hosts), are from one host
    (row) to another; the diagonal does not matter. No NaN.
    """
    times = np.array(seconds, dtype=np.float64)
    if len(times) < 2:
        return 0.0
    np.fill_diagonal(times, np.inf)
    # Each host has a pair of its own in and one out.
    least = max(times.min(axis=0).max(), times.min(axis=1).max())
    levels = np.unique(times[(times >= least) & np.isfinite(times)])
    return float(levels[bisect_left(levels, True, key=lambda t: _fits(times <= t))])


def _fits(graph: Bools) -> bool:
    if not _biconnected(graph | graph.T):
        return False
    return np.array_equal(graph, graph.T) or _strongly_matched(graph)


def _strongly_matched(graph: Bools) -> bool:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

    pairs = csr_array(graph.astype(np.int8))
    parts, _ = connected_components(pairs, connection="strong")
    return parts == 1 and bool((maximum_bipartite_matching(pairs) >= 0).all())


def _biconnected(graph: Bools) -> bool:
    """Whether no host alone holds an undirected graph together.

    Two spanning forests, the second of what the first leaves, are biconnected
    where the graph is, if they are scan-first as breadth-first ones are (Cheriyan,
    Kao and Thurimella 1993): of a million pairs some thousand remain to be looked at.
    """
    import networkx

    left, kept = graph.copy(), networkx.empty_graph(len(graph))
    for _ in range(2):
        edges = _forest(left)
        kept.add_edges_from(edges)
        for one, other in edges:
            left[one, other] = left[other, one] = False
    return bool(networkx.is_biconnected(kept))


def _forest(graph: Bools) -> list[tuple[int, int]]:
    """Return the edges of a breadth-first tree of each part of a graph."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    pairs = csr_array(graph.astype(np.int8))
    _, part = connected_components(pairs, directed=False)
    edges: list[tuple[int, int]] = []
    for root in np.unique(part, return_index=True)[1].tolist():
        reached, parent = breadth_first_order(pairs, root)
        edges += [(int(parent[host]), int(host)) for host in reached[1:]]
    return edges


Pair = tuple[int, int]

GAP = 1.2
"""Groups are those that are joined by pairs so much slower than the pairs inside."""

PAIRS = 8
"""Pairs from one group to another that a walk may take, the fastest."""

TRIES = 200
"""Walks begun before there seems to be none."""


def groups(times: Floats, most: float) -> Ints:
    """Return the group of each host: groups are joined by pairs far below `most`.

    Single linkage, cut at the last gap between its levels up to `most`; all 0 where
    there is no gap. `times`, shape (hosts, hosts), are seconds, 0 on the diagonal;
    there are two hosts or more.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    tree = linkage(squareform(np.minimum(times, times.T), checks=False), "single")
    levels = tree[:, 2][tree[:, 2] <= most]
    gaps = np.flatnonzero(levels[1:] > GAP * levels[:-1])
    if not len(gaps):
        return np.zeros(len(times), dtype=np.int64)
    cut = float(levels[gaps[-1]])
    return np.asarray(fcluster(tree, cut, "distance"), dtype=np.int64) - 1


def laid(times: Floats, most: float, ring: Ints, seed: int) -> Ints | None:
    """Return a ring whose pairs between groups take `most` seconds at most.

    In the order of `ring` the hosts of a group follow one another, where they can. None
    where there are no groups, or no walk was found.
    """
    group = groups(times, most)
    sizes = np.bincount(group)
    if len(sizes) < 2:
        return None
    ways = _ways(times, most, group)
    draw = random.Random(seed)
    for _ in range(TRIES):
        walk = _ClosedWalk(ways, group, sizes, draw)
        if walk.closed():
            return _filled(walk.pairs, group, ring)
    return None


def _ways(times: Floats, most: float, group: Ints) -> list[list[Pair]]:
    """Return the pairs that lead out of each group, a few to each other one."""
    src, dst = np.nonzero((times <= most) & (group[:, None] != group))
    fastest = np.argsort(times[src, dst], kind="stable")
    count: dict[Pair, int] = {}
    ways: list[list[Pair]] = [[] for _ in range(int(group.max()) + 1)]
    for one, other in zip(src[fastest].tolist(), dst[fastest].tolist(), strict=True):
        ends = int(group[one]), int(group[other])
        count[ends] = count.get(ends, 0) + 1
        if count[ends] <= PAIRS:
            ways[ends[0]].append((one, other))
    return ways


class _ClosedWalk:
    """A closed walk of pairs between groups that grows by one detour after another.

    A host is entered or left once, both only where it is all of its group: between
    the two hosts at which a group is passed there is room for the others.
    """

    def __init__(
        self, ways: list[list[Pair]], group: Ints, sizes: Ints, draw: random.Random
    ) -> None:
        self.pairs: list[Pair] = []
        self._ways = ways
        self._group = group.tolist()
        self._sizes = sizes.tolist()
        self._draw = draw
        self._taken: set[int] = set()
        self._reached = {self._sizes.index(max(self._sizes))}

    def closed(self) -> bool:
        """Lead through all groups; False where no detour leads on."""
        while len(self._reached) < len(self._sizes):
            onward = [
                pair
                for group in sorted(self._reached)
                for pair in self._ways[group]
                if self._group[pair[1]] not in self._reached
            ]
            self._draw.shuffle(onward)
            if not any(self._goes_round(pair) for pair in onward):
                return False
        return True

    def _goes_round(self, pair: Pair) -> bool:
        """Add a detour that begins with a pair; False where none comes back."""
        detour = None if self._used(pair) else self._detour(pair)
        if detour is None:
            return False
        # The walk leaves the group here anyway; from a group of one host, which is
        # used by then, no detour begins.
        left = [self._group[left] for left, _ in self.pairs]
        at = left.index(self._group[pair[0]]) if left else 0
        self.pairs[at:at] = detour
        self._taken.update(host for step in detour for host in step)
        self._reached.update(self._group[entered] for _, entered in detour)
        return True

    def _used(self, pair: Pair) -> bool:
        return not self._taken.isdisjoint(pair)

    def _detour(self, first: Pair) -> list[Pair] | None:
        """Return a way back to the group where a pair begins.

        Depth first: through groups not reached so far while that goes on, since
        each detour takes two hosts of the group it leaves, then home.
        """
        home = self._group[first[0]]
        came: dict[int, Pair] = {}
        stack = [first]
        while stack:
            pair = stack.pop()
            here = self._group[pair[1]]
            if here in came:
                continue
            came[here] = pair
            if here == home:
                return self._back(came, first)
            onward = self._onward(here, pair[1], first[0])
            stack += sorted(onward, key=lambda p: self._wish(self._group[p[1]], home))
        return None

    def _onward(self, group: int, arrived: int, barred: int) -> list[Pair]:
        """Return the pairs that may follow where a group was entered, shuffled."""
        alone = self._sizes[group] == 1
        pairs = [
            pair
            for pair in self._ways[group]
            if alone == (pair[0] == arrived)
            and pair[1] != barred
            and not self._used(pair)
        ]
        self._draw.shuffle(pairs)
        return pairs

    def _wish(self, group: int, home: int) -> int:
        return int(group == home) if group in self._reached else 2

    def _back(self, came: dict[int, Pair], first: Pair) -> list[Pair]:
        pairs = [came[self._group[first[0]]]]
        while pairs[-1] != first:
            pairs.append(came[self._group[pairs[-1][0]]])
        return pairs[::-1]


def _filled(walk: list[Pair], group: Ints, ring: Ints) -> Ints:
    """Return the ring of a walk: the rest of a group where it is first passed."""
    gates = {host for pair in walk for host in pair}
    rest: dict[int, list[int]] = {}
    for host in ring.tolist():
        if host not in gates:
            rest.setdefault(int(group[host]), []).append(host)
    hosts: list[int] = []
    for (_, entered), (left, _) in zip(walk, walk[1:] + walk[:1], strict=True):
        hosts.append(entered)
        if left != entered:
            hosts += [*rest.pop(int(group[entered]), []), left]
    return np.array(hosts)
