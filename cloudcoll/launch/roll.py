"""Count the processes that have the shim's library, and tell them if all have it.

The other end of shim/roll.c, beside a running job. A datagram of a process is

    TOKEN here WORLD RANK RANKS SELF HEARD PLACE

where WORLD is the same in processes that were started together, SELF is one
process's own number, HEARD is 1 once it has had an answer, and PLACE that of its
host in the order, or -1. The answer is ``TOKEN SELF wait``, ``no`` or ``all PLACES``
(of all ranks in turn, ``PLACE*COUNT,...``), and ``all`` only if every rank has said
that it hears: whoever has an answer knows that the others get it, too.

A world named ``JOB.COMMUNICATOR`` is one of several in a job. Once one was refused,
so is every other that is not decided yet: who is missing would be missed again.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from cloudcoll.launch.leaf import LONGEST, Inbox
from cloudcoll.launch.readback import Check

QUIET_S = 2.0
"""The rest is missing when nobody new was heard for so long."""

LONGEST_S = 20.0
"""A start that takes longer is not waited for; roll.c waits 30 s."""

MOST_RANKS = 1 << 20
"""More than any job has."""

MOST_WORLDS = 100_000
"""More are a stranger's; they are not answered."""

FORGET_S = 60.0
"""Nobody asks for an outcome that is older."""

MOST_PLACES = 60_000
"""Bytes of places that fit into a datagram; else none are told."""

ROOM = 1 << 22
"""Bytes of datagrams that may wait; a thousand ranks start at once."""

CALL = re.compile(r"(\S+) here (\S+) (\d+) (\d+) (\S+) (\S) (-?\d+)")
"""What one process says, in the order above."""

Address = tuple[str, int]
Answer = tuple[Address, str]


def variable(inbox: Inbox) -> str:
    """Return what the library is told of where to call."""
    return " ".join([inbox.token, str(inbox.port), *inbox.addresses])


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

    Parameters
    ----------
    token : str
        What datagrams of this job begin with.

    Attributes
    ----------
    outcome : str or None
        Why not all are here, of the first world where that is so; empty if all
        are; None while nothing is decided, or nothing wrong with a job that may
        have more communicators.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._worlds: dict[str, _World] = {}
        self._open: dict[str, _World] = {}
        self._refused: set[str] = set()
        self.outcome: str | None = None

    def hear(self, text: str, address: Address, now: float) -> list[Answer]:
        """Take one datagram; return what is to be sent.

        Parameters
        ----------
        text : str
        address : (str, int)
            Who sent it.
        now : float
            Seconds of any clock that does not jump.
        """
        call = CALL.fullmatch(text)
        if not call or call[1] != self._token:
            return []
        rank, ranks, own, place = int(call[3]), int(call[4]), call[5], call[7]
        full = len(self._worlds) == MOST_WORLDS and call[2] not in self._worlds
        if not rank < ranks <= MOST_RANKS or full:
            return []
        world = self._world(call[2], ranks, now)
        caller = world.callers.get(rank)
        if world.ranks != ranks or (caller and caller.own != own):
            answers = self._refuse(world, "two jobs answered as one")
            return [*answers, (address, f"{self._token} {own} no")]
        if world.outcome:
            outcome = world.outcome if caller else "no"
            return [(address, f"{self._token} {own} {outcome}")]
        if not caller:
            world.news = now
            world.callers[rank] = _Caller(own, address, place)
        if call[6] == "1" and rank not in world.hearing:
            world.news = now
            world.hearing.add(rank)
        if len(world.hearing) == world.ranks:
            self.outcome = self.outcome or (None if world.job else "")
            return self._tell(world, f"all {world.places}")
        return [(address, f"{self._token} {own} wait")]

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
            if now - world.news > QUIET_S or now - world.began > LONGEST_S:
                missing = sorted(set(range(world.ranks)) - world.hearing)
                more = " ..." if len(missing) > 4 else ""
                answers += self._refuse(
                    world,
                    f"{len(missing)} of {world.ranks} ranks do without the preloaded "
                    f"library ({', '.join(map(str, missing[:4]))}{more})",
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
        self.outcome = self.outcome or f"{reason}: running in the order given"
        return self._tell(world, "no")

    def _tell(self, world: _World, outcome: str) -> list[Answer]:
        world.outcome = outcome
        del self._open[world.name]
        return [
            (caller.address, f"{self._token} {caller.own} {outcome}")
            for caller in world.callers.values()
        ]


@contextlib.contextmanager
def calling_roll(inbox: Inbox | None, say: Callable[[str], None]) -> Iterator[Check]:
    """Answer the processes of a job for the time of the context.

    Yields what returns `Roll.outcome`; empty where nobody is answered.

    Parameters
    ----------
    inbox : Inbox or None
        Where they call; None if nobody does.
    say : callable
        Takes the line about a port that is taken.
    """
    own = _listening(inbox, say) if inbox else None
    if inbox is None or own is None:
        yield lambda: ""
        return
    with own, contextlib.ExitStack() as stack:
        over, waking = socket.socketpair()
        stack.enter_context(over)
        stack.enter_context(waking)
        roll = Roll(inbox.token)
        thread = threading.Thread(target=_answer, args=(own, roll, over), daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            say(f"cannot answer the ranks: {error}")
            yield lambda: ""
            return
        try:
            yield lambda: roll.outcome
        finally:
            waking.close()
            thread.join(QUIET_S)


def _listening(inbox: Inbox, say: Callable[[str], None]) -> socket.socket | None:
    """Return the socket of an inbox; None, and a line, if the port is taken."""
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.setblocking(False)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
    try:
        own.bind(("", inbox.port))
    except OSError as error:
        own.close()
        say(f"cannot hear the ranks: port {inbox.port}: {error.strerror}")
        return None
    return own


def _answer(own: socket.socket, roll: Roll, over: socket.socket) -> None:
    """Answer datagrams until the other end of `over` is closed."""
    poll = select.poll()
    poll.register(own, select.POLLIN)
    poll.register(over, select.POLLIN)
    while True:
        ready = dict(poll.poll(QUIET_S / 10 * 1000 if roll.undecided else None))
        if over.fileno() in ready:
            return
        answers = []
        with contextlib.suppress(BlockingIOError):  # nobody called
            data, address = own.recvfrom(LONGEST)
            text = data.decode("ascii", "replace")
            answers = roll.hear(text, address, time.monotonic())
        for to, answer in [*answers, *roll.late(time.monotonic())]:
            # What can't be sent is asked for again.
            with contextlib.suppress(OSError):
                own.sendto(answer.encode(), to)
