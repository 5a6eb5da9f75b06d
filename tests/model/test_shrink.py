from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcoll.arrays import Floats
from cloudcoll.model.pairs import (
    _host_effects,
    _leading,
    _longest_of_noise,
    _pattern,
    _weight,
    _without_outliers,
    _worth,
    shrunk,
)


def open_diagonal(figures: Floats) -> Floats:
    """Return figures of pairs: a host has none of itself."""
    kept = figures.copy()
    np.fill_diagonal(kept, math.nan)
    return kept


def line(hosts: int, generator: np.random.Generator) -> Floats:
    """Return logarithms of distances between hosts spread along a line."""
    place = generator.permutation(hosts) / hosts
    return np.log(1.0 + 4.0 * np.abs(place[:, None] - place))


def error(estimate: Floats, truth: Floats) -> float:
    """Return the deviation of the estimate's differences between pairs."""
    wrong = (estimate - truth)[~np.eye(len(truth), dtype=bool)]
    return float(wrong.std())


NOISES = {
    "normal": lambda g, n: g.normal(0.0, 0.4, (n, n)),
    "one-sided": lambda g, n: np.log(1.0 + g.exponential(0.4, (n, n))),
    "spikes": lambda g, n: (
        g.normal(0, 0.1, (n, n)) + (g.random((n, n)) < 0.05) * math.log(5)
    ),
    "some hosts' more": lambda g, n: (
        g.normal(0, 0.5, (n, n)) * g.random(n)[:, None] * g.random(n)
    ),
}


@pytest.mark.parametrize("hosts", [4, 8, 16, 48])
@pytest.mark.parametrize("kind", sorted(NOISES))
def test_noise_is_no_difference_between_pairs(kind: str, hosts: int) -> None:
    """Tests noise of four shapes, all pairs measured or half of them, slow hosts."""
    used = 0
    for seed in range(20):
        generator = np.random.default_rng(seed)
        slow = generator.exponential(0.3, hosts)
        figures = open_diagonal(slow + slow[:, None] + NOISES[kind](generator, hosts))
        used += shrunk(figures, math.nan) is not None
        figures[generator.random(figures.shape) < 0.5] = math.nan
        used += shrunk(figures, math.nan) is not None
    assert used == 0


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "least"), [(16, 0.9), (64, 0.6), (300, 0.4)])
def test_a_pattern_is_seen_through_noise(hosts: int, least: float) -> None:
    """Tests distances on a line: the estimate is nearer to them than the figures."""
    generator = np.random.default_rng(hosts)
    truth = line(hosts, generator)
    figures = open_diagonal(truth + generator.normal(0.0, 0.2, truth.shape))
    estimate = shrunk(figures, math.nan)
    assert estimate is not None
    assert error(estimate, truth) < least * 0.2


def test_pairs_not_measured_follow_the_pattern() -> None:
    """Tests a line of which two of five pairs are known."""
    generator = np.random.default_rng(5)
    truth = line(64, generator)
    figures = open_diagonal(truth + generator.normal(0.0, 0.1, truth.shape))
    figures[generator.random(truth.shape) < 0.6] = math.nan
    estimate = shrunk(figures, math.nan)
    assert estimate is not None
    wrong = (estimate - truth)[np.isnan(figures) & ~np.eye(64, dtype=bool)]
    assert np.abs(wrong).mean() < 0.4 * truth.std()


def test_a_pair_by_itself_needs_to_be_measured_twice() -> None:
    """Tests differences that no hosts share: weighted by what noise leaves of them."""
    generator = np.random.default_rng(2)
    own = generator.normal(0.0, 0.3, (12, 12))
    figures = open_diagonal(own + generator.normal(0.0, 0.1, own.shape))
    assert shrunk(figures, math.nan) is None
    estimate = shrunk(figures, 0.1**2)
    assert estimate is not None
    assert error(estimate, own) < error(np.zeros_like(own), own) / 2
    # Noise as large as the differences leaves nothing.
    assert shrunk(figures, 0.3**2) is None


def test_a_pair_not_measured_is_as_its_hosts_say() -> None:
    """Tests that it has no difference of its own, where others do."""
    generator = np.random.default_rng(2)
    figures = open_diagonal(5.0 + generator.normal(0.0, 0.3, (12, 12)))
    missing = np.arange(6), np.arange(6) + 6
    figures[missing] = math.nan
    estimate = shrunk(figures, 0.1**2)
    assert estimate is not None
    assert np.abs(estimate[missing] - 5.0).max() < 0.3
    assert np.nanstd(estimate - figures) < 0.1


def test_slow_hosts_come_with_the_pairs() -> None:
    """Tests that a host late to all is told from the pattern, by direction."""
    generator = np.random.default_rng(9)
    truth = line(32, generator)
    truth[4] += 1.0
    truth[:, 7] += 2.0
    estimate = shrunk(
        open_diagonal(truth + generator.normal(0.0, 0.1, truth.shape)), math.nan
    )
    assert estimate is not None
    assert error(estimate, truth) < 0.1


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 99), st.floats(0.0, 1.0), st.booleans())
def test_every_pair_has_a_figure(
    hosts: int, seed: int, missing: float, twice: bool
) -> None:
    """Tests hosts few and without any figure: what there is, is finite."""
    generator = np.random.default_rng(seed)
    figures = open_diagonal(generator.normal(0.0, 1.0, (hosts, hosts)))
    figures[generator.random((hosts, hosts)) < missing] = math.nan
    figures[0] = math.nan
    if np.isfinite(figures).any():
        estimate = shrunk(figures, 1e-3 if twice else math.nan)
        assert estimate is None or np.isfinite(estimate).all()


@pytest.mark.parametrize("missing", [0, 5])
def test_effects_of_hosts_add_up(missing: int) -> None:
    """Tests that sums of two effects are taken apart, with pairs left out as well."""
    draw = np.random.default_rng(missing)
    sends, hears = draw.normal(size=6), draw.normal(size=6)
    figures = sends[:, None] + hears
    known = ~np.eye(6, dtype=bool)
    gaps = np.argwhere(known)[:: 6 if missing else 99][:missing]
    known[tuple(gaps.T)] = False
    one, other = _host_effects(np.where(known, figures, np.nan), known)
    explained = (one[:, None] + other)[known]
    assert explained == pytest.approx(figures[known], abs=1e-3)
    assert np.diff(one) == pytest.approx(np.diff(sends), abs=1e-2)
    assert np.diff(other) == pytest.approx(np.diff(hears), abs=1e-2)


@pytest.mark.parametrize(
    ("noise", "weight"),
    [
        (0.0, 1.0),
        (0.25, 0.75),
        # 50 figures are certain where they vary by 2.2 times the noise.
        (0.45, 0.55),
        (0.46, 0.0),
        (2.0, 0.0),
        (math.nan, 0.0),
    ],
)
def test_how_much_of_the_rest_is_kept(noise: float, weight: float) -> None:
    """Tests the empirical Bayes share of figures of variance 1, and when it is none.

    The same of figures and noise in another unit.
    """
    rest = np.tile([-1.0, 1.0], 25)
    assert _weight(rest, noise) == pytest.approx(weight)
    assert _weight(3 * rest, 9 * noise) == pytest.approx(weight)


def test_effects_are_worth_what_noise_leaves_of_them() -> None:
    """Tests by hand: of a mean of four pairs noise is a quarter of what pairs vary."""
    effects, counts = np.array([5.0, 3.0, 99.0]), np.array([4, 4, 0])
    assert _worth(effects, 2.0, counts).tolist() == [0.5, -0.5, 0.0]
    assert _worth(effects, 0.0, counts).tolist() == [1.0, -1.0, 0.0]
    assert _worth(effects, 8.0, counts).tolist() == [0.0, 0.0, 0.0]


def test_one_pair_makes_no_pattern() -> None:
    """Tests that figures are limited to four deviations, as the median tells them."""
    rest = np.array([-1.0, 1.0, 1.0, -1.0, 100.0, -50.0])
    limit = 4 * 1.4826
    kept = _without_outliers(rest, np.ones(6, dtype=bool))
    assert kept.tolist() == [-1.0, 1.0, 1.0, -1.0, limit, -limit]
    quiet = np.array([True, True, True, True, True, False])
    assert _without_outliers(rest * 0.5, quiet)[4] == pytest.approx(limit / 2)


@pytest.mark.parametrize("hosts", [64, 256])
def test_how_long_noise_is(hosts: int) -> None:
    """Tests noise of variance 1: 2 sqrt(n) (Geman 1980), also of a sample of hosts."""
    noise = np.random.default_rng(3).standard_normal((hosts, hosts))
    assert _longest_of_noise(noise) == pytest.approx(2 * math.sqrt(hosts), rel=0.06)


@pytest.mark.parametrize(("length", "kept"), [(3.0, 3 - 1 / 3), (1.8, 1.8 - 1 / 1.8)])
def test_what_noise_leaves_of_a_pattern(length: float, kept: float) -> None:
    """Tests patterns in noise whose own length is 2, in units of sqrt(n).

    One of length x is seen as one of x + 1/x; the nearest to it is as long as
    x - 1/x (Gavish and Donoho 2017). Of length 1 it is hidden.
    """
    hosts = 64
    generator = np.random.default_rng(1)
    noise = generator.standard_normal((hosts, hosts))
    ends = np.sign(generator.standard_normal((2, hosts)))
    planted = np.outer(*ends) / math.sqrt(hosts)
    known = np.ones((hosts, hosts), dtype=bool)
    found = _pattern(length * planted + noise, known)
    long = np.linalg.norm(found, 2) / math.sqrt(hosts)
    assert long == pytest.approx(kept, abs=0.2)
    assert not _pattern(planted + noise, known).any()


def test_the_leading_patterns_of_many_hosts() -> None:
    """Tests two patterns of 150 hosts, by their lengths and as a whole."""
    ends = np.random.default_rng(4).standard_normal((2, 150, 2))
    one, other = (np.linalg.qr(end)[0] for end in ends)
    both = one @ np.diag([9.0, 5.0]) @ other.T
    left, values, right = _leading(both)
    assert values[:3] == pytest.approx([9.0, 5.0, 0.0], abs=1e-9)
    assert (left * values) @ right == pytest.approx(both, abs=1e-9)
