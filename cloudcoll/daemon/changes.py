"""Detect whether a figure has changed for good: a two-sided CUSUM.

E. S. Page, "Continuous inspection schemes", Biometrika 41 (1954): sums of what
departs from the usual by more than a slack grow without bound after a change
and fall back to zero without. The usual value and its spread are not known
beforehand; they are learnt while nothing changes (D. M. Hawkins,
"Self-starting CUSUM charts for location and scale", The Statistician 36, 1987).
Values are cut at `CLIP` spreads, so that no single one makes a change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.measured.snapshot import RTT_QUANTILE, NetworkSnapshot
from cloudcoll.network.tree import Fabric

FIRST = 3
"""Values whose median is the usual one in the beginning."""
SLACK = 0.5
"""Spreads that a value may depart at no charge: half of the least change that
matters (Page)."""
CLIP = 4.0
"""Spreads beyond which a value counts no more."""
LEARNT = 2.0
"""Spreads beyond which a value teaches no more of what is usual: a change must
not hide behind the spread that it makes itself."""
LIMIT = 13.0
"""Sum, in spreads, that is a change. For values of normal distribution one in
1.4 million crosses it without any (D. Siegmund, Sequential Analysis, 1985), and
after a large change the fourth."""
TORN = math.log(2.0)
"""Between the first values, it is a change as well: none of them is the usual."""
MEMORY = 0.05
"""Weight of a new value in what is usual: the last twenty or so count."""
LEAST_SPREAD = 0.05
"""What a probe of a fraction of a second can tell at best, relative."""
FIRST_SPREAD = 0.10
"""Spread that is believed until values say otherwise."""


@dataclass(frozen=True)
class Watched:
    """A series of logarithms of ratios, such as a rate over what it was.

    Attributes
    ----------
    first : tuple of float
        The first values, until there are `FIRST` of them.
    usual, spread : float
        Mean, and standard deviation, while nothing changes.
    above, below : float
        The two sums.
    last : float
        How many spreads the last value departed, at most `CLIP`.
    """

    first: tuple[float, ...] = ()
    usual: float = math.nan
    spread: float = FIRST_SPREAD
    above: float = 0.0
    below: float = 0.0
    last: float = 0.0

    @property
    def changed(self) -> bool:
        """Whether the series is not what it was."""
        torn = self.first and max(self.first) - min(self.first) > TORN
        return bool(torn) or max(self.above, self.below) > LIMIT

    @property
    def suspicious(self) -> bool:
        """Whether the last value departs so far that it is worth another look."""
        return abs(self.last) >= CLIP

    def afresh(self) -> Watched:
        """Return the series of which the noise alone is known."""
        return Watched(spread=self.spread)

    def after(self, value: float) -> Watched:
        """Return the series with one more value; NaN changes nothing."""
        if math.isnan(value):
            return self
        if len(self.first) < FIRST:
            first = (*self.first, value)
            return replace(self, first=first, usual=median(first))
        spread = max(self.spread, LEAST_SPREAD)
        departs = min(max((value - self.usual) / spread, -CLIP), CLIP)
        moved = min(max(departs, -LEARNT), LEARNT) * spread
        variance = (1 - MEMORY) * self.spread**2 + MEMORY * moved**2
        return replace(
            self,
            usual=self.usual + MEMORY * moved,
            spread=math.sqrt(variance),
            above=max(0.0, self.above + departs - SLACK),
            below=max(0.0, self.below - departs - SLACK),
            last=departs,
        )


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
    known = np.isfinite(seconds) & (expected > 0.0)
    ratio, ends = seconds[known] / expected[known], ends[:, known]
    a, b = _switches(fabric)[ends]
    if ((ratio < 1.0 - TOLERANCE) & (a != b)).any():
        return False
    longer = np.bincount(ends.ravel(), np.tile(ratio > 1.0 + TOLERANCE, 2))
    return bool((2 * longer <= np.bincount(ends.ravel())).all())


def _switches(fabric: Fabric) -> Ints:
    """Return the number of the switch of each host, by position."""
    groups = [node for level in fabric.groups() for node in level]
    switch = {
        child.name: number
        for number, node in enumerate(groups)
        for child in node.children
        if not child.children
    }
    return np.array([switch[name] for name in fabric.hosts])
