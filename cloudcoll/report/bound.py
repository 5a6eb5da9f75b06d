"""How far an order can be from perfect, in words. Loads no NumPy, for ``run``."""

from __future__ import annotations

import math

from cloudcoll.rankmap import RankMap
from cloudcoll.report import units

TELLING = 1.0
"""A gap above this says little of the order: the bound is a weak one."""


def gap_words(rank_map: RankMap) -> str:
    """Return a line such as ``at most 4 % from perfect``; empty if not known.

    Parameters
    ----------
    rank_map : RankMap
    """
    gap = rank_map.gap
    if math.isnan(gap):
        return ""
    if rank_map.is_perfect:
        return "perfect: no order is predicted to be faster"
    # Seconds that rest on assumed speeds are not shown.
    least = "" if rank_map.assumption else units.seconds(rank_map.lower_bound or 0.0)
    floor = f"no order takes less than {least}" if least else ""
    if gap > TELLING:
        return floor
    share = f"at most {max(math.ceil(100 * gap), 1)} % from perfect"
    return f"{share}: {floor}" if floor else share
