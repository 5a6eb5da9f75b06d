"""Conjugate gradients for a Poisson equation, its box cut into pencils (mpi4py)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from benchmarks.workloads.place import Place, Sent

LIBRARY = "openmpi@5.0.11"
SIDE, LENGTH, TURNS = 8, 8192, 3
"""Points of a pencil, and iterations that make a step. With smaller faces two cores
that 16 ranks share are what is measured: a sum of 8 bytes takes them 8 ms."""

Array = np.ndarray


def grid(ranks: int) -> tuple[int, int]:
    """Return rows and columns of ranks."""
    rows = next(n for n in range(math.isqrt(ranks), 0, -1) if ranks % n == 0)
    return rows, ranks // rows


def pairs(ranks: int) -> list[list[list[int]]]:
    """Return the neighbours that trade a face in each of four turns."""
    numbers = np.arange(ranks).reshape(grid(ranks))
    turns = []
    for lines in (numbers, numbers.T):
        for first in (0, 1):
            low, high = lines[:, first:-1:2], lines[:, first + 1 :: 2]
            turns.append(np.stack([low.ravel(), high.ravel()], 1).tolist())
    return [turn for turn in turns if turn]


def sent(ranks: int) -> list[Sent]:
    """Return four trades of faces and two sums of an iteration, times `TURNS`."""
    face = SIDE * LENGTH * 8
    trades = []
    for turn in pairs(ranks):
        alone = set(range(ranks)).difference(*turn)
        groups = [*turn, *([rank] for rank in sorted(alone))]
        trades.append(Sent("sendrecv", face, TURNS, groups))
    return [*trades, Sent("allreduce", 8, 2 * TURNS)]


class Pencil:
    """The part of the box that a rank has, with a rim for its neighbours' faces."""

    def __init__(self, place: Place) -> None:
        self.comm = None if place.alone else place.comm
        rank, ranks = place.rank, place.size
        columns = grid(ranks)[1]
        self.trades = [
            (abs(pair[0] - pair[1]) == columns, sum(pair) - rank, rank == pair[0])
            for turn in pairs(ranks)
            for pair in turn
            if rank in pair
        ]
        self.rim = np.zeros((SIDE + 2, SIDE + 2, LENGTH + 2))
        self.source = np.random.default_rng(rank).random((SIDE, SIDE, LENGTH))

    def laplace(self, values: Array) -> Array:
        """Return the seven-point operator on all points of the box."""
        rim = self.rim
        rim[1:-1, 1:-1, 1:-1] = values
        for down, other, is_first in self.trades:
            layers = rim if down else rim.swapaxes(0, 1)
            inner, outer = (-2, -1) if is_first else (1, 0)
            face = np.ascontiguousarray(layers[inner, 1:-1, 1:-1])
            if self.comm:
                received = np.empty_like(face)
                self.comm.Sendrecv(face, other, recvbuf=received, source=other)
                face = received
            layers[outer, 1:-1, 1:-1] = face
        near = rim[:-2, 1:-1, 1:-1] + rim[2:, 1:-1, 1:-1]
        near += rim[1:-1, :-2, 1:-1] + rim[1:-1, 2:, 1:-1]
        near += rim[1:-1, 1:-1, :-2] + rim[1:-1, 1:-1, 2:]
        return 6 * values - near

    def dot(self, left: Array, right: Array) -> float:
        """Return the inner product over the box."""
        own, total = np.vdot(left, right), np.empty(1)
        if self.comm is None:
            return float(own)
        self.comm.Allreduce(own.reshape(1), total)
        return float(total[0])


def gradients(
    times: Callable[[Array], Array], dot: Callable[[Array, Array], float], rest: Array
) -> Iterator[tuple[Array, float]]:
    """Solve a system by conjugate gradients; yield guesses and the square left of each.

    Parameters
    ----------
    times : callable
        The matrix times a vector, of which each rank has a part.
    dot : callable
        The inner product over all ranks.
    rest : ndarray
        The right side. The first guess is zero.
    """
    found, way, square = np.zeros_like(rest), rest, dot(rest, rest)
    while True:
        yield found, square
        image = times(way)
        length = square / dot(way, image)
        found, rest = found + length * way, rest - length * image
        before, square = square, dot(rest, rest)
        way = rest + square / before * way


@contextlib.contextmanager
def training(place: Place) -> Iterator[Callable[[], float]]:
    box = Pencil(place)
    guesses = gradients(box.laplace, box.dot, box.source)
    next(guesses)

    def step() -> float:
        *_, (_, square) = islice(guesses, TURNS)
        return math.sqrt(square)

    yield step
