"""From a snapshot to figures of pairs of hosts that are worth optimising.

On a network without groups an order can only gain from the pairs themselves,
and an order tuned to their noise may be far worse than the one given. So what
was measured of pairs is shrunk towards what the fabric and the hosts say of
them (`shrunk`), and used only where more than noise is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.files.limits import check_matrix
from cloudcoll.measured.snapshot import RTT_QUANTILE, NetworkSnapshot
from cloudcoll.network.tree import Fabric, Links, Pairs

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
    """Return whether senders and receivers of `shrunk` differ by more than noise."""
    apart = figures - figures.T
    known = np.isfinite(apart)
    if not known.any():
        return True
    return bool(_pattern(_without_outliers(apart, known), known).any())


def _worth(effects: Floats, varies: float, counts: Ints) -> Floats:
    """Return effects of hosts about 0, shrunk by the noise of a mean of pairs."""
    counted = counts > 0
    off = np.where(counted, effects - effects[counted].mean(), 0.0)
    noise = varies / np.maximum(counts, 1)
    share = 1.0 - noise / max(float((off[counted] ** 2).mean()), float(noise.min()))
    return off * np.maximum(share, 0.0)


def _host_effects(figures: Floats, known: Bools) -> tuple[Floats, Floats]:
    """Return what each sender and each receiver adds: least squares, by turns."""
    values, mask = np.where(known, figures, 0.0), known.astype(np.float64)
    sent, received = values.sum(axis=1), values.sum(axis=0)
    by_row = np.maximum(mask.sum(axis=1), 1)
    by_column = np.maximum(mask.sum(axis=0), 1)
    senders, receivers = np.zeros(len(figures)), np.zeros(len(figures))
    for _ in range(SWEEPS):
        senders = (sent - mask @ receivers) / by_row
        receivers = (received - senders @ mask) / by_column
    return senders, receivers


def _weight(rest: Floats, noise: float) -> float:
    """Return the share of the rest that is no noise; 0 where that is not certain."""
    usual = _without_outliers(rest, np.ones(len(rest), dtype=bool))
    observed = float((usual**2).mean())
    # Two variances of as many pairs each; a round trip stands there twice.
    least = noise * (1.0 + CERTAIN * math.sqrt(8.0 / len(rest)))
    return 1.0 - noise / observed if observed > least else 0.0


def _pattern(rest: Floats, known: Bools) -> Floats:
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


def _without_outliers(rest: Floats, known: Bools) -> Floats:
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


def shrunk_pairs(snapshot: NetworkSnapshot, fabric: Fabric) -> Pairs | None:
    """Return the figures of pairs that are worth optimising.

    Parameters
    ----------
    snapshot : NetworkSnapshot
        With all hosts of the fabric.
    fabric : Fabric
        Pairs that nobody measured get what it, their hosts and the pattern say.

    Returns
    -------
    Pairs or None
        By position in the fabric. None where pairs tell nothing that the
        fabric does not, and where groups share links of known capacity but
        nothing was measured repeatedly: the links matter more then, and what
        one probe saw of a pair, in parts or not, was often another pair's load.
    """
    said = snapshot.metadata
    again = said.get("merged") and not said.get("one_probe")
    if fabric.shares_links() and not again:
        return None
    if not len(snapshot.rtt.src) and not len(snapshot.flows.src):
        return None  # of labels alone; a matrix of many hosts is large
    check_matrix(len(fabric.hosts), 1, snapshot.measured_bytes)
    links = fabric.links
    far, slow = links.pair_rtt() / 2.0, links.pair_s_per_byte()
    place = _places(snapshot, fabric.hosts)
    rtt = snapshot.rtt
    base = _base(far)
    # What is measured of 4096 hosts is large: only figures of pairs are kept.
    ways = rtt.quantile(RTT_QUANTILE) / 2.0
    figures, noise = _figures(
        place[rtt.src], place[rtt.dst], ways, base, both_ways=True
    )
    alpha = _shrunk(figures, noise, base)
    # Cards are no base: their figures have noise of their own.
    base = _base(np.zeros_like(slow))
    sent = _transfers(snapshot, links, place)
    figures, noise = _figures(*sent, base, both_ways=False)
    longer = _shrunk(figures, noise, base)
    if alpha is None and longer is None:
        return None
    return Pairs(far if alpha is None else alpha, slow if longer is None else longer)


def measured_share(snapshot: NetworkSnapshot, names: Sequence[str]) -> float:
    """Return the share of the pairs of these hosts of which anything was measured.

    1 for a single host: nothing is missing.
    """
    hosts = len(names)
    pairs = 2 * len(measured_pairs(snapshot, names))
    return pairs / (hosts * (hosts - 1)) if hosts > 1 else 1.0


def measured_pairs(snapshot: NetworkSnapshot, names: Sequence[str]) -> Ints:
    """Return the pairs of these hosts that were measured in either direction.

    The lower position times the number of hosts, plus the higher one; sorted. A host
    and itself are no pair. A matrix of many hosts would be large.
    """
    place, hosts = _places(snapshot, names), len(names)
    seen = []
    rtt, flows = snapshot.rtt, snapshot.flows
    answered = np.diff(rtt.ends, prepend=0) > 0
    arrived = np.nan_to_num(flows.bytes_per_s) > 0
    for part, measured in ((rtt, answered), (flows, arrived)):
        a, b = place[part.src[measured]], place[part.dst[measured]]
        both = (a >= 0) & (b >= 0) & (a != b)
        low, high = np.minimum(a, b)[both], np.maximum(a, b)[both]
        seen.append(np.unique(low * hosts + high))
    return np.union1d(*seen)


def _places(snapshot: NetworkSnapshot, names: Sequence[str]) -> Ints:
    """Return where each host of the snapshot stands among `names`, -1 for not."""
    position = {name: place for place, name in enumerate(names)}
    return np.array([position.get(name, -1) for name in snapshot.names], dtype=np.int64)


def _transfers(
    snapshot: NetworkSnapshot, links: Links, place: Ints
) -> tuple[Ints, Ints, Floats]:
    """Return sender, receiver and s/byte of flows that shared no known link."""
    flows = snapshot.flows
    good = np.nan_to_num(flows.bytes_per_s) > 0
    good &= (place[flows.src] >= 0) & (place[flows.dst] >= 0)
    src, dst = place[flows.src[good]], place[flows.dst[good]]
    _, number = np.unique(flows.round[good], return_inverse=True)
    alone = np.ones(len(src), dtype=bool)
    for row in links.member:
        crosses = row[src] != row[dst]
        for rates, end in ((links.up, src), (links.down, dst)):
            link = number * len(rates) + row[end]
            users = np.bincount(link[crosses], minlength=int(link.max(initial=0)) + 1)
            alone &= ~crosses | np.isinf(rates[row[end]]) | (users[link] == 1)
    seconds = 1.0 / flows.bytes_per_s[good]
    return src[alone], dst[alone], seconds[alone]


def _base(usual: Floats) -> Floats:
    """Return what the fabric says of pairs, or 1 where it is silent of some."""
    apart = ~np.eye(len(usual), dtype=bool)
    return usual if (usual[apart] > 0).all() else apart.astype(np.float64)


def _shrunk(figures: Floats, noise: float, base: Floats) -> Floats | None:
    """Return shrunk seconds of all pairs, None where only noise tells them apart."""
    estimate = shrunk(figures, noise)
    # Rounded, lest the last bit of another machine's arithmetic decide.
    return None if estimate is None else base * np.exp(np.round(estimate, 3))


def _figures(
    src: Ints, dst: Ints, seconds: Floats, base: Floats, *, both_ways: bool
) -> tuple[Floats, float]:
    """Return the logarithm of each pair's seconds over its base, and their noise.

    -1 in `src` or `dst` is no host of `base`, NaN in `seconds` no measurement. One is
    of both directions, as a round trip is, if `both_ways`; else it is taken for that,
    too, if directions differ by noise alone.
    """
    hosts = len(base)
    good = (src >= 0) & (dst >= 0) & (src != dst) & (np.nan_to_num(seconds) > 0)
    src, dst = src[good], dst[good]
    logs = np.log(seconds[good] / base[src, dst])
    there, back = src * hosts + dst, dst * hosts + src
    if not both_ways:
        figures, noise = _repeated(there, logs, hosts)
        if is_directed(figures):
            return figures, noise
    figures, noise = _repeated(np.minimum(there, back), logs, hosts)
    return np.where(np.isnan(figures), figures.T, figures), noise


def _repeated(cell: Ints, logs: Floats, hosts: int) -> tuple[Floats, float]:
    """Return the median figure of each pair, and the variance of these medians.

    Figures that are the same to the last bit are one measurement written twice.
    NaN for pairs without any; the variance is NaN where none has two.
    """
    order = np.lexsort((logs, cell))
    cell, logs = cell[order], logs[order]
    again = (np.diff(cell, prepend=-1) == 0) & (np.diff(logs, prepend=math.nan) == 0)
    cell, logs = cell[~again], logs[~again]
    pairs, first, count = np.unique(cell, return_index=True, return_counts=True)
    median = (logs[first + (count - 1) // 2] + logs[first + count // 2]) / 2.0
    figures = np.full(hosts * hosts, math.nan)
    figures[pairs] = median
    noise = math.nan
    if (count > 1).any():
        mean = np.bincount(cell, logs, hosts * hosts)[pairs] / count
        apart = logs - np.repeat(mean, count)
        one = float((apart * apart).sum() / (count - 1).sum())
        # A median of three and more varies by pi / 2 more than their mean.
        noise = one * float((np.where(count > 2, math.pi / 2, 1.0) / count).mean())
    return figures.reshape(hosts, hosts), noise
