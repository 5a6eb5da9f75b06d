"""What a launcher was asked to start, and the plan that starts it reordered.

What every launcher can do comes last: `Launcher`, `HostLauncher`. Everything here is
a value or a pure function: nothing is read, written or run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch.wrapper import OPEN_MPI, Inbox
from cloudcoll.rankmap import RankMap

if TYPE_CHECKING:
    from cloudcoll.launch.own_host import OwnHost

Version = Callable[[], str]
"""Asks the launcher what it prints with ``--version``, which can take a while."""


@dataclass(frozen=True)
class LaunchRequest:
    """What a command line asks its launcher for.

    Attributes
    ----------
    launcher : Launcher
        Who understands it.
    argv : tuple of str
        The command line as typed.
    start : int
        Where the launcher's own options end in `argv`.
    hosts : tuple of Host
        In the order given, the unused ones too.
    source : str
        Where the hosts came from, for messages.
    counts : tuple of int
        Ranks that the unmodified command would put on each of `hosts`.
    cyclic : bool
        Ranks are dealt over the hosts in turn instead of filling one host
        after the other.
    placement_options : tuple of (int, int)
        Ranges of `argv` that decide placement and that a plan replaces.
    binding : str
        What the unmodified command would bind a rank to.
    read_back : bool
        Whether the launcher can be asked for its table of ranks.
    library : str
        Whose collectives the launcher's jobs run, as ``NAME@VERSION``; empty
        where that is not known.
    settings : mapping of str to str
        What the command line and the environment tell it, by its own names.
    programs : tuple of int
        Where programs stand in `argv`; empty if one does at `start`.
    inbox : Inbox or None
        Where ranks can report, for launchers that can't be asked for a table.
    prefix : str
        How names of variables begin that its ranks get from the command's own
        environment, whatever the command line says of others.
    withholding : mapping of int to str
        Words of `argv` that keep variables from the ranks -> how the same words
        begin when they end in the names of some that are handed on.
    shows_variables : bool
        Whether the launcher writes variables into command lines, for all to read.
    """

    launcher: Launcher
    argv: tuple[str, ...]
    start: int
    hosts: tuple[Host, ...]
    source: str
    counts: tuple[int, ...]
    cyclic: bool = False
    placement_options: tuple[tuple[int, int], ...] = ()
    binding: str = ""
    read_back: bool = True
    library: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    programs: tuple[int, ...] = ()
    inbox: Inbox | None = None
    prefix: str = OPEN_MPI
    withholding: Mapping[int, str] = field(default_factory=dict)
    shows_variables: bool = False

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the hosts that get at least one rank, in the order given."""
        pairs = zip(self.hosts, self.counts, strict=True)
        return tuple(host.name for host, count in pairs if count)

    @property
    def slots(self) -> tuple[int, ...]:
        """Ranks on each used host, as the solver has to see them.

        Dealt ranks repeat over the hosts the pattern of one rank per host.
        """
        counts = tuple(count for count in self.counts if count)
        return (1,) * len(counts) if self.cyclic else counts

    @property
    def share(self) -> int:
        """Ranks on each used host; 0 where they do not all have as many."""
        shares = {count for count in self.counts if count}
        return shares.pop() if len(shares) == 1 else 0

    @property
    def roomy(self) -> tuple[str, ...]:
        """Names of the hosts that have slots for as many ranks as the used ones."""
        least = self.share
        return tuple(h.name for h in self.hosts if h.slots is None or h.slots >= least)

    def moved_to(self, names: Sequence[str]) -> LaunchRequest:
        """Return the request with its ranks on these hosts, as many on each.

        The same request where that is not possible: these are no hosts of it, too
        few, without room, or its own hosts do not have the same number of ranks.
        """
        same = self.share and len(names) == len(self.used)
        if not same or not set(names).issubset(self.roomy):
            return self
        counts = tuple(self.share if h.name in names else 0 for h in self.hosts)
        return replace(self, counts=counts)

    def place(self, order: Sequence[str]) -> tuple[str, ...]:
        """Return the host of each rank when `order` permutes the used hosts."""
        left = {host.name: n for host, n in zip(self.hosts, self.counts, strict=True)}
        if not self.cyclic:
            return tuple(name for name in order for _ in range(left[name]))
        deals = range(max(left.values(), default=0))
        return tuple(name for deal in deals for name in order if left[name] > deal)

    def led_by(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return `argv` from `start` on with `words` in front of each program."""
        found, done = list[str](), self.start
        for at in self.programs or (self.start,):
            found += (*self.argv[done:at], *words)
            done = at
        return (*found, *self.argv[done:])

    def behind(self, words: Sequence[str]) -> LaunchRequest:
        """Return the request with `words` in front of each program, as if typed."""
        starts = self.programs or (self.start,)

        def moved(at: int) -> int:
            return at + len(words) * sum(start <= at for start in starts)

        return replace(
            self,
            argv=(*self.argv[: self.start], *self.led_by(words)),
            programs=tuple(moved(at) - len(words) for at in self.programs),
            withholding={moved(at): text for at, text in self.withholding.items()},
        )

    def handing_on(self, inbox: Inbox | None) -> LaunchRequest:
        """Return the request whose launcher hands the secret of an inbox on."""
        if not inbox or not self.withholding:
            return self
        words = enumerate(self.argv)
        held = self.withholding
        argv = (held[i] + inbox.variable if i in held else word for i, word in words)
        return replace(self, argv=tuple(argv))

    def reporting(self, rank: str, hidden: Sequence[str] = ()) -> tuple[str, ...]:
        """Return `argv` from `start` on so that ranks report, if there is an inbox."""
        return self.led_by(self.inbox.wrap((), rank, hidden) if self.inbox else ())


class RankTable(NamedTuple):
    """A list of ranks that a launcher writes to `path` after the start.

    Of its text, `read` makes rank -> host, of lines that are complete.
    """

    path: str
    read: Callable[[str], Mapping[int, str]]


@dataclass(frozen=True)
class LaunchPlan:
    """A command to run. Nothing has been executed.

    Attributes
    ----------
    argv : tuple of str
        The command line.
    files : mapping of str to str
        Path -> text of the files it needs. They share one private folder,
        which exists only while the command runs.
    placement : tuple of str
        The host of each rank; empty where the command runs as typed.
    table : RankTable or None
        What the launcher lists its ranks in; None if it is not asked to.
    request : LaunchRequest or None
        What it fulfils.
    env : mapping of str to str
        Variables to set for the command, over those it inherits.
    inbox : Inbox or None
        Where the ranks report; None if they do not.
    own : (str, str) or None
        A variable and its value in the ranks that start on this host; None if
        none tells their place.
    caution : str
        What the user should know of this launcher before the job starts.
    roll : Inbox or None
        Where ranks with a preloaded library call; None if they have none.
    maps_only : tuple of str
        The same command by which the launcher places ranks and starts none; empty
        where it has no such option.
    summary : str
        What is said of the order once it is known where the ranks are.
    tuned : bool
        Whether the preloaded library says if the algorithms chosen run.
    """

    argv: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    placement: tuple[str, ...] = ()
    table: RankTable | None = None
    request: LaunchRequest | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    inbox: Inbox | None = None
    own: tuple[str, str] | None = None
    caution: str = ""
    roll: Inbox | None = None
    maps_only: tuple[str, ...] = ()
    summary: str = ""
    tuned: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """The variables to set, those with secrets, too."""
        boxes = [box for box in (self.inbox, self.roll) if box and box.variable]
        return {**self.env, **{box.variable: box.secret for box in boxes}}

    @property
    def written(self) -> dict[str, str]:
        """The files to write, those with secrets, too."""
        boxes = [box for box in (self.inbox, self.roll) if box and box.file]
        return {**self.files, **{box.file: f"{box.secret}\n" for box in boxes}}

    @property
    def needs_us(self) -> bool:
        """Whether there is something to do for us while the command runs."""
        return bool(self.files or self.inbox or self.own or self.roll)


def plan_launch(
    request: LaunchRequest,
    rank_map: RankMap,
    *,
    directory: Path,
    free_rank0: bool = False,
) -> LaunchPlan:
    """Return the plan that starts `request` in the order of `rank_map`.

    Each host keeps the number of ranks that the unmodified command would have
    given it. The order given leaves the command as typed.

    Parameters
    ----------
    rank_map : RankMap
        Its order must hold exactly the hosts that get ranks; if it left some out,
        it may have chosen others of the request's hosts instead.
    directory : Path
        Folder for the plan's files; made when the plan is executed.
    free_rank0 : bool
        Allow the host of rank 0 to change.

    Raises
    ------
    LaunchError
        The map is of other hosts, or it moves rank 0 without being allowed.
    """
    typed, order = request.used, rank_map.order
    if rank_map.dropped:
        request = request.moved_to(order)
    used = request.used
    if differ := sorted(set(order) ^ set(used)):
        raise LaunchError(
            f"the rank map is of other hosts than {request.source} (they differ in "
            f"{', '.join(differ[:3])}{' ...' if len(differ) > 3 else ''}): solve again"
        )
    if order == typed:
        return LaunchPlan(request.argv, request=request)
    if order[0] != typed[0] and not free_rank0:
        raise LaunchError(
            f"the rank map moves rank 0 from {typed[0]} to {order[0]}: solve again, or "
            "allow it with --free-rank0"
        )
    placement = request.place(order)
    asked = request.handing_on(request.inbox)
    plan = request.launcher.plan(asked, placement, directory)
    return replace(plan, placement=placement, request=request)


class Described(Protocol):
    """What a launcher says of itself, to whoever asks what there is."""

    @property
    def title(self) -> str:
        """What it is called in messages, such as ``Open MPI 5 (mpirun)``."""

    @property
    def mechanism(self) -> str:
        """How it is given an order, and how that is read back."""

    @property
    def source(self) -> str:
        """Where it can be had."""

    @property
    def package(self) -> str:
        """The Python package that has it; empty if it is a program of its own."""


class Launcher(Described, Protocol):
    """One kind of launcher: how its command line is read and rewritten."""

    def recognises(self, argv: Sequence[str], version: Version) -> bool:
        """Return whether the command line is one for this launcher.

        Several launchers share a name; only these need to call `version`.
        """

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for.

        CloudcollError, which says what it is, for what can't be reordered.
        """

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``.

        Command, files and variables; `plan_launch` adds placement and request.
        """


class HostLauncher(Described, Protocol):
    """A launcher that is started once on every host, without a list of hosts.

    Each start changes only its own numbers, by a map that all of them read.
    What makes a plan impossible has to be the same on all hosts where that can
    be had: if some reorder and some do not, two hosts have one number.
    """

    def recognises(self, argv: Sequence[str]) -> bool:
        """Return whether the command line is one for this launcher."""

    def plan(
        self, argv: Sequence[str], env: Mapping[str, str], host: OwnHost
    ) -> LaunchPlan:
        """Return the plan that gives this host the ranks of its place in the map."""

    def store(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, int]:
        """Return the host and TCP port where the ranks of the job first meet."""
