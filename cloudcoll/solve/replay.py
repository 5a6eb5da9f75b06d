"""`contention.contended_seconds` in C (``replay.c``), which is quicker."""

from __future__ import annotations

import ctypes
import math
from ctypes import Structure, c_double, c_int64
from typing import Any

import numpy as np
import numpy.typing as npt

from cloudcoll.engine import Doubles, Int32s, pointer
from cloudcoll.errors import CloudcollError
from cloudcoll.model.contention import Replay
from cloudcoll.model.cost import Ints


class _Replay(Structure):
    """``replay`` of replay.h."""

    _fields_ = [
        *((name, c_int64) for name in ("messages", "ranks", "links", "width")),
        *((n, Int32s) for n in ("rank", "phase", "path", "first", "mine")),
        *((n, Doubles) for n in ("capacity", "size", "weight", "delay", "least")),
        ("lead", c_int64),
        *((name, c_double) for name in ("limit_s", "seconds")),
    ]


def replayed_seconds(
    engine: ctypes.CDLL, replay: Replay, limit_s: float = math.inf
) -> float:
    """Return the seconds until the last message ends, after those that lead.

    Parameters
    ----------
    engine : CDLL
        From `library`.
    replay : Replay
    limit_s : float
        Of these, after which it stops: the answer is ``inf``.

    Raises
    ------
    CloudcollError
        There is not enough memory.
    """
    links, member = replay.links, replay.links.member
    out, into = member[:, replay.host[0]], member[:, replay.host[1]]
    ways = np.concatenate([out, into + len(links.up)])
    whole: dict[str, npt.NDArray[np.integer[Any]]] = {
        "rank": replay.rank.T,
        "phase": replay.phase,
        "path": np.where(np.tile(out != into, (2, 1)), ways, -1).T,
        **_by_rank(replay.rank, replay.ranks),
    }
    real = {
        "capacity": np.concatenate([links.up, links.down]),
        "size": replay.size,
        "weight": replay.weight,
        "delay": replay.delay,
        "least": replay.least,
    }
    arrays: dict[str, npt.NDArray[Any]] = {
        **{name: np.ascontiguousarray(a, np.int32) for name, a in whole.items()},
        **{name: np.ascontiguousarray(a, np.float64) for name, a in real.items()},
    }
    request = _Replay(
        messages=len(replay.size),
        ranks=replay.ranks,
        links=2 * len(links.up),
        width=2 * len(member),
        lead=replay.lead,
        limit_s=limit_s,
        **{name: pointer(array) for name, array in arrays.items()},
    )
    if engine.replay_run(ctypes.byref(request)):
        raise CloudcollError(
            f"no memory to replay {len(replay.size)} messages: "
            "solve on a larger machine"
        )
    return float(request.seconds)


def _by_rank(rank: Ints, ranks: int) -> dict[str, Ints]:
    """Return where the messages of each rank begin in a list, and the list.

    A rank's are ascending.
    """
    ends, message = rank.ravel(), np.tile(np.arange(rank.shape[1]), 2)
    order = np.lexsort((message, ends))
    first = np.searchsorted(ends[order], np.arange(ranks + 1))
    return {"first": first, "mine": message[order]}
