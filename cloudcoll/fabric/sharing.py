"""Who shares a switch, by loaded rounds alone.

Flows between hosts of one switch meet nothing but their NICs; flows that leave
it are slow whenever others fill the uplink. So one slow flow speaks strongly
against a common switch, a fast one a little for it: by how much, follows from
how often flows between groups are fast. The best partition has the highest
likelihood ratio against a network in which groups mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cloudcoll.fabric.measured import Measured

SLOW = 1.35
"""Times what the NICs would take from which a flow was held back elsewhere."""

FALSE_ALARM = 0.02
"""Share of flows on one switch that are slow all the same."""

COVERED = 1 / 3
"""Share of the pairs that must have sent for their rounds to show groups."""

ROUNDS = 4
"""Times that groups and the share of fast flows between them are refined."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def load_splitter(
    seen: Measured, hosts: Ints
) -> Callable[[Sequence[int]], list[list[int]] | None]:
    """Return what splits some of `hosts` into groups that share a switch.

    Parameters
    ----------
    seen : Measured
    hosts : ndarray of int64
        Positions in `seen`; what is split are positions in these.

    Returns
    -------
    callable
        From positions to the groups among them, None where the rounds show
        none.
    """
    fast, slow = _counts(seen)
    fast, slow = fast[np.ix_(hosts, hosts)], slow[np.ix_(hosts, hosts)]

    def split(items: Sequence[int]) -> list[list[int]] | None:
        chosen = np.ix_(items, items)
        parts = _partition(fast[chosen], slow[chosen])
        if parts is None:
            return None
        return [[items[i] for i in part] for part in parts]

    return split


def _counts(seen: Measured) -> tuple[Floats, Floats]:
    """Return how many fast and how many slow flows each pair of hosts had."""
    hosts = len(seen.names)
    card = np.zeros(hosts)
    # Both directions together: one host may never have sent within its rack.
    np.maximum.at(card, seen.src, seen.rate)
    np.maximum.at(card, seen.dst, seen.rate)
    late = np.minimum(card[seen.src], card[seen.dst]) > SLOW * seen.rate
    counts = []
    for kind in (~late, late):
        count = np.zeros((hosts, hosts))
        np.add.at(count, (seen.src[kind], seen.dst[kind]), 1.0)
        # A host shares nothing with itself, whatever a file says.
        np.fill_diagonal(count, 0.0)
        counts.append(count + count.T)
    return counts[0], counts[1]


def _partition(fast: Floats, slow: Floats) -> list[list[int]] | None:
    """Return the likeliest groups; None if they are not worth their names."""
    hosts = len(fast)
    known = np.count_nonzero(fast + slow)
    if hosts < 3 or known < COVERED * hosts * (hosts - 1) or not slow.any():
        return None
    labels = np.arange(hosts)
    for _ in range(ROUNDS):
        apart = labels[:, None] != labels
        share = _share(fast[apart], slow[apart])
        worth = fast * math.log((1 - FALSE_ALARM) / share)
        worth += slow * math.log(FALSE_ALARM / (1 - share))
        found = _improved(worth, _linked(worth))
        if (found == labels).all():
            break
        labels = found
    groups = int(labels.max()) + 1
    apart = labels[:, None] != labels
    gain = (
        _likelihood(fast[~apart], slow[~apart], 1 - FALSE_ALARM)
        + _likelihood(fast[apart], slow[apart], _share(fast[apart], slow[apart]))
        - _likelihood(fast, slow, _share(fast, slow))
    ) / 2.0  # each pair stands in the matrix twice
    # A host that is slow by itself has a busy card, not a link to share. To say
    # which host is in which group takes hosts * log(groups) nats.
    several = np.count_nonzero(np.bincount(labels) > 1)
    if several < 2 or gain < hosts * math.log(groups):
        return None
    return [np.flatnonzero(labels == group).tolist() for group in range(groups)]


def _share(fast: Floats, slow: Floats) -> float:
    """Return the share of fast flows, never quite 0 or 1."""
    return float((fast.sum() + 1.0) / (fast.sum() + slow.sum() + 2.0))


def _likelihood(fast: Floats, slow: Floats, share: float) -> float:
    """Return the log-likelihood of flows of which `share` should be fast."""
    return float(fast.sum() * math.log(share) + slow.sum() * math.log(1 - share))


def _linked(worth: Floats) -> Ints:
    """Return the cut of an average linkage that is worth most, as labels."""
    from scipy.cluster.hierarchy import cut_tree, linkage
    from scipy.spatial.distance import squareform

    distance = worth.max() - worth
    np.fill_diagonal(distance, 0.0)
    cuts = cut_tree(linkage(squareform(distance, checks=False), "average"))
    gains = [worth[cut[:, None] == cut].sum() for cut in cuts.T]
    labels: Ints = cuts[:, int(np.argmax(gains))]
    return labels


def _improved(worth: Floats, labels: Ints) -> Ints:
    """Move single hosts and join groups as long as that is worth something."""
    labels = labels.copy()
    # Each step gains; the bound is for gains that rounding makes up.
    for _ in range(len(labels) ** 2):
        labels = np.unique(labels, return_inverse=True)[1]
        # One column more: a group of its own.
        member = np.eye(int(labels.max()) + 2)[labels]
        gains = worth @ member
        moves = gains - gains[np.arange(len(labels)), labels][:, None]
        joins = np.triu(member.T @ gains, 1)
        if max(moves.max(), joins.max()) <= 1e-9:
            return labels
        if moves.max() >= joins.max():
            host, target = np.unravel_index(moves.argmax(), moves.shape)
            labels[host] = target
        else:
            one, other = np.unravel_index(joins.argmax(), joins.shape)
            labels[labels == other] = one
    return np.unique(labels, return_inverse=True)[1]
