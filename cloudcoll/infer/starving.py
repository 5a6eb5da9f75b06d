"""What it says of the links that some paced flows starve.

Behind a policer TCP either gets through at its pace or waits for its timer nearly all
the time: there is little between. On a full link as many flows get through as it has
room for, seldom fewer; which of them is chance. So a partition of hosts is judged by
how many starve where it says that a link is full, and by whether any do elsewhere.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.infer.fit import Fit
from cloudcoll.infer.holdout import Figures

CHANCES = 1.0 / (1.0 + np.exp(-np.linspace(-4.5, 4.5, 14)))
"""Of what is not expected, tried where the likeliest is sought: 1 to 99 %, evenly in
log odds."""

FREE = 0.85
"""Of its pace that a flow is due from which it is expected to get through. Cards turn
out to carry .9 to 1.1 of it."""

AT_MOST = 0.98
"""Chance that one more flow gets through, or does not, as links' rates are estimates:
so many of the flows that nothing holds back get through."""

FEWER = 0.9
"""Share of the cases that are not as expected in which fewer flows get through: TCP
may starve although there is room, but not get through where there is none."""

FREELY, ON_FULL = 0, 1
"""Of the kinds of `cloudcoll.infer.explain.Explained` those that there are: flows that
nothing holds back, and those on a full link together."""


def starving(
    seen: Figures, fit: Fit, by_group: Bools, round_: Ints, shape: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Return log likelihoods of who starved, and how many flows count as what.

    Parameters
    ----------
    seen : Figures
        Of paced flows.
    fit : Fit
        Links of some groups, and what they make of these flows.
    by_group : ndarray of bool, shape (flows,)
        Which of them a group's link holds back.
    round_ : ndarray of int64, shape (flows,)
        The round of each flow, numbered from 0.
    shape : (int, int)
        How many kinds and rounds there are.

    Returns
    -------
    nats : ndarray of float64, shape (kinds, len(CHANCES), rounds)
        For each chance of what is not expected.
    meetings : ndarray of float64, shape (kinds, rounds)
        Two flows of a pair are one.
    """
    kinds, rounds = shape
    through = seen.through
    full = by_group & (fit.due < FREE * seen.pace)
    kind = np.where(full, ON_FULL, FREELY)
    case = fit.limits[full] * rounds + round_[full]
    cases, case, count = np.unique(case, return_inverse=True, return_counts=True)
    room = np.bincount(case, fit.due[full], len(cases)) / seen.pace
    got = np.bincount(case, through[full], len(cases)).astype(np.int64)
    single = np.where(through[~full], np.log1p(-_CHANCE), np.log(_CHANCE))
    nats = np.concatenate([single, _on_full(room, count, got)], axis=1)
    flows = kind * rounds + round_
    place = np.concatenate([flows[~full], ON_FULL * rounds + cases % rounds])
    places = place + kinds * rounds * np.arange(len(CHANCES))[:, None]
    total = np.bincount(places.ravel(), nats.ravel(), nats.shape[0] * kinds * rounds)
    by_chance = total.astype(np.float64).reshape(len(CHANCES), kinds, rounds)
    met = np.bincount(flows, np.full(len(flows), 0.5), kinds * rounds)
    return by_chance.swapaxes(0, 1).copy(), met.astype(np.float64).reshape(kinds, -1)


_CHANCE = CHANCES[:, None]


def _on_full(room: Floats, count: Ints, got: Ints) -> Floats:
    """Return the log likelihoods of which flows got through some full links.

    Shape (chances, links): of `count` flows `got`, where there is `room` for so many.
    Whole flows are sure to fit, and of one more there is as much chance as room. What
    is neither is of the chances that are tried.
    """
    from scipy.special import gammaln

    whole = np.minimum(np.floor(room), count - 1.0)
    one_more = np.clip(room - whole, 1.0 - AT_MOST, AT_MOST)
    # Each number of flows below what is expected is as likely as any other; so above.
    fewer, more = FEWER * (whole > 0), (1.0 - FEWER) * (whole + 1.0 < count)
    each_fewer = fewer / np.maximum(whole, 1.0)
    each_more = more / np.maximum(count - whole - 1.0, 1.0)
    over = got - whole
    share = np.select(
        [over < 0, over == 0, over == 1],
        [each_fewer, 1.0 - one_more, one_more],
        each_more,
    )
    # Where nothing else can be it is as expected.
    other = fewer + more
    known = np.log(np.where(other > 0, 1.0 - _CHANCE, 1.0))
    as_expected = (over == 0) | (over == 1)
    unlike = np.log(_CHANCE) - np.log(np.where(other > 0, other, 1.0))
    number = np.where(as_expected, known, unlike) + np.log(share)
    which = gammaln(count + 1) - gammaln(got + 1) - gammaln(count - got + 1)
    nats: Floats = number - which
    return nats
