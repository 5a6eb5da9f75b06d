from __future__ import annotations

import numpy as np
import pytest

from cloudcoll.collectives import SCHEDULES, Schedule, build_schedule
from cloudcoll.errors import UsageError
from cloudcoll.libraries.question import power_of_two

SIZE = 1 << 20
RANKS = range(1, 131)
ALGORITHMS = sorted(SCHEDULES["allreduce"])


def allreduce(algorithm: str, ranks: int) -> Schedule:
    return build_schedule("allreduce", algorithm, ranks, SIZE)


@pytest.mark.parametrize("algorithm", ["rabenseifner", "recursive_doubling", "ring"])
@pytest.mark.parametrize("ranks", RANKS)
def test_exchanges_send_and_receive_once(algorithm: str, ranks: int) -> None:
    """Tests that no rank sends or receives twice in a step."""
    for step in allreduce(algorithm, ranks).steps:
        for end in (step.src, step.dst):
            assert len(np.unique(end)) == len(end)


@pytest.mark.parametrize("ranks", RANKS)
def test_bytes_match_the_closed_forms(ranks: int) -> None:
    """Tests the bytes of every rank against the formulas of the literature."""
    inner = power_of_two(ranks)
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
    rem = ranks - power_of_two(ranks)
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
    assert allreduce("rabenseifner", 6).describe() == {
        "collective": "allreduce",
        "algorithm": "rabenseifner",
        "library": "Open MPI 4.1, 5.0",
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


def test_describe_names_parameters() -> None:
    """Tests that parameters given belong to what identifies a schedule."""
    schedule = build_schedule("bcast", "knomial", 6, SIZE, root=2, radix=3)
    assert schedule.describe()["parameters"] == {"root": 2, "radix": 3}


@pytest.mark.parametrize(
    ("algorithm", "parameters", "message"),
    [
        ("linear", {"rooot": 1}, r"no parameter 'rooot' \(takes: root\)"),
        ("linear", {"root": 4}, "root 4 is not one of 4 ranks, 0 to 3"),
        ("linear", {"root": -1}, "root must be at least 0, not -1"),
        ("knomial", {"radix": 1}, "radix must be at least 2, not 1"),
        ("chain", {"segment": -8}, "segment must be at least 0"),
    ],
)
def test_wrong_parameters_are_refused(
    algorithm: str, parameters: dict[str, int], message: str
) -> None:
    """Tests that the error says what the family takes."""
    with pytest.raises(UsageError, match=message):
        build_schedule("bcast", algorithm, 4, 1, **parameters)


def test_parameters_where_there_are_none_are_refused() -> None:
    """Tests that a family without parameters says so."""
    with pytest.raises(UsageError, match=r"'segment' \(takes none\)"):
        build_schedule("allreduce", "ring", 4, 1, segment=1)


def test_numbers_of_parts_are_those_of_the_library() -> None:
    """Tests that a part which does not exist is refused."""
    with pytest.raises(UsageError, match="reduce must be 1 to 8, not 9"):
        build_schedule("allreduce", "nonoverlapping", 4, 1, reduce=9)


def test_an_algorithm_for_two_refuses_three() -> None:
    """Tests that the error says for how many ranks it is."""
    with pytest.raises(UsageError, match="two_proc is for 2 ranks, not 3"):
        build_schedule("alltoall", "two_proc", 3, 1)
