"""Do hosts still stand where a fabric has them? A few round trips of each tell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cloudcoll.measured.snapshot import RTT_QUANTILE, NetworkSnapshot
from cloudcoll.network.tree import Fabric

TOLERANCE = 0.25
"""Share by which a round trip may be another than the fabric's."""


def still_stands(fabric: Fabric, snapshot: NetworkSnapshot) -> bool:
    """Return whether new round trips leave hosts and latencies where they were.

    Not if two hosts of different switches are nearer to each other than before, which
    no noise makes them, nor if more than half of a host's round trips are longer.

    Parameters
    ----------
    fabric : Fabric
        Of the snapshot's hosts.
    snapshot : NetworkSnapshot
    """
    trips, column = snapshot.rtt, np.array([*map(fabric.position, snapshot.names)])
    ends = column[np.array([trips.src, trips.dst])]
    expected = fabric.links().trips(*ends)
    seconds = trips.quantile(RTT_QUANTILE)
    told = np.isfinite(seconds) & (expected > 0.0)
    ratio, ends = seconds[told] / expected[told], ends[:, told]
    a, b = _switches(fabric)[ends]
    if ((ratio < 1.0 - TOLERANCE) & (a != b)).any():
        return False
    longer = np.bincount(ends.ravel(), np.tile(ratio > 1.0 + TOLERANCE, 2))
    return bool((2 * longer <= np.bincount(ends.ravel())).all())


def _switches(fabric: Fabric) -> npt.NDArray[np.int64]:
    """Return the number of the switch of each host, by position."""
    groups = [node for level in fabric.groups() for node in level]
    switch = {
        child.name: number
        for number, node in enumerate(groups)
        for child in node.children
        if not child.children
    }
    return np.array([switch[name] for name in fabric.hosts])
