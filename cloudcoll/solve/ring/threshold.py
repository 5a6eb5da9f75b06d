"""What is a ring, and what the slowest pair of any costs at least."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def visited(src: Ints, dst: Ints, places: int) -> Ints | None:
    """Return the places as one ring of messages visits them, from place 0.

    Parameters
    ----------
    src, dst : ndarray of int64, shape (messages,)
        What stays at a place does not count.
    places : int

    Returns
    -------
    ndarray of int64, shape (places,), or None
        None where the messages are no ring of all places.
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
    """Return the least t at which the pairs up to t may hold a ring.

    Where both directions are alike, these pairs have to be a biconnected graph:
    no host is a cut vertex of a ring. Where they differ, too, in one direction or
    the other; besides, every host has to reach every other one, and a matching has
    to give each a host to send to.

    Parameters
    ----------
    seconds : array_like of float, shape (hosts, hosts)
        From one host (row) to another; the diagonal does not matter. No NaN.

    Returns
    -------
    float
        Seconds, one of the matrix; 0 for a single host.
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
