from __future__ import annotations

import random
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpis import EACH, MPIS, Mpi, newest

from cloudcoll.launch import choose_inbox, shim
from cloudcoll.launch.roll import (
    FORGET_S,
    LONGEST_S,
    MOST_PLACES,
    QUIET_S,
    Roll,
    calling_roll,
    variable,
)
from cloudcoll.launch.wrapper import MOST_RANKS, Inbox

HERE = ("127.0.0.1", 1, 0)
ONE_LACKS_IT = (
    "1 of 3 ranks do without the preloaded library ({}): running in the order given"
)
NAME = "h${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"


def hello(
    rank: int, ranks: int, *, heard: bool, own: str = "", world: str = "w"
) -> str:
    return f"here {world} {rank} {ranks} {own or f'p{rank}'} {heard:d} {rank // 2}"


def outcomes(answers: list[tuple[tuple[str, int, int], str]]) -> dict[str, str]:
    """Return process -> what it is told."""
    return {text.split()[0]: text.split()[1] for _, text in answers}


def arrive(roll: Roll, ranks: int, missing: int = -1) -> dict[str, str]:
    """Have all but one rank call and hear; return what was told last."""
    told: dict[str, str] = {}
    for heard in (False, True):
        for rank in range(ranks):
            if rank != missing:
                words = hello(rank, ranks, heard=heard)
                told |= outcomes(roll.hear(words, HERE, 0.0))
    return told


def test_all_are_told_when_all_hear() -> None:
    """Tests that everybody is told "all" at once, and again when asked again."""
    roll = Roll()
    assert arrive(roll, 3) == {"p0": "all", "p1": "all", "p2": "all"}
    assert not roll.undecided
    again = roll.hear(hello(1, 3, heard=True), HERE, 9e9)
    assert outcomes(again) == {"p1": "all"}
    assert roll.outcome == ""


def test_who_does_not_hear_is_not_counted() -> None:
    """Tests that a rank whose answers get lost makes it "no" for all."""
    roll = Roll()
    arrive(roll, 3, missing=2)
    assert outcomes(roll.hear(hello(2, 3, heard=False), HERE, 0.0)) == {"p2": "wait"}
    assert roll.late(QUIET_S) == []
    assert outcomes(roll.late(QUIET_S + 0.1)) == dict.fromkeys(("p0", "p1", "p2"), "no")
    assert roll.outcome == ONE_LACKS_IT.format(2)


def test_who_comes_too_late() -> None:
    """Tests that an outcome stays what it was."""
    roll = Roll()
    arrive(roll, 3, missing=1)
    assert set(outcomes(roll.late(QUIET_S + 1)).values()) == {"no"}
    assert outcomes(roll.hear(hello(1, 3, heard=True), HERE, 9.0)) == {"p1": "no"}
    assert roll.outcome == ONE_LACKS_IT.format(1)


def test_a_slow_start_is_waited_for_as_long_as_ranks_come() -> None:
    """Tests that the wait ends when nobody new comes, or after all."""
    roll = Roll()
    step = QUIET_S * 0.9
    for rank in range(8):
        roll.hear(hello(rank, 100, heard=True), HERE, rank * step)
        assert roll.late(rank * step) == []
    assert roll.late(LONGEST_S + 0.1)


def test_two_jobs_at_once() -> None:
    """Tests that ranks of two jobs are never told that all are here."""
    roll = Roll()
    arrive(roll, 2, missing=1)
    other = hello(0, 2, heard=True, own="q0")
    assert outcomes(roll.hear(other, HERE, 0.0)) == {"p0": "no", "q0": "no"}
    apart = Roll()
    for world in ("v", "w"):
        arrive_in = [hello(r, 2, heard=True, own=world, world=world) for r in (0, 1)]
        told = [outcomes(apart.hear(words, HERE, 0.0)) for words in arrive_in]
        assert told[-1] == {world: "all"}


def test_of_many_missing_ranks_four_are_named() -> None:
    """Tests that the line says how many lack, and that there are more."""
    roll = Roll()
    roll.hear(hello(0, 7, heard=True), HERE, 0.0)
    assert outcomes(roll.late(QUIET_S + 0.1)) == {"p0": "no"}
    assert roll.outcome == (
        "6 of 7 ranks do without the preloaded library (1, 2, 3, 4 ...): running in "
        "the order given"
    )


def test_where_all_ranks_are() -> None:
    """Tests that everybody is told the places of all in turn, if they are known."""
    roll = Roll()
    arrive(roll, 5)
    told = roll.hear(hello(0, 5, heard=True), HERE, 1.0)
    assert told == [(HERE, "p0 all 0*2,1*2,2*1")]
    long = Roll()
    for rank in range(MOST_PLACES // 2):
        long.hear(hello(rank, MOST_PLACES // 2, heard=True), HERE, 0.0)
    assert long.hear(hello(0, MOST_PLACES // 2, heard=True), HERE, 0.0) == [
        (HERE, "p0 all ")
    ]


def test_communicators_of_one_job() -> None:
    """Tests that each is decided by itself until one is refused, then at once."""
    roll = Roll()
    early, late, next_one = "job.1", "job.2", "job.3"
    for rank in range(2):
        told = roll.hear(hello(rank, 2, heard=True, world=early), HERE, 0.0)
    assert outcomes(told) == {"p0": "all", "p1": "all"}
    settled = roll.outcome
    assert settled is None
    roll.hear(hello(0, 3, heard=True, world=late), HERE, 0.0)
    assert outcomes(roll.late(QUIET_S + 0.1)) == {"p0": "no"}
    assert roll.outcome == (
        "2 of 3 ranks do without the preloaded library (1, 2): running in the order "
        "given"
    )
    told = roll.hear(hello(1, 2, heard=False, world=next_one), HERE, 3.0)
    assert outcomes(told) == {"p1": "no"}
    assert not roll.undecided
    told = roll.hear(hello(1, 2, heard=True, world=early), HERE, 3.0)
    assert outcomes(told) == {"p1": "all"}


def test_outcomes_that_nobody_asks_for_are_forgotten() -> None:
    """Tests that a job may make communicators for weeks."""
    roll = Roll()
    for second in range(200):
        for rank in range(2):
            words = hello(rank, 2, heard=True, world=f"job.{second}")
            told = roll.hear(words, HERE, float(second))
        assert set(outcomes(told).values()) == {"all"}
    recent = hello(1, 2, heard=True, world=f"job.{200 - FORGET_S:.0f}")
    assert outcomes(roll.hear(recent, HERE, 200.0)) == {"p1": "all"}
    old = hello(1, 2, heard=True, world="job.0")
    assert outcomes(roll.hear(old, HERE, 200.0)) == {"p1": "wait"}


def test_ranks_that_no_job_has() -> None:
    """Tests that a rank beyond its job, or a job beyond all bounds, is no caller."""
    roll = Roll()
    for rank, ranks in ((3, 3), (4, 3), (0, MOST_RANKS + 1)):
        assert roll.hear(hello(rank, ranks, heard=False), HERE, 0.0) == []
    assert outcomes(roll.hear(hello(0, MOST_RANKS, heard=False), HERE, 0.0))


def test_more_worlds_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that those known are answered and a new one is not."""
    monkeypatch.setattr("cloudcoll.launch.roll.MOST_WORLDS", 1)
    roll = Roll()
    for _ in range(2):
        assert outcomes(roll.hear(hello(0, 2, heard=False), HERE, 0.0))
    other = hello(0, 2, heard=False, world="v")
    assert roll.hear(other, HERE, 0.0) == []


def test_no_thread_to_answer_with(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a job runs, and why its ranks get no answer is said."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    said: list[str] = []
    with calling_roll(inbox, said.append) as roll:
        assert (roll(), roll.ran) == ("", "")
    assert said == ["cannot answer the ranks: can't start new thread"]


@given(
    st.text(max_size=60)
    | st.from_regex(r"here \w+ \d+ \d+ \w+ \w -?\d", fullmatch=True)
)
def test_strangers_are_not_answered(text: str) -> None:
    """Tests that only what a rank of this job says is answered, and with wait."""
    answers = Roll().hear(text, HERE, 0.0)
    ours = text.startswith("here ")
    assert len(answers) <= ours
    assert all(answer in ("wait", "all") for answer in outcomes(answers).values())


@given(st.randoms(use_true_random=False), st.integers(2, 6), st.booleans())
def test_nobody_is_told_another_outcome(
    rng: random.Random, ranks: int, one_is_missing: bool
) -> None:
    """Tests it for datagrams that come in any order, late, twice or never."""
    roll = Roll()
    told: dict[str, set[str]] = {}
    heard: set[int] = set()
    for step in range(200):
        rank = rng.randrange(ranks - one_is_missing)
        now = step * 0.02
        words = hello(rank, ranks, heard=rank in heard)
        for _, text in [*roll.hear(words, HERE, now), *roll.late(now)]:
            own, outcome = text.split()[:2]
            if rng.random() < 0.5:  # the others get lost
                heard.add(int(own[1:]))
                told.setdefault(own, set()).add(outcome)
    final = set().union(*told.values()) - {"wait"}
    assert len(final) <= 1
    assert "all" not in final or not one_is_missing


PROGRAM = """
from mpi4py import MPI
total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)
assert total == sum(range(MPI.COMM_WORLD.size))
"""


@pytest.fixture
def inbox() -> Inbox:
    return replace(choose_inbox(key=shim.ROLL_KEY), addresses=("127.0.0.1",))


def started(
    mpi: Mpi, inbox: Inbox, without: str = "none"
) -> subprocess.CompletedProcess[str]:
    """Start ranks that pose as hosts; one of them may lack the library."""
    env = {"CLOUDCOLL_DEBUG": "1", inbox.variable: inbox.secret}
    pose = f'[ {NAME} = {without} ] && unset LD_PRELOAD; CLOUDCOLL_HOST={NAME} "$@"'
    return mpi.mpirun(
        *(3, "sh", "-c", shim.BECOME, str(shim.LIBRARY)),
        *("CLOUDCOLL_SHIM_ORDER=h2,h0,h1", f"{shim.ROLL}={variable(inbox)}", "--"),
        *("sh", "-c", pose, "sh", sys.executable, "-c", PROGRAM),
        **env,  # type: ignore[arg-type]
    )


each_mpi = pytest.mark.parametrize("mpi", newest(EACH))


@each_mpi
def test_ranks_reorder_when_all_are_here(mpi: Mpi, inbox: Inbox) -> None:
    """Tests that real ranks are told so."""
    said: list[str] = []
    with calling_roll(inbox, said.append) as outcome:
        ended = started(mpi, inbox)
    assert (ended.returncode, outcome(), said) == (0, "", [])
    assert ended.stderr.count("shadow communicators were made") == 3


@each_mpi
@pytest.mark.parametrize("without", ["h0", pytest.param("h2", marks=pytest.mark.slow)])
def test_one_rank_without_the_library(mpi: Mpi, inbox: Inbox, without: str) -> None:
    """Tests that the job runs in the order given, with one line."""
    said: list[str] = []
    with calling_roll(inbox, said.append) as outcome:
        ended = started(mpi, inbox, without)
    assert ended.returncode == 0, ended.stderr
    assert "shadow communicators were made" not in ended.stderr
    assert (outcome(), said) == (ONE_LACKS_IT.format(without[1]), [])


def test_nobody_answers(inbox: Inbox) -> None:
    """Tests that ranks that are not answered run in the order given."""
    ended = started(MPIS[0], inbox)
    assert ended.returncode == 0
    assert ended.stderr.count("cloudcoll run does not answer") == 3
    assert "shadow communicators were made" not in ended.stderr
