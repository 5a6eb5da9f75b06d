"""A cost model's steps and links as the search engine reads them."""

from __future__ import annotations

import math
from ctypes import Structure, c_double, c_int64
from typing import Any

import numpy as np
import numpy.typing as npt

from cloudcoll.engine import Doubles, Int32s, Int64s, pointer
from cloudcoll.flatsteps import FlatSteps

BITS = 62
"""Of the integers in which loads and times are counted: sums stay below 2**63."""


class Problem(Structure):
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


Arrays = dict[str, npt.NDArray[Any]]


def problem_of(flat: FlatSteps) -> tuple[Problem, Arrays]:
    """Return the problem, and the arrays that its pointers point to."""
    arrays = {**_arrays(flat), **_messages_of_ranks(flat)}
    pointers = {name: pointer(array) for name, array in arrays.items()}
    return Problem(**_numbers(flat), **pointers), arrays


def _numbers(flat: FlatSteps) -> dict[str, float]:
    unit, fine = _units(flat)
    depth, hosts = flat.links.member.shape
    return {
        "hosts": hosts,
        "ranks": flat.ranks,
        "seats": flat.seats,
        "depth": depth,
        "links": len(flat.links.up),
        "messages": len(flat.src),
        "steps": len(flat.phase),
        "phases": flat.phases,
        "unit": unit,
        "fine": fine,
        "path_fine": _path_unit(flat),
    }


def _arrays(flat: FlatSteps) -> dict[str, npt.NDArray[Any]]:
    unit, _ = _units(flat)
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
