"""The communicators of one training job: which ranks make up which group.

A job that splits its model runs each collective in many small groups at once.
The rule is Megatron-LM's (``megatron/core/parallel_state.py``, 2026-08:
``RankGenerator``): ranks are numbered through the axes in the order written,
the first token fastest, and a group is the ranks that differ in its own axes
only. Experts live on a second grid of the same ranks, on which ``ep`` takes
the place of ``cp`` and part of ``dp``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.errors import UsageError

AXES = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
    "dp": "data parallel",
    "pp": "pipeline parallel",
}
DEFAULT_ORDER = tuple(AXES)
WORLD = "world"
"""The name of the one group of all ranks."""

MOST_RANKS = 1 << 16
"""More than anyone has, so that a slip of the finger does not fill the memory."""


@dataclass(frozen=True)
class Parallel:
    """How a job's ranks are split.

    Attributes
    ----------
    tp, cp, ep, dp, pp : int
        Sizes of the groups of each kind (`AXES`), at least 1.
    order : tuple of str
        All five axes, the one that numbers neighbours first.

    Raises
    ------
    UsageError
        The experts' grid does not fit on the ranks.
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1
    order: tuple[str, ...] = DEFAULT_ORDER

    def __post_init__(self) -> None:
        if max(self.ranks, self.ep) > MOST_RANKS:
            raise UsageError(f"more than {MOST_RANKS} ranks: no job has so many")
        if self.cp * self.dp % self.ep:
            raise UsageError(
                f"ep={self.ep} does not divide cp x dp = {self.cp * self.dp}: "
                "experts are spread over those ranks"
            )
        # Both grids have the same pipelines only if as many ranks come before pp.
        before = self.order[: self.order.index("pp")]
        dense, experts = (
            math.prod(dict(self._grid(kind))[axis] for axis in before)
            for kind in (False, True)
        )
        if self.pp > 1 and dense != experts:
            raise UsageError(
                f"order={'-'.join(self.order)} puts experts in other pipelines than "
                f"the rest (cp={self.cp}, ep={self.ep}): put pp last in order"
            )

    def __str__(self) -> str:
        """Return it as `parse_parallel` reads it."""
        used = [f"{axis}={getattr(self, axis)}" for axis in AXES if self._uses(axis)]
        order = f",order={'-'.join(self.order)}" if self.order != DEFAULT_ORDER else ""
        return ",".join(used) + order

    def _uses(self, axis: str) -> bool:
        return axis == "dp" or getattr(self, axis) > 1

    @property
    def ranks(self) -> int:
        """The job's world size."""
        return self.tp * self.cp * self.dp * self.pp

    def groups(self, *axes: str) -> Ints:
        """Return the groups whose ranks differ in these axes only, as global ranks.

        With ``ep`` among the axes, of the experts' grid; gradients are summed over
        ``groups("dp", "cp")``. The shape is (groups, group size), a group's ranks as
        its first axis numbers them.
        """
        if unknown := [axis for axis in axes if axis not in AXES]:
            raise UsageError(
                f"no groups of kind {unknown[0]!r} (known: {', '.join(AXES)}, {WORLD})"
            )
        # The first token numbers fastest, so it is the last axis of the array.
        grid = self._grid(experts="ep" in axes)[::-1]
        shape = [size for _, size in grid]
        inside = [number for number, (axis, _) in enumerate(grid) if axis in axes]
        outside = [number for number in range(len(grid)) if number not in inside]
        members = math.prod(shape[number] for number in inside)
        numbered = np.arange(self.ranks).reshape(shape)
        return numbered.transpose(outside + inside).reshape(-1, members)

    def named(self, name: str) -> Ints:
        """Return the groups called ``world``, ``tp``, ``dp-cp`` and the like."""
        return (
            np.arange(self.ranks)[None]
            if name == WORLD
            else self.groups(*name.split("-"))
        )

    def _grid(self, experts: bool) -> list[tuple[str, int]]:
        """Return (axis, size) in the order in which ranks are numbered."""
        sizes = {"tp": self.tp, "cp": self.cp, "ep": 1, "dp": self.dp, "pp": self.pp}
        if experts:
            sizes |= {"cp": 1, "ep": self.ep, "dp": self.cp * self.dp // self.ep}
        return [(axis, sizes[axis]) for axis in self.order]


def is_implied(name: str) -> bool:
    """Return whether groups of this name follow from how the ranks are split."""
    return name == WORLD or set(name.split("-")) <= AXES.keys()


def parse_parallel(text: str, ranks: int | None = None) -> Parallel:
    """Read ``tp=8,pp=4,dp=16[,cp=2][,ep=4][,order=tp-cp-ep-dp-pp]``.

    Parameters
    ----------
    text : str
        Axes left out have size 1; ``dp`` left out takes what `ranks` leaves.
        Axes of size 1 may be left out of ``order``.
    ranks : int, optional
        The job's world size, which the sizes have to multiply to.

    Raises
    ------
    UsageError
        Unknown or repeated token, no positive number, sizes that do not
        multiply to `ranks` or an order that lacks an axis in use.
    """
    given = _assignments(text)
    order = given.pop("order", None)
    sizes = {axis: _size(axis, value) for axis, value in given.items()}
    if ranks is not None:
        dense = math.prod(size for axis, size in sizes.items() if axis != "ep")
        if "dp" not in sizes and ranks % dense == 0:
            sizes["dp"], dense = ranks // dense, ranks
        if dense != ranks:
            product = " x ".join(
                f"{axis}={size}" for axis, size in sizes.items() if axis != "ep"
            )
            raise UsageError(f"{product} is {dense} ranks, the job has {ranks}")
    return Parallel(**sizes, order=_order(order, sizes))


def _assignments(text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in text.split(","):
        token, equals, value = (piece.strip() for piece in part.partition("="))
        if token not in (*AXES, "order"):
            raise UsageError(
                f"unknown token {token!r} in {text!r} (known: {', '.join(AXES)}, order)"
            )
        if token in given:
            raise UsageError(f"{token} is given twice in {text!r}")
        if not equals:
            raise UsageError(f"{token} has no value in {text!r}: write {token}=...")
        given[token] = value
    return given


def _size(axis: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()) or not value.strip("0"):
        raise UsageError(f"{axis}={value}: a group has a positive number of ranks")
    # int() itself refuses thousands of digits.
    return MOST_RANKS + 1 if len(value) > len(str(MOST_RANKS)) else int(value)


def _order(text: str | None, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return all axes; those left out have size 1 and go last, as Megatron's do."""
    if text is None:
        return DEFAULT_ORDER
    tokens = text.split("-")
    for number, token in enumerate(tokens):
        if token not in AXES:
            raise UsageError(
                f"unknown axis {token!r} in order={text} (known: {', '.join(AXES)})"
            )
        if token in tokens[:number]:
            raise UsageError(f"{token} is twice in order={text}")
    missing = [axis for axis in AXES if axis not in tokens]
    for axis in missing:
        if sizes.get(axis, 1) > 1:
            raise UsageError(
                f"order={text} lacks {axis}, which has {sizes[axis]} ranks"
            )
    return (*tokens, *missing)
