"""Do hosts still stand where a fabric has them? A few round trips of each tell."""

from __future__ import annotations

import numpy as np

from cloudcoll.fabric.tree import Fabric
from cloudcoll.snapshot import RTT_QUANTILE, NetworkSnapshot

TOLERANCE = 0.25
"""Share by which a round trip may be another than the fabric's."""


def still_stands(fabric: Fabric, snapshot: NetworkSnapshot) -> bool:
    """Return whether new round trips leave hosts and latencies where they were.

    Not if any two hosts are nearer to each other than before, which no noise
    makes them, nor if half of a host's round trips are others than they were.

    Parameters
    ----------
    fabric : Fabric
        Of the snapshot's hosts.
    snapshot : NetworkSnapshot
    """
    trips, column = snapshot.rtt, np.array([*map(fabric.position, snapshot.names)])
    ends = np.array([trips.src, trips.dst])
    seconds = trips.quantile(RTT_QUANTILE)
    expected = fabric.links().trips(*column[ends])
    told = np.isfinite(seconds) & (expected > 0.0)
    ratio, ends = seconds[told] / expected[told], ends[:, told]
    if (ratio < 1.0 - TOLERANCE).any():
        return False
    far = np.bincount(ends.ravel(), np.tile(ratio > 1.0 + TOLERANCE, 2))
    return bool((2 * far <= np.bincount(ends.ravel())).all())
