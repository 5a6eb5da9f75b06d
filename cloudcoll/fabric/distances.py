"""How far apart hosts look: in round trips, and in how they share links."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cloudcoll.fabric.measured import Measured

STARVED = 8.0
"""A flow slower than this share of its hosts' NICs counts as just that slow."""

Floats = npt.NDArray[np.float64]


def trip_distance(rtt: Floats) -> Floats:
    """Return a full symmetric matrix of round trips, in seconds.

    A missing pair gets the longest leg of the path between them that has the
    shortest longest leg: in a tree of switches a third host of either group
    gives exactly the pair's own figure. That leg is the height at which
    single linkage joins the two.

    Parameters
    ----------
    rtt : ndarray of float64, shape (hosts, hosts)
        Symmetric; NaN where not measured.
    """
    from scipy.cluster.hierarchy import cophenet, linkage
    from scipy.spatial.distance import squareform

    full = rtt.copy()
    np.fill_diagonal(full, 0.0)
    missing = np.isnan(full)
    if missing.all(axis=None) or not missing.any():
        return full
    far = 2.0 * np.nanmax(full) + 1e-6  # longer than any: joins what nothing joins
    full[missing] = far
    joined = squareform(cophenet(linkage(squareform(full, checks=False), "single")))
    full[missing] = joined[missing]
    full[full == far] = full[full < far].max()
    return full


def load_distance(seen: Measured) -> Floats | None:
    """Return the time per byte of each pair under load, 1 for a free path.

    The mean over a pair's flows of what their NICs could carry over what they
    got. Hosts on one switch meet nothing but their NICs; others share links
    and get less, sometimes. NaN for a pair that never sent; None where no flow
    ran at all.

    Parameters
    ----------
    seen : Measured
    """
    if not len(seen.rate):
        return None
    hosts = len(seen.names)
    card = np.zeros(hosts)
    # Both directions together: one host may never have sent within its rack.
    np.maximum.at(card, seen.src, seen.rate)
    np.maximum.at(card, seen.dst, seen.rate)
    free = np.minimum(card[seen.src], card[seen.dst])
    slowness = np.clip(free / seen.rate, 1.0, STARVED)
    total, count = np.zeros((hosts, hosts)), np.zeros((hosts, hosts))
    np.add.at(total, (seen.src, seen.dst), slowness)
    np.add.at(count, (seen.src, seen.dst), 1.0)
    total, count = total + total.T, count + count.T
    mean = np.divide(total, count, out=np.full_like(total, math.nan), where=count > 0)
    np.fill_diagonal(mean, 0.0)
    return mean
