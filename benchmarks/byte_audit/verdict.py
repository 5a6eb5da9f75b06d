"""How far counted bytes are from a schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SLACK = 4096.0
"""Bytes of a call that headers and hand-shakes of a library may take."""
SHARE = 0.05
"""Of a pair's bytes, besides `SLACK`."""
STRAY = 0.01
"""Of the busiest pair's bytes, besides `SLACK`, where nothing should go."""

HEADER = (8.0, 100.0)
"""Bytes of a message without content, and of its acknowledgement if it has one (Open
MPI's synchronous ones), with the libraries' headers: at least, at most."""


@dataclass(frozen=True)
class Verdict:
    """How far counted bytes are from a schedule.

    Attributes
    ----------
    error : float
        Of the pair that is farthest off, as a share of its scheduled bytes.
    stray : float
        Most bytes between a pair of which the schedule says nothing.
    good : bool
        All pairs are within the limits.
    """

    error: float
    stray: float
    good: bool


def judge(
    sent: npt.NDArray[np.float64],
    planned: npt.NDArray[np.float64],
) -> Verdict:
    """Compare what was sent with what was planned, both of shape (hosts, hosts)."""
    off = np.abs(sent - planned)
    named = planned > 0
    limit = np.where(named, SHARE * planned, STRAY * planned.max()) + SLACK
    share = off[named] / planned[named]
    return Verdict(
        float(share.max(initial=0.0)),
        float(off[~named].max(initial=0.0)),
        bool((off <= limit).all()),
    )


def judge_messages(
    sent: npt.NDArray[np.float64], messages: npt.NDArray[np.float64]
) -> Verdict:
    """Compare what was sent with messages that have no bytes but their headers.

    Each pair has to carry something for each message, and nothing goes between two
    hosts but messages and their acknowledgements.
    """
    named = messages > 0
    silent = named & (sent < HEADER[0] * messages)
    most = HEADER[1] * (messages + messages.T)
    return Verdict(
        float(silent.any()),
        float(sent[~named].max(initial=0.0)),
        bool(not silent.any() and (sent <= most).all()),
    )
