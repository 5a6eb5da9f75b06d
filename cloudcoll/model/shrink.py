"""What of figures of pairs is no noise.

    figure = level + sender + receiver + pattern + w x rest

Effects of hosts and the rest are weighted by max(0, 1 - variance of the noise /
variance observed), the empirical Bayes estimate of Efron and Morris (1973) after
James and Stein (1961). The rest has a weight only if pairs were measured more
than once, and differ from each other by more than from themselves. The
pattern, differences that several hosts share (a distance, a site), tells itself
from noise in a single measurement of each pair: by singular values larger than
those of noise, which are shrunk likewise (Efron and Morris 1972; Gavish and
Donoho, "Optimal Shrinkage of Singular Values", 2017).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FEW = 8
"""Measured pairs of a host below which no pattern can be told from noise."""

FLIPS = 20
"""Draws of random signs whose longest singular value a pattern exceeds."""

MARGIN = 1.0
"""The longest singular value of noise varies by its size to the power of -2/3
(Tracy and Widom 1994); a pattern is longer by this many times as much."""

ROUNDS = 4
"""Of looking for patterns: a strong one hides weaker ones in the noise."""

CERTAIN = 3.0
"""Standard errors by which the rest has to differ more than its noise."""

OUTLIER = 4.0
"""Deviations beyond which one pair makes no pattern."""

MOST = 128
"""Hosts that tell the noise; of more hosts only the `LEADING` patterns are found."""

LEADING = 24

SWEEPS = 20
"""Of sender against receiver: enough where a third of the pairs was measured."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def shrunk(figures: Floats, noise: float) -> Floats | None:
    """Return an estimate for every pair, None where only noise and hosts differ.

    Parameters
    ----------
    figures : ndarray of float64, shape (hosts, hosts)
        Logarithms, ``[sender, receiver]``; NaN where not measured, and on the
        diagonal.
    noise : float
        Variance of a figure about what it would be on the average of many
        measurements; NaN where not known.

    Returns
    -------
    ndarray of float64, shape (hosts, hosts), or None
        Pairs without a figure get what their hosts and the pattern say.
    """
    known = np.isfinite(figures)
    if not known.any():
        return None
    senders, receivers = _host_effects(figures, known)
    rest = np.where(known, figures - senders[:, None] - receivers, 0.0)
    # Once more without outliers: what they left in their hosts is no pattern.
    usual = _without_outliers(rest, known)
    late, far = _host_effects(usual, known)
    pattern = _pattern(np.where(known, usual - late[:, None] - far, 0.0), known)
    rest = np.where(known, rest - pattern, 0.0)
    weight = _weight(rest[known], noise)
    if not weight and not pattern.any():
        return None
    level = float(figures[known].mean())
    varies = float((rest[known] ** 2).mean())
    from_ = _worth(senders, varies, known.sum(axis=1))
    to = _worth(receivers, varies, known.sum(axis=0))
    return level + from_[:, None] + to + pattern + weight * rest


def is_directed(figures: Floats) -> bool:
    """Return whether senders and receivers differ by more than noise.

    Parameters
    ----------
    figures : ndarray of float64, shape (hosts, hosts)
        As of `shrunk`.
    """
    halves = (figures - figures.T) / 2.0
    known = np.isfinite(halves)
    if not known.any():
        return True
    usual = _without_outliers(np.where(known, halves, 0.0), known)
    return bool(_pattern(usual, known).any())


def _worth(effects: Floats, varies: float, counts: Ints) -> Floats:
    """Return effects of hosts about 0, shrunk by the noise of a mean of pairs."""
    told = counts > 0
    off = np.where(told, effects - effects[told].mean(), 0.0)
    noise = varies / np.maximum(counts, 1)
    share = 1.0 - noise / max(float((off[told] ** 2).mean()), float(noise.min()))
    return off * np.maximum(share, 0.0)


def _host_effects(figures: Floats, known: Flags) -> tuple[Floats, Floats]:
    """Return what each sender and each receiver adds: least squares, by turns."""
    values, told = np.where(known, figures, 0.0), known.astype(np.float64)
    sent, received = values.sum(axis=1), values.sum(axis=0)
    by_row = np.maximum(told.sum(axis=1), 1)
    by_column = np.maximum(told.sum(axis=0), 1)
    senders, receivers = np.zeros(len(figures)), np.zeros(len(figures))
    for _ in range(SWEEPS):
        senders = (sent - told @ receivers) / by_row
        receivers = (received - senders @ told) / by_column
    return senders, receivers


def _weight(rest: Floats, noise: float) -> float:
    """Return the share of the rest that is no noise; 0 where that is not certain."""
    usual = _without_outliers(rest, np.ones(len(rest), dtype=bool))
    observed = float((usual**2).mean())
    # Two variances of as many pairs each; a round trip stands there twice.
    least = noise * (1.0 + CERTAIN * math.sqrt(8.0 / len(rest)))
    return 1.0 - noise / observed if observed > least else 0.0


def _pattern(rest: Floats, known: Flags) -> Floats:
    """Return the part of the rest that several hosts share, zero for none.

    Singular values beyond the largest one of the same figures with random
    signs, where no two hosts share anything (Hong, Sheng and Dobriban 2020),
    shrunk as they are lengthened by noise. Pairs that nobody measured follow
    the pattern so far (Mazumder, Hastie and Tibshirani 2010).
    """
    size = len(rest)
    pattern = np.zeros_like(rest)
    if known.sum() < FEW * size:
        return pattern
    for _ in range(ROUNDS):
        left, values, right = _leading(np.where(known, rest, pattern))
        edge = _longest_of_noise(np.where(known, rest - pattern, 0.0))
        longer = values > edge * (1.0 + MARGIN * size ** (-2.0 / 3.0))
        kept = np.where(longer, np.sqrt(np.maximum(values**2 - edge**2, 0.0)), 0.0)
        pattern = (left * kept) @ right
        if not longer.any():
            break
    return pattern


def _longest_of_noise(rest: Floats) -> float:
    """Return the largest singular value of the rest with random signs."""
    generator = np.random.default_rng(0)
    size = len(rest)
    some = generator.permutation(size)[:MOST]
    sample = rest[np.ix_(some, some)]
    signs = generator.choice([-1.0, 1.0], (FLIPS, *sample.shape))
    longest = max(float(np.linalg.norm(sample * sign, 2)) for sign in signs)
    return longest * math.sqrt(size / len(some))


def _without_outliers(rest: Floats, known: Flags) -> Floats:
    """Return the rest, limited to some deviations as the median tells them."""
    limit = OUTLIER * 1.4826 * float(np.median(np.abs(rest[known])))
    return np.clip(rest, -limit, limit)


def _leading(rest: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the singular vectors and values; of many hosts the largest alone.

    Subspace iteration from a fixed start (Halko, Martinsson and Tropp 2011).
    """
    if len(rest) <= MOST:
        return np.linalg.svd(rest)
    basis = np.random.default_rng(0).standard_normal((len(rest), LEADING))
    for _ in range(4):
        basis = np.linalg.qr(rest @ (rest.T @ np.linalg.qr(rest @ basis)[0]))[0]
    left, values, right = np.linalg.svd(basis.T @ rest, full_matrices=False)
    return basis @ left, values, right
