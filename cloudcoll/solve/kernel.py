"""The search for orders in C (``kernel.c`` and others), called through ctypes.

It counts what `CostModel.cost` counts, but only what a move of hosts changes.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_double, c_int64, c_uint64
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cloudcoll.arrays import Ints
from cloudcoll.engine import Doubles, Int32s, Int64s, pointer
from cloudcoll.errors import CloudcollError
from cloudcoll.model.cost import Cost, FlatSteps
from cloudcoll.solve.rules import Rules

MOST_STEPS = 2**32 - 2
"""Of one search: moves are numbered in 32 bits."""


BITS = 62
"""Of the integers in which loads and times are counted: sums stay below 2**63."""


class _Problem(Structure):
    """``problem`` of kernel.h."""

    _fields_ = [
        *((name, c_int64) for name in ("hosts", "ranks", "depth", "links")),
        *((name, c_int64) for name in ("messages", "steps", "phases", "seats")),
        *((name, Int32s) for name in ("slots", "member")),
        *((name, Doubles) for name in ("capacity", "latency")),
        *((name, Int32s) for name in ("src", "dst", "step")),
        ("size", Int64s),
        *((name, Int32s) for name in ("starts", "phase")),
        *((name, Doubles) for name in ("wait_weight", "alone", "sent")),
        *((name, Doubles) for name in ("alpha", "s_per_byte")),
        *((name, Int32s) for name in ("first", "mine")),
        *((name, c_double) for name in ("unit", "fine", "path_fine")),
    ]


class _Cost(Structure):
    """``cost`` of kernel.h."""

    _fields_ = [("seconds", c_double), ("spread", c_double)]


class _Rules(Structure):
    """``rules`` of rules.h."""

    _fields_ = [
        *((name, c_int64) for name in ("movable", "seated", "rooms")),
        *((name, Int32s) for name in ("at", "number", "ring", "back")),
        *((name, Int32s) for name in ("room", "bound", "rack")),
    ]


class _Request(Structure):
    """``request`` of kernel.h."""

    _fields_ = [
        *((name, Int32s) for name in ("order", "last")),
        ("rules", POINTER(_Rules)),
        ("steps", c_int64),
        ("seed", c_uint64),
        *((name, c_double) for name in ("heat", "smooth", "limit_s")),
        *((name, _Cost) for name in ("best", "end")),
        ("taken", c_int64),
    ]


class Found(NamedTuple):
    """What a search ends with.

    Attributes
    ----------
    order, last : ndarray of int64, shape (hosts,)
        The best order met, and the one where the search stood at its end.
    cost, last_cost : tuple of float
        Of these, as `CostModel.cost` has them but for rounding.
    steps : int
        Moves tried: fewer than asked only if time was up.
    """

    order: Ints
    cost: Cost
    last: Ints
    last_cost: Cost
    steps: int


class Kernel:
    """A search over orders of hosts for one cost model, by the engine of `library`."""

    def __init__(self, engine: ctypes.CDLL, flat: FlatSteps) -> None:
        self._search = engine.kernel_search
        self._search.argtypes = [POINTER(_Problem), POINTER(_Request)]
        self._search.restype = ctypes.c_int
        self._hosts = len(flat.slots)
        # The engine reads the arrays: they have to outlive the pointers.
        self._problem, self._arrays = _problem_of(flat)

    def cost(self, order: Ints | Sequence[int]) -> Cost:
        """Return what `CostModel.cost` returns, but for rounding."""
        return self.search(order, steps=0).cost

    def search(
        self,
        order: Ints | Sequence[int],
        *,
        steps: int,
        rules: Rules | None = None,
        seed: int = 0,
        heat: float = 0.0,
        smooth: float = 0.0,
        limit_s: float = math.inf,
    ) -> Found:
        """Return the best order met on a random walk of moves from `order`.

        Parameters
        ----------
        order : sequence of int
            A permutation of the hosts' positions in the fabric, which obeys.
        steps : int
            Moves to try.
        rules : Rules, optional
            What every order on the way obeys; none by default.
        seed : int
            The same inputs and seed give the same answer on every machine.
        heat : float
            Seconds by which a move may make things worse at the beginning;
            falls to 0. Without, only moves are taken that cost no more.
        smooth : float
            Weight of the tie-break beside the seconds at the beginning; falls
            to 0 as well.
        limit_s : float
            Seconds after which the search ends early.

        Raises
        ------
        CloudcollError
            There is not enough memory.
        """
        rules = rules or Rules.only(self._hosts)
        self._check(order, rules, steps)
        best = np.array(order, dtype=np.int32)
        last = best.copy()
        # The arrays have to outlive the pointers in `bound`.
        arrays = rules.arrays()
        bound = _rules_of(rules, arrays)
        request = _Request(
            order=pointer(best),
            last=pointer(last),
            rules=ctypes.pointer(bound),
            steps=steps,
            seed=seed % 2**64,
            heat=heat,
            smooth=smooth,
            limit_s=limit_s,
        )
        if self._search(self._problem, request):
            raise CloudcollError(
                f"no memory to search orders of {self._hosts} hosts: "
                "solve on a larger machine"
            )
        return Found(
            best.astype(np.int64),
            (request.best.seconds, request.best.spread),
            last.astype(np.int64),
            (request.end.seconds, request.end.spread),
            request.taken,
        )

    def _check(self, order: Ints | Sequence[int], rules: Rules, steps: int) -> None:
        if sorted(np.asarray(order).tolist()) != list(range(self._hosts)):
            raise ValueError(f"not an order of {self._hosts} hosts: {order}")
        if not 0 <= steps <= MOST_STEPS:
            raise ValueError(f"{steps} steps: 0 to {MOST_STEPS} can be counted")
        if rules.seats != self._problem.seats or not rules.allows(order):
            raise ValueError(f"the rules of the search forbid its start {order}")


_Arrays = dict[str, npt.NDArray[Any]]


def _rules_of(rules: Rules, arrays: _Arrays) -> _Rules:
    return _Rules(
        movable=len(rules.movable),
        seated=int((rules.movable < rules.seats).sum()),
        rooms=len(rules.rooms),
        **{name: pointer(array) for name, array in arrays.items()},
    )


def _problem_of(flat: FlatSteps) -> tuple[_Problem, _Arrays]:
    """Return the problem, and the arrays that its pointers point to."""
    unit, fine = _units(flat)
    depth, hosts = flat.links.member.shape
    arrays = {**_arrays(flat, unit), **_messages_of_ranks(flat)}
    problem = _Problem(
        hosts=hosts,
        ranks=flat.ranks,
        seats=flat.seats,
        depth=depth,
        links=len(flat.links.up),
        messages=len(flat.src),
        steps=len(flat.phase),
        phases=flat.phases,
        unit=unit,
        fine=fine,
        path_fine=_path_unit(flat),
        **{name: pointer(array) for name, array in arrays.items()},
    )
    return problem, arrays


def _arrays(flat: FlatSteps, unit: float) -> _Arrays:
    ends = np.arange(len(flat.phase) + 1)
    small = {
        "slots": flat.slots,
        "member": flat.links.member.T,
        "src": flat.src,
        "dst": flat.dst,
        "step": flat.step,
        "starts": np.searchsorted(flat.step, ends),
        "phase": flat.phase,
    }
    real = {
        "capacity": np.concatenate([flat.links.up, flat.links.down]),
        "latency": flat.links.latency,
        "wait_weight": flat.wait_weight,
        "alone": flat.alone,
        "sent": flat.sent,
    }
    if flat.pairs is not None:
        real |= {"alpha": flat.pairs.alpha, "s_per_byte": flat.pairs.s_per_byte}
    return {
        **{name: np.ascontiguousarray(a, np.int32) for name, a in small.items()},
        **{name: np.ascontiguousarray(a, np.float64) for name, a in real.items()},
        "size": np.rint(flat.size / unit).astype(np.int64),
    }


def _units(flat: FlatSteps) -> tuple[float, float]:
    """Return bytes of a unit of load, and units of squared times per second.

    Powers of two, as fine as no sum can exceed `BITS` bits: all bytes of a phase
    over one link, or the times of all links that one phase can load.
    """
    most = np.bincount(flat.phase[flat.step], flat.size).max(initial=0.0)
    rates = np.concatenate([flat.links.up, flat.links.down])
    busiest = 2 * len(flat.links.member) * most / rates.min(initial=math.inf)
    unit = math.ldexp(1.0, math.frexp(most)[1] - BITS)
    return unit, math.ldexp(1.0, BITS - math.frexp(busiest)[1])


def _path_unit(flat: FlatSteps) -> float:
    """Return units of squared path times per second, as fine as in `_units`."""
    if flat.pairs is None:
        return 1.0
    longest = flat.pairs.seconds(flat.sent.max(initial=0.0)).max(initial=0.0)
    most = np.bincount(flat.step).max(initial=0)
    return math.ldexp(1.0, BITS - math.frexp(most * longest)[1])


def _messages_of_ranks(flat: FlatSteps) -> dict[str, npt.NDArray[np.int32]]:
    """Return where the messages of each rank begin in a list, and the list."""
    ranks = np.concatenate([flat.src, flat.dst])
    ends = np.arange(flat.ranks + 1)
    by_rank = np.argsort(ranks, kind="stable")
    return {
        "first": np.searchsorted(ranks[by_rank], ends).astype(np.int32),
        "mine": (by_rank % max(len(flat.src), 1)).astype(np.int32),
    }
