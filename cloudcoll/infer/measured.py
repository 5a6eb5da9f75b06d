"""What a fit sees of a snapshot, and the part of it that is kept back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cloudcoll.measured.snapshot import NetworkSnapshot

HELD_OUT = 10
"""One in so many rounds and pairs is kept out of the fit that is judged."""

COVERED = 1 / 3
"""Share of the pairs that must have sent for their rounds to show groups."""

FEW = 5
"""Of fewer rounds than this none is kept out: the fit needs them all."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Measured:
    """Measurements of a set of hosts, one figure each.

    Attributes
    ----------
    names : tuple of str
        Host names; their positions are the indices below.
    rtt : ndarray of float64, shape (hosts, hosts)
        Round trip seconds, symmetric; NaN where not measured.
    round, src, dst : ndarray of int64, shape (flows,)
        Flows of one round ran together.
    rate : ndarray of float64, shape (flows,)
        Bytes/s, above zero.
    """

    names: tuple[str, ...]
    rtt: Floats
    round: Ints
    src: Ints
    dst: Ints
    rate: Floats

    @property
    def heard(self) -> Ints:
        """Positions of the hosts of which anything was measured."""
        ends = np.concatenate([self.src, self.dst])
        return np.union1d(np.flatnonzero(np.isfinite(self.rtt).any(axis=1)), ends)

    def among(self, hosts: Ints) -> Measured:
        """Return what was measured between some hosts, by their place in `hosts`."""
        place = np.full(len(self.names), -1)
        place[hosts] = np.arange(len(hosts))
        inside = self.flows((place[self.src] >= 0) & (place[self.dst] >= 0))
        return replace(
            inside,
            names=tuple(self.names[host] for host in hosts),
            rtt=self.rtt[np.ix_(hosts, hosts)],
            src=place[inside.src],
            dst=place[inside.dst],
        )

    def flows(self, keep: Flags) -> Measured:
        """Return the same with only these flows."""
        kept = {name: getattr(self, name)[keep] for name in _FLOWS}
        return replace(self, **kept)


_FLOWS = ("round", "src", "dst", "rate")


def measured(snapshot: NetworkSnapshot) -> Measured:
    """Return a snapshot's round trips and loaded flows, one figure each.

    A flow of which nothing arrived says nothing of the links: it is left out.
    """
    rtt = snapshot.latency.values
    flows = snapshot.flows
    good = np.nan_to_num(flows.bytes_per_s) > 0.0
    return Measured(
        names=snapshot.names,
        rtt=np.fmin(rtt, rtt.T),
        round=flows.round[good],
        src=flows.src[good],
        dst=flows.dst[good],
        rate=flows.bytes_per_s[good],
    )


def hold_out(whole: Measured, seed: int = 0) -> tuple[Measured, Measured]:
    """Split into what is fitted and what the fit is judged by.

    Whole rounds are kept back, because flows of one round depend on each
    other, and pairs of round trips: one in `HELD_OUT`, and at least one
    round of `FEW`.

    Parameters
    ----------
    whole : Measured
    seed : int
        Of the choice.
    """
    generator = np.random.default_rng(seed)
    rounds = np.unique(whole.round)
    late = np.isin(whole.round, _some(rounds, int(len(rounds) >= FEW), generator))
    a, b = np.nonzero(np.triu(np.isfinite(whole.rtt), 1))
    chosen = _some(np.arange(len(a)), 0, generator)
    pairs = np.zeros(whole.rtt.shape, dtype=bool)
    pairs[a[chosen], b[chosen]] = pairs[b[chosen], a[chosen]] = True
    return (
        replace(whole.flows(~late), rtt=np.where(pairs, np.nan, whole.rtt)),
        replace(whole.flows(late), rtt=np.where(pairs, whole.rtt, np.nan)),
    )


def _some(values: Ints, least: int, generator: np.random.Generator) -> Ints:
    count = max(len(values) // HELD_OUT, least)
    return generator.choice(values, count, replace=False)
