"""Count the processes that have the shim's library, and tell them if all have it.

The other end of shim/roll.c, beside a running job. A datagram of a process is, inside
the seal that `cloudcoll.launch.seal` puts on it,

    here WORLD RANK RANKS SELF HEARD PLACE

where WORLD is the same in processes that were started together, SELF is one
process's own number, HEARD is 1 once it has had an answer, and PLACE that of its
host in the order, or -1. The answer is ``SELF wait``, ``no`` or ``all PLACES`` (of
all ranks in turn, ``PLACE*COUNT,...``), and ``all`` only if every rank has said
that it hears: whoever has an answer knows that the others get it, too.

Of a world whose name begins with ``starting-`` some may still have to be started: it
waits longer. ``ran WORDS`` says what is wrong with the algorithms that were chosen, no
words that nothing is (shim/tune.c); nobody answers that.

A world named ``JOB.COMMUNICATOR`` is one of several in a job. Once one was refused,
so is every other that is not decided yet: who is missing would be missed again.

In a world whose name begins with ``tuner-`` NCCL's tuner calls, not a library that is
preloaded (shim/nccl/tuner).
"""

from __future__ import annotations

import contextlib
import functools
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from cloudcoll.launch.seal import PUBLIC, Seal
from cloudcoll.launch.wrapper import LONGEST, MOST_RANKS, Inbox, listening

QUIET_S = 2.0
"""The rest is missing when nobody new was heard for so long."""

LONGEST_S = 20.0
"""A start that takes longer is not waited for; roll.c waits 30 s."""

STARTING = "starting-"
STARTING_QUIET_S, STARTING_LONGEST_S = 15.0, 80.0
"""The same where MPI_Init has not made all ranks wait for each other."""

TUNER = "tuner-"

MOST_WORLDS = 100_000
"""More are a stranger's; they are not answered."""

FORGET_S = 60.0
"""Nobody asks for an outcome that is older."""

MOST_PLACES = 60_000
"""Bytes of places that fit into a datagram; else none are told."""

CALL = re.compile(r"here (\S+) (\d{1,7}) (\d{1,7}) (\S+) (\S) (-?\d{1,9})")
"""What one process says, in the order above."""

RAN = re.compile(r"ran ([ -~]{0,200})")

Address = tuple[str, int, int]
"""Host and port of a process, and the number of our socket that hears it."""

Answer = tuple[Address, str]


def variable(inbox: Inbox) -> str:
    """Return what the library is told of where to call, and by which secret."""
    name = "-" if inbox.secret == PUBLIC else inbox.variable
    return " ".join([name, str(inbox.port), *inbox.addresses])


class _Caller(NamedTuple):
    """One rank: its own number, where it is answered, the place of its host."""

    own: str
    address: Address
    place: str


@dataclass
class _World:
    """Processes that were started together: who called, and who hears us."""

    name: str
    ranks: int
    began: float
    news: float
    callers: dict[int, _Caller] = field(default_factory=dict)
    hearing: set[int] = field(default_factory=set)
    outcome: str = ""

    def is_late(self, now: float) -> bool:
        """Return whether those who have not called are missing."""
        if self.name.startswith(STARTING):
            quiet, longest = STARTING_QUIET_S, STARTING_LONGEST_S
        else:
            quiet, longest = QUIET_S, LONGEST_S
        return now - self.news > quiet or now - self.began > longest

    @property
    def lacking(self) -> str:
        """What those who have not called do without."""
        own = self.name.startswith(TUNER)
        return "the tuner's table" if own else "the preloaded library"

    @property
    def instead(self) -> str:
        """What all do where some are missing."""
        own = self.name.startswith(TUNER)
        return "NCCL's own algorithms run" if own else "running in the order given"

    @property
    def job(self) -> str:
        """Of which it is one of several worlds; empty if it is alone."""
        return self.name.rpartition(".")[0]

    @property
    def places(self) -> str:
        """The place of each rank's host, empty where that is too long to tell."""
        runs = groupby(self.callers[rank].place for rank in range(self.ranks))
        text = ",".join(f"{place}*{len(list(same))}" for place, same in runs)
        return text if len(text) <= MOST_PLACES else ""


class Roll:
    """Who is here, by world. No clock and no socket: see `calling_roll`.

    Attributes
    ----------
    outcome : str or None
        Why not all are here, of the first world where that is so; empty if all
        are; None while nothing is decided, or nothing wrong with a job that may
        have more communicators.
    ran : str or None
        What is wrong with the algorithms chosen, empty if nothing; None while that is
        not known.
    """

    def __init__(self) -> None:
        self._worlds: dict[str, _World] = {}
        self._open: dict[str, _World] = {}
        self._refused: set[str] = set()
        self.outcome: str | None = None
        self.ran: str | None = None

    @classmethod
    def unanswered(cls) -> Roll:
        """Return that of a job in which nobody calls: nothing is wrong."""
        roll = cls()
        roll.outcome = roll.ran = ""
        return roll

    def __call__(self) -> str | None:
        """Return `outcome`: a `Check` of who is here."""
        return self.outcome

    def hear(self, text: str, address: Address, now: float) -> list[Answer]:
        """Take what was in a datagram's seal at `now`; return what is to be sent."""
        if said := RAN.fullmatch(text):
            # Whatever is wrong stays so.
            self.ran = self.ran or _wrong(said[1])
        call = CALL.fullmatch(text)
        if not call:
            return []
        rank, ranks, own, place = int(call[2]), int(call[3]), call[4], call[6]
        full = len(self._worlds) == MOST_WORLDS and call[1] not in self._worlds
        if not rank < ranks <= MOST_RANKS or full:
            return []
        world = self._world(call[1], ranks, now)
        caller = world.callers.get(rank)
        if world.ranks != ranks or (caller and caller.own != own):
            answers = self._refuse(world, "two jobs answered as one")
            return [*answers, (address, f"{own} no")]
        # A copy of a question that somebody else sends is answered to who asked it.
        address = caller.address if caller else address
        if world.outcome:
            outcome = world.outcome if caller else "no"
            return [(address, f"{own} {outcome}")]
        if not caller:
            world.news = now
            world.callers[rank] = _Caller(own, address, place)
        if call[5] == "1" and rank not in world.hearing:
            world.news = now
            world.hearing.add(rank)
        if len(world.hearing) == world.ranks:
            self.outcome = self.outcome or (None if world.job else "")
            return self._tell(world, f"all {world.places}")
        return [(address, f"{own} wait")]

    def _world(self, name: str, ranks: int, now: float) -> _World:
        """Return the world of this name, a new one if nobody has called yet."""
        if found := self._worlds.get(name):
            return found
        world = self._worlds[name] = _World(name, ranks, now, now)
        if world.job in self._refused:
            world.outcome = "no"
        else:
            self._open[name] = world
        oldest = next(iter(self._worlds))
        if now - self._worlds[oldest].news > FORGET_S:
            del self._worlds[oldest]
        return world

    def late(self, now: float) -> list[Answer]:
        """Return what is to be sent because some did not come in time."""
        answers = []
        for world in list(self._open.values()):
            if world.is_late(now):
                missing = sorted(set(range(world.ranks)) - world.hearing)
                more = " ..." if len(missing) > 4 else ""
                answers += self._refuse(
                    world,
                    f"{len(missing)} of {world.ranks} ranks do without {world.lacking} "
                    f"({', '.join(map(str, missing[:4]))}{more})",
                )
        return answers

    @property
    def undecided(self) -> bool:
        """Whether `late` may have something to say."""
        return bool(self._open)

    def _refuse(self, world: _World, reason: str) -> list[Answer]:
        if world.outcome:  # what was told stays
            return []
        if world.job:
            self._refused.add(world.job)
        self.outcome = self.outcome or f"{reason}: {world.instead}"
        return self._tell(world, "no")

    def _tell(self, world: _World, outcome: str) -> list[Answer]:
        world.outcome = outcome
        del self._open[world.name]
        return [
            (caller.address, f"{caller.own} {outcome}")
            for caller in world.callers.values()
        ]


def _wrong(said: str) -> str:
    return f"the algorithms chosen are not in force: {said}" if said else ""


@contextlib.contextmanager
def calling_roll(inbox: Inbox | None, say: Callable[[str], None]) -> Iterator[Roll]:
    """Answer the processes of a job, if any call, for the time of the context."""
    if inbox is None:
        yield Roll.unanswered()
        return
    try:
        own = listening(inbox)
    except OSError as error:
        say(f"cannot hear the ranks: port {inbox.port}: {error.strerror}")
        yield Roll.unanswered()
        return
    with contextlib.ExitStack() as stack:
        for one in own:
            stack.enter_context(one)
        over, waking = socket.socketpair()
        stack.enter_context(over)
        stack.enter_context(waking)
        roll = Roll()
        words = own, Seal(inbox.secret), roll, over
        thread = threading.Thread(target=_answer, args=words, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            say(f"cannot answer the ranks: {error}")
            yield Roll.unanswered()
            return
        try:
            yield roll
        finally:
            waking.close()
            thread.join(QUIET_S)


def _answer(
    sockets: list[socket.socket], seal: Seal, roll: Roll, over: socket.socket
) -> None:
    """Answer datagrams until the other end of `over` is closed."""
    poll = select.poll()
    for own in (*sockets, over):
        poll.register(own, select.POLLIN)
    while True:
        ready = dict(poll.poll(QUIET_S / 10 * 1000 if roll.undecided else None))
        if over.fileno() in ready:
            return
        answers = []
        for number, own in enumerate(sockets):
            with contextlib.suppress(BlockingIOError):  # nobody called
                data, (host, port) = own.recvfrom(LONGEST)
                text, address = seal.open(data) or "", (host, port, number)
                answers += roll.hear(text, address, time.monotonic())
        for (host, port, number), answer in [*answers, *roll.late(time.monotonic())]:
            # What can't be sent is asked for again.
            with contextlib.suppress(OSError):
                sockets[number].sendto(closed(seal, answer), (host, port))


def closed(seal: Seal, answer: str) -> bytes:
    """Return the datagram with an answer.

    The places are the same for all, and long, so that their MAC is worked out once:
    what is sealed in their stead is that.
    """
    own, told, places = answer.partition(" all ")
    return seal.close(answer, f"{own}{told}{_mac(seal, places)}" if told else "")


_mac = functools.lru_cache(maxsize=16)(Seal.mac)
