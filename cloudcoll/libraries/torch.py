"""Whether torch keeps groups in the order given: by version, one row for each way.

Read in torch 2.13 (``distributed_c10d.py``, ``device_mesh.py``): ``new_group`` keeps
the order of its list if it is told so, and ``DeviceMesh.from_group`` takes such
groups as they are. ``split_group``, and the groups that a DeviceMesh makes itself,
are still sorted by rank. Versions before it sort all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloudcoll.libraries.question import Version

__all__ = ["READ", "WAYS", "Way", "way_of"]


@dataclass(frozen=True)
class Way:
    """How the groups of a job get into an order.

    Attributes
    ----------
    since : tuple of int
        First version that has it.
    groups : bool
        Whether groups and meshes can be in an order of their own; else all are in
        that of the ranks, which are where the launcher put them.
    words : str
        What is done, for people.
    """

    since: Version
    groups: bool
    words: str


WAYS = (
    Way(
        (2, 13),
        groups=True,
        words="each in its own order, by new_group(sort_ranks=False) and from_group",
    ),
    Way((), groups=False, words="all in the order of ranks, which is the launcher's"),
)
"""The newest first."""

READ: Version = (2, 13)
"""Last version that was read."""


def way_of(version: Version) -> Way:
    """Return the way that a version of torch gets; those after `READ` get its own."""
    return next(way for way in WAYS if version[: len(way.since)] >= way.since)
