"""How fast flows run that share links: max-min fairness, many rounds at once."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64
from typing import Any

import numpy as np
import numpy.typing as npt

from cloudcoll.engine import Doubles, Int32s, library, pointer
from cloudcoll.errors import CloudcollError
from cloudcoll.fabric.links import Links

SAME = 1e-9
"""Relative difference below which two fair shares count as equal."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class _Fair(Structure):
    """``fair`` of fair.h."""

    _fields_ = [
        *((name, c_int64) for name in ("rounds", "links", "width")),
        *((name, Int32s) for name in ("first", "path")),
        *((name, Doubles) for name in ("capacity", "weight", "rate")),
        ("limit", Int32s),
    ]


def fair_rates(
    links: Links, src: Ints, dst: Ints, weight: Floats | None = None
) -> Floats:
    """Return the max-min fair rates of flows that run at the same time.

    Parameters
    ----------
    links : Links
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

    Water filling (Bertsekas and Gallager 1992), at every bottleneck at once: a
    link whose share is the least on the paths of all its flows is full, and
    they stay at that share; the others go on with what is left.

    Parameters
    ----------
    links : Links
    rounds : ndarray of int64, shape (flows,)
        Flows of one round run together, those of others do not.
    src, dst : ndarray of int64, shape (flows,)
        Host columns of `links`; sender and receiver differ.
    weight : ndarray of float64, shape (flows,), optional
        As of `fair_rates`; all alike by default.

    Returns
    -------
    rates : ndarray of float64, shape (flows,)
        Bytes/s; ``inf`` where no link of known capacity is crossed.
    limits : ndarray of int64, shape (flows,)
        Position in ``up`` followed by ``down``; -1 where nothing limits.

    Raises
    ------
    CloudcollError
        There is not enough memory.
    """
    capacity = np.concatenate([links.up, links.down])
    path = _paths(links, src, dst)
    weight = np.ones(len(src)) if weight is None else weight
    engine = library()
    if engine is None:
        return _filled(capacity, path, rounds, weight)
    order = np.argsort(rounds, kind="stable")
    ordered = rounds[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    rate, limit = np.empty(len(src)), np.empty(len(src), dtype=np.int32)
    arrays: dict[str, npt.NDArray[Any]] = {
        "first": np.append(begins, len(src)).astype(np.int32),
        "path": np.ascontiguousarray(path.T[order], np.int32),
        "capacity": np.ascontiguousarray(capacity, np.float64),
        "weight": np.ascontiguousarray(weight[order], np.float64),
        "rate": rate,
        "limit": limit,
    }
    request = _Fair(
        rounds=len(begins),
        links=len(capacity),
        width=len(path),
        **{name: pointer(array) for name, array in arrays.items()},
    )
    if engine.fair_run(ctypes.byref(request)):
        raise CloudcollError(
            f"no memory for the links of {len(src)} flows: use a larger machine"
        )
    rates, limits = np.empty_like(rate), np.full(len(src), -1)
    rates[order] = rate
    held = np.flatnonzero(limit >= 0)
    limits[order[held]] = path[limit[held], order[held]]
    return rates, limits


def _filled(
    capacity: Floats, path: Ints, rounds: Ints, weight: Floats
) -> tuple[Floats, Ints]:
    """Compute `fair_rounds` where there is no engine, links of all rounds at once."""
    kinds, number = np.unique(rounds, return_inverse=True)
    # Each round has the links to itself; the last slot is no link at all.
    none = len(kinds) * len(capacity)
    slots = np.where(path < 0, none, path + number * len(capacity))
    left = np.append(np.tile(capacity, len(kinds)), np.inf)
    rates = np.full(len(rounds), np.inf)
    limits = np.full(len(rounds), -1, dtype=np.int64)
    growing = np.arange(len(rounds))
    while len(growing):
        mine = slots[:, growing]
        users = _over(mine, weight[growing], none + 1)
        share = np.divide(left, users, out=np.full(none + 1, np.inf), where=users > 0)
        least = share[mine].min(axis=0)
        tightest = np.full(none + 1, np.inf)
        np.minimum.at(tightest, mine.ravel(), np.tile(least, len(mine)))
        full = np.isfinite(share) & (share <= tightest * (1 + SAME))
        held = full[mine] & (share[mine] <= least * (1 + SAME))
        stays = held.any(axis=0)
        if not stays.any():
            break
        done = growing[stays]
        rates[done] = least[stays] * weight[done]
        limits[done] = path[held[:, stays].argmax(axis=0), done]
        left -= _over(mine[:, stays], rates[done], none + 1)
        left = np.maximum(left, 0.0)
        growing = growing[~stays]
    return rates, limits


def _over(slots: Ints, value: Floats, count: int) -> Floats:
    """Return the sum of a flow's value over each slot of its path, shape (count,)."""
    values = np.tile(value, len(slots))
    return np.bincount(slots.ravel(), values, count).astype(np.float64)


def on_full_links(
    links: Links, rounds: Ints, src: Ints, dst: Ints, limits: Ints, *rates: Floats
) -> tuple[Ints, list[Floats]]:
    """Return what each full link carried in each round.

    TCP shares a link as it likes within a second, also with flows that another
    link holds back; the sum of all is the link's own.

    Parameters
    ----------
    links : Links
    rounds, src, dst, limits : ndarray of int64, shape (flows,)
        As of `fair_rounds`; a link is full where it limits a flow.
    *rates : ndarray of float64, shape (flows,)
        Bytes/s.

    Returns
    -------
    full : ndarray of int64, shape (cases,)
        The link of each pair of a round and a link that was full in it.
    sums : list of ndarray of float64, shape (cases,)
        For each of `rates` its sum over the flows across that link.
    """
    count = 2 * len(links.up)
    kinds, number = np.unique(rounds, return_inverse=True)
    none = len(kinds) * count
    held = limits >= 0
    cases = np.unique(limits[held] + number[held] * count)
    case = np.full(none + 1, len(cases))
    case[cases] = np.arange(len(cases))
    path = _paths(links, src, dst)
    place = case[np.where(path < 0, none, path + number * count)]
    across = place < len(cases)
    sums: list[Floats] = []
    for rate in rates:
        every = np.broadcast_to(rate, path.shape)[across]
        sums.append(np.bincount(place[across], every, len(cases)).astype(np.float64))
    return cases % count if count else cases, sums


def _paths(links: Links, src: Ints, dst: Ints) -> Ints:
    """Return the links of each flow, shape (2 depth, flows); -1 pads."""
    out, into = links.member[:, src], links.member[:, dst]
    crosses = out != into
    up, down = np.where(crosses, out, -1), np.where(crosses, into + len(links.up), -1)
    return np.concatenate([up, down])
