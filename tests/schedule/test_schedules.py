from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from cloudcoll.errors import UsageError
from cloudcoll.schedule import SCHEDULES, Schedule, Step, build_schedule
from cloudcoll.schedule.steps import power_of_two_below

SIZE = 1 << 20
RANKS = range(1, 131)
ALGORITHMS = sorted(SCHEDULES["allreduce"])

Counts = npt.NDArray[np.uint8]
"""How often each rank's vector is in a sum: [..., contributor]."""


def allreduce(algorithm: str, ranks: int) -> Schedule:
    return build_schedule("allreduce", algorithm, ranks, SIZE)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("ranks", RANKS)
def test_every_step_is_possible(algorithm: str, ranks: int) -> None:
    """Tests that ranks exist, none sends to itself, twice at once or nothing."""
    for step in allreduce(algorithm, ranks).steps:
        assert len(step.src) == len(step.dst) == len(step.size) > 0
        assert step.repeat >= 1
        for end in (step.src, step.dst):
            assert end.min() >= 0
            assert end.max() < ranks
            assert len(np.unique(end)) == len(end)
        assert (step.src != step.dst).all()
        assert (step.size > 0).all()


@pytest.mark.parametrize("ranks", RANKS)
def test_recursive_doubling_sums_every_vector_once(ranks: int) -> None:
    """Tests by data flow that every rank ends with each contribution once."""
    have: Counts = np.eye(ranks, dtype=np.uint8)
    for step in allreduce("recursive_doubling", ranks).steps:
        assert (step.size == SIZE).all()
        arrived = have[step.src]
        result = (arrived == 1).all(axis=1, keepdims=True)
        # A result replaces, a partial sum is added.
        have[step.dst] = np.where(result, 1, have[step.dst] + arrived)
    assert (have == 1).all()


@pytest.mark.parametrize("ranks", RANKS)
def test_ring_sums_every_block_once(ranks: int) -> None:
    """Tests by data flow that blocks passed round the ring sum up everywhere."""
    have: Counts = np.repeat(np.eye(ranks, dtype=np.uint8)[:, None], ranks, axis=1)
    steps = allreduce("ring", ranks).steps
    rounds = [step for step in steps for _ in range(step.repeat)]
    for number, step in enumerate(rounds):
        assert step.size == pytest.approx(SIZE / ranks)
        block = (step.src - number) % ranks
        arrived = have[step.src, block]
        kept = have[step.dst, block] if number < ranks - 1 else 0
        have[step.dst, block] = kept + arrived
    assert (have == 1).all()


class Halves:
    """Rabenseifner's data flow: each rank's vector in blocks, and its window."""

    def __init__(self, ranks: int) -> None:
        self.blocks = max(power_of_two_below(ranks), 2)
        eye = np.eye(ranks, dtype=np.uint8)
        self.have = np.repeat(eye[:, None], self.blocks, axis=1)
        self.window = [(0, self.blocks)] * ranks

    def check_size(self, step: Step, low: int, high: int, message: int) -> None:
        assert step.size[message] == SIZE * (high - low) / self.blocks

    def fold(self, trade: Step, collect: Step) -> None:
        middle = self.blocks // 2
        before = self.have.copy()
        for message, (src, dst) in enumerate(zip(trade.src, trade.dst, strict=True)):
            low, high = (middle, self.blocks) if dst > src else (0, middle)
            self.have[dst, low:high] += before[src, low:high]
            self.check_size(trade, low, high, message)
        for message, (src, dst) in enumerate(
            zip(collect.src, collect.dst, strict=True)
        ):
            self.have[dst, middle:] = self.have[src, middle:]
            self.check_size(collect, middle, self.blocks, message)

    def halve(self, step: Step) -> None:
        before, windows = self.have.copy(), list(self.window)
        for message, (src, dst) in enumerate(zip(step.src, step.dst, strict=True)):
            low, high = windows[dst]
            assert windows[src] == (low, high)
            middle = (low + high) // 2
            low, high = (low, middle) if dst < src else (middle, high)
            self.have[dst, low:high] += before[src, low:high]
            self.window[dst] = low, high
            self.check_size(step, low, high, message)

    def gather(self, step: Step) -> None:
        windows = list(self.window)
        for message, (src, dst) in enumerate(zip(step.src, step.dst, strict=True)):
            low, high = windows[src]
            self.have[dst, low:high] = self.have[src, low:high]
            ends = sorted({*windows[dst], low, high})
            assert len(ends) == 3  # side by side, so that the window stays one
            self.window[dst] = ends[0], ends[2]
            self.check_size(step, low, high, message)


@pytest.mark.parametrize("ranks", RANKS)
def test_rabenseifner_sums_every_block_once(ranks: int) -> None:
    """Tests by data flow that halves traded and gathered sum up everywhere."""
    flow = Halves(ranks)
    steps = list(allreduce("rabenseifner", ranks).steps)
    folded = ranks - power_of_two_below(ranks)
    if folded:
        flow.fold(*steps[:2])
    exchanges = steps[2:-1] if folded else steps
    for step in exchanges[: len(exchanges) // 2]:
        flow.halve(step)
    for step in exchanges[len(exchanges) // 2 :]:
        flow.gather(step)
    if folded:
        assert (steps[-1].size == SIZE).all()
        flow.have[steps[-1].dst] = flow.have[steps[-1].src]
    assert (flow.have == 1).all()


@pytest.mark.parametrize("ranks", RANKS)
def test_bytes_match_the_closed_forms(ranks: int) -> None:
    """Tests the bytes of every rank against the formulas of the literature."""
    inner = power_of_two_below(ranks)
    rem = ranks - inner
    number = np.arange(ranks)
    even, odd = (number < 2 * rem) & (number % 2 == 0), number < 2 * rem
    odd = odd & ~even
    ring = np.full(ranks, 2 * (ranks - 1) / ranks)
    doubling = np.where(even, 1, inner.bit_length() - 1 + odd)
    halving = 2 * (1 - 1 / inner)
    # Even: half out, then takes part, then the whole back. Odd: two halves.
    rabenseifner = np.where(odd, 1.0, halving + 1.5 * even)
    for algorithm, expected in (
        ("ring", ring),
        ("recursive_doubling", doubling),
        ("rabenseifner", rabenseifner),
    ):
        sent = allreduce(algorithm, ranks).pair_bytes().sum(axis=1) / SIZE
        assert sent == pytest.approx(expected), algorithm


@pytest.mark.parametrize("algorithm", ["rabenseifner", "recursive_doubling"])
@pytest.mark.parametrize("ranks", RANKS)
def test_exchanges_are_symmetric(algorithm: str, ranks: int) -> None:
    """Tests that each rank sends in total what it gets from the same partner."""
    total = allreduce(algorithm, ranks).pair_bytes()
    rem = ranks - power_of_two_below(ranks)
    survivors = [*range(algorithm != "rabenseifner", 2 * rem, 2)]
    inner = np.array([*survivors, *range(2 * rem, ranks)])
    among = total[np.ix_(inner, inner)]
    assert (among == among.T).all()


def test_rabenseifner_folds_as_open_mpi_does() -> None:
    """Tests that at N = 48 the even rank survives and 102 S bytes move."""
    total = allreduce("rabenseifner", 48).pair_bytes()
    assert total.sum() == 102 * SIZE
    assert total[0, 1] == 1.5 * SIZE
    assert total[1, 0] == SIZE
    assert total[0, 2] == SIZE  # survivors 0 and 2 are neighbours among themselves
    assert total[1, 3] == 0


def test_recursive_doubling_folds_as_open_mpi_does() -> None:
    """Tests that with three ranks 0 folds into 1, which trades with 2."""
    steps = allreduce("recursive_doubling", 3).steps
    pairs = [
        list(zip(step.src.tolist(), step.dst.tolist(), strict=True)) for step in steps
    ]
    assert pairs == [[(0, 1)], [(1, 2), (2, 1)], [(1, 0)]]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_rank_sends_nothing(algorithm: str) -> None:
    """Tests that a world of one has no messages."""
    assert allreduce(algorithm, 1).steps == ()


def test_describe_identifies_the_schedule() -> None:
    """Tests that the description names what the schedule is exact for."""
    assert allreduce("ring", 6).describe() == {
        "collective": "allreduce",
        "algorithm": "ring",
        "library": "Open MPI 5.0",
        "ranks": 6,
        "size": SIZE,
    }


@pytest.mark.parametrize(
    ("arguments", "known"),
    [
        (("gather", "ring", 4, 1), "allreduce"),
        (("allreduce", "rnig", 4, 1), "rabenseifner, recursive_doubling, ring"),
        (("allreduce", "ring", 0, 1), "0 ranks"),
        (("allreduce", "ring", 4, -1), "-1 bytes"),
    ],
)
def test_unknown_names_are_refused(
    arguments: tuple[str, str, int, int], known: str
) -> None:
    """Tests that the error says what exists."""
    with pytest.raises(UsageError, match=known):
        build_schedule(*arguments)
