"""How fast flows run that share links: max-min fairness, many rounds at once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Structure, c_int64
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cloudcoll.arrays import Floats, Ints
from cloudcoll.engine import Doubles, Int32s, library, pointer
from cloudcoll.errors import CloudcollError
from cloudcoll.network.tree import Links

SAME = 1e-9
"""Relative difference below which two fair shares count as equal."""

TOO_HIGH = 20
"""One in so many rates of a link may be read too high: hosts short of CPU take what
waits for them all at once."""


class _Fair(Structure):
    """``fair`` of fair.h."""

    _fields_ = [
        *((name, c_int64) for name in ("rounds", "links", "width")),
        *((name, Int32s) for name in ("first", "path")),
        *((name, Doubles) for name in ("capacity", "weight", "most", "rate")),
        ("limit", Int32s),
    ]


def fair_rates(
    links: Links, src: Ints, dst: Ints, weight: Floats | None = None
) -> Floats:
    """Return the max-min fair rates of flows that run at the same time.

    Parameters
    ----------
    src, dst : ndarray of int64, shape (flows,)
        Host columns of `links`; sender and receiver differ.
    weight : ndarray of float64, shape (flows,), optional
        What flows get of a link that holds them back is in proportion to these.

    Returns
    -------
    ndarray of float64, shape (flows,)
        Bytes/s; ``inf`` where no link of known capacity is crossed.
    """
    return fair_rounds(links, np.zeros(len(src), dtype=np.int64), src, dst, weight)[0]


def fair_rounds(
    links: Links, rounds: Ints, src: Ints, dst: Ints, weight: Floats | None = None
) -> tuple[Floats, Ints]:
    """Return max-min fair rates, and the link that holds each flow back.

    What `Flows.shared` does, for flows of which only this is asked.
    """
    return Flows(links, rounds, src, dst, weight).shared(links)


class Flows:
    """Flows of some rounds, on the links that join their hosts.

    Parameters
    ----------
    links : Links
        Which ones there are; their rates may be others later.
    rounds : ndarray of int64, shape (flows,)
        Flows of one round run together, those of others do not.
    src, dst : ndarray of int64, shape (flows,)
        Host columns of `links`; sender and receiver differ.
    weight : ndarray of float64, shape (flows,), optional
        As of `fair_rates`; all alike by default.
    most : ndarray of float64, shape (flows,), optional
        Bytes/s that a flow takes at most, whatever its links have left for it; as much
        as there is by default.
    """

    def __init__(
        self,
        links: Links,
        rounds: Ints,
        src: Ints,
        dst: Ints,
        weight: Floats | None = None,
        most: Floats | None = None,
    ) -> None:
        self._links, member = 2 * len(links.up), links.member
        self._order = np.argsort(rounds, kind="stable")
        ordered = rounds[self._order]
        begins = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
        self._first = np.append(begins, len(src))
        out, into = member[:, src[self._order]], member[:, dst[self._order]]
        ways = np.concatenate([out, into + self._links // 2])
        # Where both hosts are below a link, their flow does not cross it: -1.
        self._path = np.where(np.tile(out != into, (2, 1)), ways, -1)
        self._weight = np.ones(len(src)) if weight is None else weight[self._order]
        self._most = np.full(len(src), np.inf) if most is None else most[self._order]

    def shared(self, links: Links) -> tuple[Floats, Ints]:
        """Return max-min fair rates, and the link that holds each flow back.

        Water filling (Bertsekas and Gallager 1992), at every bottleneck at once: a
        link whose share is the least on the paths of all its flows is full, and
        they stay at that share; the others go on with what is left.

        Parameters
        ----------
        links : Links
            The rates of the links.

        Returns
        -------
        rates : ndarray of float64, shape (flows,)
            Bytes/s; ``inf`` where no link of known capacity is crossed.
        limits : ndarray of int64, shape (flows,)
            Position in ``up`` followed by ``down``; -1 where no link limits.

        Raises
        ------
        CloudcollError
            There is not enough memory.
        """
        capacity = np.concatenate([links.up, links.down])
        engine = library()
        if engine is None:
            rate, place = self._filled(capacity)
        else:
            rate, place = self._by_engine(engine, capacity)
        rates, limits = np.empty_like(rate), np.empty(len(rate), dtype=np.int64)
        rates[self._order] = rate
        held = self._path[place, np.arange(len(place))]
        limits[self._order] = np.where(place < 0, -1, held)
        return rates, limits

    def alone(self, rate: Floats) -> Floats:
        """Return the highest rate of a flow that had a link to itself.

        But for one in `TOO_HIGH` of each link's, as a rate is read too high now and
        then. What several carried together is no such bound: each is measured over
        a time of its own.

        Parameters
        ----------
        rate : ndarray of float64, shape (flows,)

        Returns
        -------
        ndarray of float64, shape (2 links,)
            Of ``up`` followed by ``down``; NaN where no flow was alone.
        """
        # The slot that is no link is never single: a flow has it up and down.
        single = self._over(np.ones(len(rate)))[self._slots] == 1.0
        link = self._path[single]
        rates = np.broadcast_to(rate[self._order], self._path.shape)[single]
        order = np.lexsort((rates, link))
        ends = np.searchsorted(link[order], np.arange(self._links), side="right")
        count = np.bincount(link, minlength=self._links)
        found = np.full(self._links, np.nan)
        measured = count > 0
        found[measured] = rates[order][(ends - 1 - count // TOO_HIGH)[measured]]
        return found

    def on_full(self, limits: Ints, *rates: Floats) -> tuple[Ints, list[Floats]]:
        """Return what each full link carried in each round.

        TCP shares a link as it likes within a second, also with flows that another
        link holds back; the sum of all is the link's own.

        Parameters
        ----------
        limits : ndarray of int64, shape (flows,)
            As of `shared`; a link is full where it limits a flow.
        *rates : ndarray of float64, shape (flows,)
            Bytes/s.

        Returns
        -------
        full : ndarray of int64, shape (cases,)
            The link of each pair of a round and a link that was full in it.
        sums : list of ndarray of float64, shape (cases,)
            For each of `rates` its sum over the flows across that link.
        """
        held = limits[self._order]
        is_full = np.zeros(self._none, dtype=bool)
        is_full[(held + self._number * self._links)[held >= 0]] = True
        cases = np.flatnonzero(is_full)
        return self._sums(cases, rates)

    def on_shared(self, *rates: Floats) -> tuple[Ints, list[Floats]]:
        """Return what links carried in the rounds in which several flows crossed them.

        Parameters and results are those of `on_full`.
        """
        cases = np.flatnonzero(self._over(np.ones(len(self._weight)))[:-1] > 1.0)
        return self._sums(cases, rates)

    def _sums(self, cases: Ints, rates: Sequence[Floats]) -> tuple[Ints, list[Floats]]:
        """Return the links of some cases, and what each carried of each rate."""
        sums = [self._over(rate[self._order])[cases] for rate in rates]
        return cases % self._links if self._links else cases, sums

    @cached_property
    def _number(self) -> Ints:
        """The position of each flow's round."""
        return np.repeat(np.arange(len(self._first) - 1), np.diff(self._first))

    @property
    def _none(self) -> int:
        """The slot that is no link: each round has the links to itself."""
        return (len(self._first) - 1) * self._links

    @cached_property
    def _slots(self) -> Ints:
        slots = self._path + self._number * self._links
        return np.where(self._path < 0, self._none, slots)

    def _over(self, value: Floats, chosen: Ints | slice = slice(None)) -> Floats:
        """Return the sum of a value of some flows over each slot of their paths."""
        slots = self._slots[:, chosen]
        values = np.concatenate([value] * len(slots))
        return np.bincount(slots.ravel(), values, self._none + 1).astype(np.float64)

    @cached_property
    def _request(self) -> _Fair:
        """What the engine is asked, but for the rates of the links."""
        flows = len(self._weight)
        self._arrays: dict[str, npt.NDArray[Any]] = {
            "first": self._first.astype(np.int32),
            "path": np.ascontiguousarray(self._path.T, np.int32),
            "capacity": np.empty(self._links),
            "weight": np.ascontiguousarray(self._weight, np.float64),
            "most": np.ascontiguousarray(self._most, np.float64),
            "rate": np.empty(flows),
            "limit": np.empty(flows, dtype=np.int32),
        }
        return _Fair(
            rounds=len(self._first) - 1,
            links=self._links,
            width=len(self._path),
            **{name: pointer(array) for name, array in self._arrays.items()},
        )

    def _by_engine(self, engine: ctypes.CDLL, capacity: Floats) -> tuple[Floats, Ints]:
        """Compute the rate of each flow, and the place on its path that limits it."""
        request = self._request
        self._arrays["capacity"][:] = capacity
        if engine.fair_run(ctypes.byref(request)):
            raise CloudcollError(
                f"no memory for the links of {len(self._weight)} flows: "
                "use a larger machine"
            )
        return self._arrays["rate"], self._arrays["limit"].astype(np.int64)

    def _filled(self, capacity: Floats) -> tuple[Floats, Ints]:
        """Compute the same without the engine, the links of all rounds at once."""
        left = np.append(np.tile(capacity, len(self._first) - 1), np.inf)
        rates = np.full(len(self._weight), np.inf)
        places = np.full(len(rates), -1)
        growing = np.arange(len(rates))
        while len(growing):
            mine = self._slots[:, growing]
            users = self._over(self._weight[growing], growing)
            free = np.full(len(left), np.inf)
            share = np.divide(left, users, out=free, where=users > 0)
            wanted = self._most[growing] / self._weight[growing]
            least = np.minimum(share[mine].min(axis=0), wanted)
            tightest = np.full(len(left), np.inf)
            np.minimum.at(tightest, mine.ravel(), np.tile(least, len(mine)))
            full = np.isfinite(share) & (share <= tightest * (1 + SAME))
            held = full[mine] & (share[mine] <= least * (1 + SAME))
            stays = held.any(axis=0) | (least >= wanted) & np.isfinite(least)
            if not stays.any():
                break
            done = growing[stays]
            rates[done] = least[stays] * self._weight[done]
            by = held[:, stays]
            places[done] = np.where(by.any(axis=0), by.argmax(axis=0), -1)
            left = np.maximum(left - self._over(rates[done], done), 0.0)
            growing = growing[~stays]
        return rates, places
