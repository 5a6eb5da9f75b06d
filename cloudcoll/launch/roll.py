"""Count the processes that have the shim's library, and tell them if all have it.

The other end of shim/roll.c, beside a running job. A datagram of a process is

    TOKEN here WORLD RANK RANKS SELF HEARD

where WORLD is the same in processes that were started together, SELF is one
process's own number, and HEARD is 1 once it has had an answer. The answer is
``TOKEN SELF wait``, ``all`` or ``no``, and ``all`` only if every rank has said
that it hears: whoever has an answer knows that the others get it, too.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cloudcoll.launch.leaf import LONGEST, Inbox
from cloudcoll.launch.readback import Check

QUIET_S = 2.0
"""The rest is missing when nobody new was heard for so long."""

LONGEST_S = 20.0
"""A start that takes longer is not waited for; roll.c waits 30 s."""

MOST_RANKS = 1 << 20
"""More than any job has."""

ROOM = 1 << 22
"""Bytes of datagrams that may wait; a thousand ranks start at once."""

Address = tuple[str, int]
Answer = tuple[Address, str]


def variable(inbox: Inbox) -> str:
    """Return what the library is told of where to call."""
    return " ".join([inbox.token, str(inbox.port), *inbox.addresses])


@dataclass
class _World:
    """Processes that were started together: who called, and who hears us."""

    ranks: int
    began: float
    news: float
    callers: dict[int, tuple[str, Address]] = field(default_factory=dict)
    hearing: set[int] = field(default_factory=set)
    outcome: str = ""


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
        are, None while nothing is decided.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._worlds: dict[str, _World] = {}
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
        words = text.split()
        if len(words) != 7 or words[:2] != [self._token, "here"]:
            return []
        if not (words[3].isdecimal() and words[4].isdecimal()):
            return []
        rank, ranks, own = int(words[3]), int(words[4]), words[5]
        if not rank < ranks <= MOST_RANKS:
            return []
        world = self._worlds.setdefault(words[2], _World(ranks, now, now))
        known = world.callers.get(rank, ("", address))[0]
        if world.ranks != ranks or known not in ("", own):
            answers = self._refuse(world, "two jobs answered as one")
            return [*answers, (address, f"{self._token} {own} no")]
        if world.outcome:
            outcome = world.outcome if known else "no"
            return [(address, f"{self._token} {own} {outcome}")]
        if not known:
            world.news = now
            world.callers[rank] = own, address
        if words[6] == "1" and rank not in world.hearing:
            world.news = now
            world.hearing.add(rank)
        if len(world.hearing) == world.ranks:
            return self._tell(world, "all")
        return [(address, f"{self._token} {own} wait")]

    def late(self, now: float) -> list[Answer]:
        """Return what is to be sent because some did not come in time."""
        answers = []
        for world in self._worlds.values():
            if world.outcome:
                continue
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
        return any(not world.outcome for world in self._worlds.values())

    def _refuse(self, world: _World, reason: str) -> list[Answer]:
        if world.outcome:  # what was told stays
            return []
        self.outcome = self.outcome or f"{reason}: running in the order given"
        return self._tell(world, "no")

    def _tell(self, world: _World, outcome: str) -> list[Answer]:
        world.outcome = outcome
        self.outcome = self.outcome or ""
        return [
            (address, f"{self._token} {own} {outcome}")
            for own, address in world.callers.values()
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
    with own:
        roll, over = Roll(inbox.token), threading.Event()
        thread = threading.Thread(target=_answer, args=(own, roll, over), daemon=True)
        thread.start()
        try:
            yield lambda: roll.outcome
        finally:
            over.set()
            own.sendto(b"", ("127.0.0.1", inbox.port))
            thread.join(QUIET_S)


def _listening(inbox: Inbox, say: Callable[[str], None]) -> socket.socket | None:
    """Return the socket of an inbox; None, and a line, if the port is taken."""
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
    try:
        own.bind(("", inbox.port))
    except OSError as error:
        own.close()
        say(f"cannot hear the ranks: port {inbox.port}: {error.strerror}")
        return None
    return own


def _answer(own: socket.socket, roll: Roll, over: threading.Event) -> None:
    """Answer datagrams until it is over."""
    while not over.is_set():
        own.settimeout(QUIET_S / 10 if roll.undecided else None)
        answers = []
        try:
            data, address = own.recvfrom(LONGEST)
            text = data.decode("ascii", "replace")
            answers = roll.hear(text, address, time.monotonic())
        except TimeoutError:
            pass  # nobody called
        for to, answer in [*answers, *roll.late(time.monotonic())]:
            # What can't be sent is asked for again.
            with contextlib.suppress(OSError):
                own.sendto(answer.encode(), to)
