"""Collectives of a job that calls them in several groups at once.

What each message carries is proved for the family (tests/schedule), so it is
left out here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cloudcoll.errors import UsageError
from cloudcoll.schedule import Schedule, build_schedule
from cloudcoll.schedule.steps import Ints, Step


@dataclass(frozen=True)
class Operation:
    """One collective, called in several groups at once.

    Attributes
    ----------
    collective, algorithm : str
        Keys of `SCHEDULES`.
    size : int
        Bytes of each group's full vector.
    groups : ndarray of int64, shape (groups, group size)
        World ranks; no rank is in two groups.
    calls : int
        How often it is called in a step of the training.
    """

    collective: str
    algorithm: str
    size: int
    groups: Ints
    calls: int = 1

    def schedule(self, ranks: int) -> Schedule:
        """Return one call in all groups, as a schedule of the whole job.

        Parameters
        ----------
        ranks : int
            The job's world size.

        Raises
        ------
        UsageError
            Unknown names, a rank that the job lacks, or in two groups.
        """
        name = f"{self.collective} {self.algorithm}"
        members = self.groups.ravel()
        if len(members) and not 0 <= members.min() <= members.max() < ranks:
            raise UsageError(f"{name}: groups name ranks beyond 0 to {ranks - 1}")
        twice = np.flatnonzero(np.bincount(members) > 1)
        if len(twice):
            raise UsageError(f"{name}: rank {twice[0]} is in two groups")
        inner = build_schedule(
            self.collective, self.algorithm, self.groups.shape[1], self.size
        )
        steps = tuple(_spread(step, self.groups) for step in inner.steps)
        return replace(inner, ranks=ranks, steps=steps)


def _spread(step: Step, groups: Ints) -> Step:
    """Return a step of one group's ranks as the same step of all groups."""
    return Step(
        groups[:, step.src].ravel(),
        groups[:, step.dst].ravel(),
        np.tile(step.size, len(groups)),
        step.repeat,
    )
