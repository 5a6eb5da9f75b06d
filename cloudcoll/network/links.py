"""A fabric as arrays: what the cost model and the planted networks compute with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloudcoll.arrays import Floats, Ints


@dataclass(frozen=True)
class Links:
    """A fabric as arrays: what the cost model computes with.

    Attributes
    ----------
    member : ndarray of int64, shape (depth, hosts)
        ``member[d, h]`` is the link that joins host ``h``'s ancestor at depth
        ``d + 1`` to depth ``d``. A message from ``a`` to ``b`` goes up link
        ``member[d, a]`` and down ``member[d, b]`` wherever the two differ.
    up, down : ndarray of float64, shape (links,)
        Capacity in bytes/s; ``inf`` where not known.
    latency : ndarray of float64, shape (links,)
        One-way seconds; 0 where not known.
    """

    member: Ints
    up: Floats
    down: Floats
    latency: Floats

    def pair_rtt(self) -> Floats:
        """Return the round trip seconds of each pair, shape (hosts, hosts)."""
        trips = np.zeros((self.member.shape[1],) * 2)
        for row in self.member:
            legs = self.latency[row]
            ways = np.add.outer(legs, legs)
            ways[row[:, None] == row] = 0.0
            trips += ways
        return 2.0 * trips

    def trips(self, a: Ints, b: Ints) -> Floats:
        """Return the round trip seconds between some pairs, shape (pairs,)."""
        apart = self.member[:, a] != self.member[:, b]
        legs = self.latency[self.member[:, a]] + self.latency[self.member[:, b]]
        seconds: Floats = 2.0 * np.where(apart, legs, 0.0).sum(axis=0)
        return seconds

    def pair_s_per_byte(self) -> Floats:
        """Return 1 / the slowest link between each two, shape (hosts, hosts).

        ``[src, dst]`` in s/byte; 0 where no rate is known.
        """
        slowest = np.zeros((self.member.shape[1],) * 2)
        for row in self.member:
            ways = np.maximum.outer(1.0 / self.up[row], 1.0 / self.down[row])
            ways[row[:, None] == row] = 0.0
            np.maximum(slowest, ways, out=slowest)
        return slowest


@dataclass(frozen=True)
class Pairs:
    """Figures of pairs of hosts that the links between them do not give.

    Attributes
    ----------
    alpha : ndarray of float64, shape (hosts, hosts)
        One-way seconds ``[src, dst]`` by position in the fabric, in place of
        the path's latency.
    s_per_byte : ndarray of float64, shape (hosts, hosts)
        Seconds a byte takes from one to the other when they are alone.

    Raises
    ------
    ValueError
        They are of different shapes, or a value is negative or not a number.
    """

    alpha: Floats
    s_per_byte: Floats

    def __post_init__(self) -> None:
        hosts = len(self.alpha)
        for values in (self.alpha, self.s_per_byte):
            if values.shape != (hosts, hosts):
                raise ValueError(f"{values.shape} values for the pairs of {hosts}")
            if not (np.isfinite(values) & (values >= 0)).all():
                raise ValueError("pairs need figures of 0 or more: fill in what is NaN")

    def over(self, links: Links) -> Pairs:
        """Return the same, no pair faster than its links; a host with itself is free.

        Raises
        ------
        ValueError
            The links are of another number of hosts.
        """
        apart = 1.0 - np.eye(len(self.alpha))
        slowest = links.pair_s_per_byte()
        if slowest.shape != apart.shape:
            raise ValueError(f"{len(slowest)} hosts, but pairs of {len(apart)}")
        return Pairs(self.alpha * apart, np.maximum(self.s_per_byte, slowest) * apart)

    def seconds(self, size: float) -> Floats:
        """Return the seconds of a message of `size` bytes, shape (hosts, hosts).

        What a search for rings works on.
        """
        return self.alpha + size * self.s_per_byte
