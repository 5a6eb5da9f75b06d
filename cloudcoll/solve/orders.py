"""Orders of hosts that need no search: the baselines, and where search starts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives.workload import Workload
from cloudcoll.hosts import natural_key
from cloudcoll.network.tree import Fabric, Node


def baseline_orders(given: Sequence[str], fabric: Fabric) -> dict[str, tuple[str, ...]]:
    """Return the orders that people use without a solver, by name.

    Parameters
    ----------
    given : sequence of str
        Host names as the user listed them.
    fabric : Fabric
        Of exactly these hosts.

    Returns
    -------
    dict
        ``given``; ``sorted`` by name as strings; ``natural``, by name with
        numbers as numbers; ``grouped``, hosts of one group side by side,
        otherwise as given.
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

    Moves of a host or two seldom find them: half of the hosts go elsewhere at once.

    Parameters
    ----------
    workload : Workload
    grouped : ndarray of int64, shape (hosts,)
        Positions of the hosts in the fabric, those of one switch side by side.
    slots : int
        Ranks on every host.

    Returns
    -------
    dict
        By what the groups are called.
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
