"""Prove that a schedule delivers, by moving its blocks from rank to rank."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cloudcoll.collectives import Schedule

Holdings = npt.NDArray[np.int32]
"""How often each contribution is in a block: [rank, block, contributor].

Blocks that are only passed on have one contributor: who had them first."""

WORLDS = (*range(1, 41), 63, 64, 65, 96, 127, 128, 129, 130)
"""Every small number of ranks, and large ones beside powers of two."""


def assert_delivers(schedule: Schedule) -> None:
    """Run the schedule and compare what every rank then holds with its operation."""
    have = start(schedule)
    came = np.zeros_like(have)
    blocks = schedule.blocks
    for step in schedule.steps:
        cargo = step.cargo
        assert cargo is not None, "a step that does not tell what it carries"
        for turn in range(step.repeat):
            message, block = cargo.blocks(turn, blocks)
            carried = (came if cargo.relays else have)[step.src[message], block]
            assert carried.any(axis=1).all(), "a message of blocks not held"
            to = (step.dst[message], block)
            came[to] = carried
            if not cargo.reduces:
                have[to] = carried
            elif len(np.unique(to[0] * blocks + to[1])) == len(carried):
                have[to] += carried
            else:
                # Some blocks get several at a time; in general, but slowly.
                np.add.at(have, to, carried)
    assert_done(schedule, have)


def start(schedule: Schedule) -> Holdings:
    """Return what each rank holds before the call."""
    ranks, blocks = schedule.ranks, schedule.blocks
    if sums(schedule):
        eye = np.eye(ranks, dtype=np.int32)
        return np.repeat(eye[:, None], blocks, axis=1)
    have = np.zeros((ranks, blocks, 1), dtype=np.int32)
    if schedule.collective == "bcast":
        have[root(schedule)] = 1
    else:
        have[own(schedule)] = 1
    return have


def assert_done(schedule: Schedule, have: Holdings) -> None:
    """Compare what each rank holds after the call with the operation's result."""
    ranks, blocks = schedule.ranks, schedule.blocks
    if schedule.collective == "reduce":
        assert (have[root(schedule)] == 1).all()
    elif schedule.collective == "reduce_scatter":
        assert (have[own(schedule)] == 1).all()
    elif schedule.collective == "alltoall":
        origin = np.arange(blocks) // ranks
        dst = (origin + np.arange(blocks) % ranks) % ranks
        assert (have[dst, np.arange(blocks)] == 1).all()
    elif schedule.collective == "sendrecv":
        ways = {"forward": [1], "backward": [-1], "both": [1, -1]}
        for way in ways[schedule.algorithm.removeprefix("openmpi_")]:
            for src in range(max(0, -way), ranks - max(0, way)):
                assert have[src + way, src] == 1
    elif schedule.collective == "barrier":
        assert (have >= 1).all()
    else:
        assert schedule.collective in ("allreduce", "allgather", "bcast")
        assert (have == 1).all()


def sums(schedule: Schedule) -> bool:
    """Return whether blocks are sums of what all ranks have.

    An allreduce that adds nothing up on the way gathers everyone's vector.
    """
    if schedule.collective == "allreduce":
        cargos = [step.cargo for step in schedule.steps]
        return schedule.ranks == 1 or any(cargo and cargo.reduces for cargo in cargos)
    return schedule.collective in ("reduce", "reduce_scatter", "barrier")


def own(schedule: Schedule) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return rank and block of what every rank has, or gets, for itself."""
    assert schedule.blocks % schedule.ranks == 0 or schedule.ranks == 1
    block = np.arange(schedule.blocks)
    return block // (schedule.blocks // schedule.ranks), block


def root(schedule: Schedule) -> int:
    """Return the root of a broadcast or a reduction."""
    return schedule.parameters.get("root", 0)
