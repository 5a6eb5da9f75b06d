"""Put groups of hosts into racks that have only so many."""

from __future__ import annotations

import numpy as np

from cloudcoll.errors import UsageError
from cloudcoll.model.cost import Ints

LIMIT_S = 10.0
"""Seconds after which no further way is tried."""


def pack(sizes: Ints, space: Ints, liked: Ints) -> Ints | None:
    """Return the rack of each group, None where they do not fit.

    The largest choose first. Where that leads nowhere, which happens with groups
    of several sizes only, an integer program says how many of each size go into
    which rack.

    Parameters
    ----------
    sizes : ndarray of int64, shape (groups,)
        Hosts that a group needs, 1 or more.
    space : ndarray of int64, shape (racks,)
        Hosts that a rack has.
    liked : ndarray of int64, shape (groups, racks)
        What a group would rather have, the larger the better.

    Raises
    ------
    UsageError
        Whether they fit was not known after `LIMIT_S`.
    """
    kinds, kind = np.unique(sizes, return_inverse=True)
    # More groups than hosts are in no rack.
    found = _choose(sizes, kind, space, np.tile(space, (len(kinds), 1)), liked)
    if found is not None or len(kinds) == 1:
        return found
    counted = _quota(kinds, np.bincount(kind), space)
    return None if counted is None else _choose(sizes, kind, space, counted, liked)


def _choose(
    sizes: Ints, kind: Ints, space: Ints, quota: Ints, liked: Ints
) -> Ints | None:
    """Let each group take what it likes best of the racks with room left.

    `quota` has how many groups of each size a rack takes, shape (sizes, racks).
    """
    space, quota = space.copy(), quota.copy()
    racks = np.empty(len(sizes), dtype=np.int64)
    for group in np.argsort(-sizes, kind="stable"):
        fits = (space >= sizes[group]) & (quota[kind[group]] > 0)
        if not fits.any():
            return None
        rack = int(np.where(fits, liked[group], -1).argmax())
        racks[group] = rack
        space[rack] -= sizes[group]
        quota[kind[group], rack] -= 1
    return racks


def _quota(kinds: Ints, counts: Ints, space: Ints) -> Ints | None:
    """Return how many groups of each size go into each rack, None for no way."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    shape = (len(kinds), len(space))
    all_placed = np.kron(np.eye(shape[0]), np.ones(shape[1]))
    used = np.kron(kinds, np.eye(shape[1]))
    found = milp(
        np.zeros(shape[0] * shape[1]),
        integrality=np.ones(shape[0] * shape[1], dtype=np.int64),
        bounds=Bounds(0, np.inf),
        constraints=[
            LinearConstraint(all_placed, counts, counts),
            LinearConstraint(used, 0, space),
        ],
        options={"time_limit": LIMIT_S},
    )
    if found.x is None and found.status != 2:
        raise UsageError(
            f"whether groups of {', '.join(map(str, kinds))} hosts fit into "
            f"{len(space)} racks is not known after {LIMIT_S:g} s: ask for fewer groups"
        )
    return None if found.x is None else np.rint(found.x).astype(np.int64).reshape(shape)
