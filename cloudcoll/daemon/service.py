"""The daemon itself: time, probes, files and the socket around `state.handle`.

One daemon has a store: it holds a lock that the kernel drops with its process.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import cloudcoll
from cloudcoll.daemon import Settings, loaded_seconds, slowest_card, state
from cloudcoll.daemon.beats import Beat
from cloudcoll.daemon.changes import groups_of
from cloudcoll.daemon.combined_probes import measured_at
from cloudcoll.daemon.keeper import Keeper
from cloudcoll.daemon.members import Source
from cloudcoll.daemon.responses import Response, answer
from cloudcoll.daemon.servers import served
from cloudcoll.daemon.store import History, Store
from cloudcoll.daemon.verdict import give_back, map_large
from cloudcoll.daemon.view import HostView, MapView, Trust, View
from cloudcoll.errors import CloudcollError, UnusableError
from cloudcoll.files import results_dir, snapshot_file
from cloudcoll.files.locks import lock
from cloudcoll.hosts import Host, host_set_key

LOOK_S = 5.0
"""Between looks at the list of hosts and at running jobs."""
STALE_S = 3600.0
"""After so long without a confirmation a snapshot is not given to anyone."""
REFUSED = (CloudcollError, OSError)
"""What costs the probe, or the look, in which it happens, never the daemon: the
system may have no descriptors left for a moment, a shared folder may be stale."""

Say = Callable[[str], None]
Front = Callable[[Callable[[str], Response]], contextlib.AbstractContextManager[object]]


@dataclass(frozen=True)
class Around:
    """What a daemon asks of its surroundings: hosts, jobs, clocks, words.

    Attributes
    ----------
    members : callable
        Returns the hosts of this moment.
    busy : callable
        Returns the names of hosts that run a job.
    say : callable
        Takes a line about what happens.
    clock, wall : callable
        Seconds that never go back, and seconds since the epoch.
    """

    members: Source
    busy: Callable[[], frozenset[str]]
    say: Say
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


def daemon_dir(lab: Path | None = None) -> Path:
    """Return the folder of the lock and the history (not created here)."""
    return results_dir(lab) / "daemon"


def serve(
    keeper: Keeper,
    around: Around,
    settings: Settings,
    socket: Path,
    *,
    all_users: bool = False,
    front: Front = contextlib.nullcontext,
    once: bool = False,
) -> None:
    """Keep snapshot and maps fresh until interrupted.

    Parameters
    ----------
    socket : Path
        Where questions are answered.
    all_users : bool
        Answer every user of this machine.
    front : callable
        Makes a context in which others are answered too, from what answers a
        path: see `cloudcoll.daemon.servers.served_by_https`.
    once : bool
        Stop as soon as something is in force.

    Raises
    ------
    CloudcollError
        Another daemon is at work here, the store can't be opened, there can be
        no socket, or no hosts to begin with.
    """
    map_large()
    folder = daemon_dir(keeper.lab)
    with held(folder / "lock"):
        store = Store(folder / "history.db")
        try:
            # Another each time: what one misses, the next may find.
            seed = time.time_ns() % (1 << 40)
            daemon = Daemon(keeper, around, settings, store, seed=seed)
            daemon.look()
            with (
                served(socket, daemon.view, all_users=all_users),
                front(lambda path: answer(path, daemon.view())),
            ):
                around.say(f"keeping {len(keeper.hosts)} hosts; answers at {socket}")
                while not (once and keeper.snapshot):
                    time.sleep(min(daemon.turn(), LOOK_S))
                    if once and (trouble := daemon.view().trouble):
                        raise UnusableError(trouble)
        finally:
            store.close()


class Daemon:
    """One daemon; `turn` does what is due. `seed` is of who meets whom in probes."""

    def __init__(
        self,
        keeper: Keeper,
        around: Around,
        settings: Settings,
        store: Store,
        *,
        seed: int,
    ) -> None:
        self._keeper = keeper
        self._around = around
        self._clock, self._wall = around.clock, around.wall
        self._state = state.start(settings, seed=seed)
        self._members: tuple[Host, ...] | None = None
        self._key = host_set_key(())
        self._started = self._wall()
        self._confirmed = self._last = math.nan
        self._counts = {"probes": 0, "failures": 0, "maps": 0}
        self._troubles: dict[str, str] = {}
        self._history = History(store, self._wall)
        self._try("history", self._history.recall)
        self._view = self._seen()

    def view(self) -> View:
        """Return what is known now; other threads ask."""
        now, ago = self._wall(), self._clock() - self._confirmed
        return replace(self._view, now=now, confirmed=now - ago)

    def turn(self) -> float:
        """Do one thing that is due; return the seconds until something may be."""
        self._try("hosts", self.look)
        self._try("snapshot", self._take_up)
        self._try("jobs", self._look_at_jobs)
        self._handle(state.Due(self._clock()))
        self._view = self._seen()
        return max(self._state.wake - self._clock(), 0.0)

    def look(self) -> None:
        """See whether the hosts are others than before, or raise CloudcollError."""
        hosts = self._around.members()
        if hosts == self._members:
            return
        plan = self._keeper.whole(hosts, 0)
        self._keeper.turn_to(hosts)
        self._members, self._key = hosts, host_set_key(hosts)
        names, now = tuple(host.name for host in hosts), self._clock()
        self._handle(state.Members(now, names, loaded_seconds(plan)))
        self._try("snapshot", self._take_up)
        self._view = self._seen()

    def _take_up(self) -> None:
        """Go on with what somebody stored; an old one is measured anew at once."""
        age = self._keeper.take_up()
        if age <= STALE_S:
            now = self._clock()
            self._confirmed = now - age
            self._troubles.pop("orders", None)  # others are in force
            self._handle(state.Known(now, self._keeper.groups, age))

    def _look_at_jobs(self) -> None:
        self._handle(state.Busy(self._around.busy()))

    def _handle(self, event: state.Event) -> None:
        """Handle an event, and those that come of it."""
        self._state, actions = state.handle(self._state, event)
        for action in actions:
            if answer := self._do(action):
                self._handle(answer)

    def _do(self, action: state.Action) -> state.Event | None:
        """Carry an action out; return the event that tells of it."""
        match action:
            case state.Measure(beat, load_s):
                return self._probed(lambda: self._beat(beat, load_s))
            case state.Check():
                return self._probed(lambda: self._check(action))
            case state.Confirm():
                self._confirmed = self._clock()
                self._try("files", self._keeper.store)
            case state.Publish():
                if not self._try("orders", lambda: self._publish(action)):
                    return state.Unpublished(self._clock())
        return None

    def _probed(self, measure: Callable[[], state.Event]) -> state.Event:
        """Return the event of a probe, or that of its failure, and count it."""
        try:
            event = measure()
        except REFUSED as error:
            self._tell("probe", str(error))
            self._counts["failures"] += 1
            return state.Failed(self._clock())
        self._troubles.pop("probe", None)
        self._counts["probes"] += 1
        return event

    def _beat(self, beat: Beat, load_s: float) -> state.Event:
        values, returned, more_s = self._keeper.beat(beat, load_s)
        if self._at_work(beat.hosts):
            return state.Failed(self._clock())
        self._try("history", lambda: self._history.keep(values))
        return state.Beaten(self._clock(), beat, values, returned, more_s)

    def _check(self, action: state.Check) -> state.Event:
        busy = len(action.without)
        left = f", but {busy} that run a job" if busy else ""
        self._around.say(f"probing all {len(self._keeper.hosts)} hosts{left}")
        before = self._keeper.sent
        found = self._keeper.check(action.seed, action.without, again=action.again)
        sent = (self._keeper.sent - before) / (len(self._keeper.hosts) - busy)
        card = slowest_card(self._keeper.checks[-1], self._keeper.hosts)
        give_back()
        at_work = self._at_work(self._keeper.hosts) - action.without
        if at_work:
            self._keeper.discard(f"{len(at_work)} of {len(self._keeper.hosts)} hosts")
            self._last = self._wall()
            return state.Failed(self._clock())
        return state.Checked(
            self._clock(),
            found.gain,
            groups_of(found.fabric),
            found.conclusive,
            found.least,
            sent / card if sent and card else math.nan,
            found.taken,
        )

    def _at_work(self, hosts: Iterable[str]) -> frozenset[str]:
        """Return those hosts that run a job by now."""
        return self._around.busy().intersection(hosts)

    def _publish(self, action: state.Publish) -> None:
        taken = self._keeper.publish(keep=action.keep)
        self._last = math.nan if taken else self._wall()
        self._confirmed = self._clock()
        self._try("files", self._keeper.store)
        if not action.keep:
            self._counts["maps"] += 1
        self._try("history", lambda: self._history.note(action))
        # Whoever asks because of what is said finds it.
        self._view = self._seen()
        give_back()
        orders = "orders kept" if action.keep else "new orders in force"
        self._around.say(f"{action.reason}: {orders}")

    def _trust(self) -> Trust | None:
        kept = self._keeper.snapshot
        if kept is None or kept.fabric is None:
            return None
        return Trust(
            measured_at(kept),
            kept.fabric.confidence,
            sum(len(group.hosts) > 1 for group in self._keeper.groups if group.name),
            self._last,
            self._keeper.refused,
        )

    def _try(self, what: str, do: Callable[[], None]) -> bool:
        """Do something that may fail without harm to the rest; return whether not."""
        try:
            do()
        except REFUSED as error:
            self._tell(what, str(error))
            return False
        self._troubles.pop(what, None)
        return True

    def _tell(self, what: str, trouble: str) -> None:
        """Say what went wrong, once, and show it until it goes right."""
        if self._troubles.get(what) != trouble:
            self._around.say(trouble)
        self._troubles[what] = trouble

    def _seen(self) -> View:
        """Return all that is known, as a value."""
        keeper = self._keeper
        return View(
            version=cloudcoll.__version__,
            now=self._started,
            started=self._started,
            phase=self._state.phase,
            key=self._key,
            hosts=tuple(
                HostView(n, keeper.trips.get(n, math.nan), keeper.failed.get(n, ""))
                for n in keeper.hosts
            ),
            groups=keeper.group_views(),
            snapshot=snapshot_file(self._key, keeper.lab) if keeper.digest else None,
            digest=keeper.digest,
            trust=self._trust(),
            stale_after=STALE_S,
            maps=tuple(
                MapView(key, rank_map, keeper.drift.get(key, math.nan))
                for key, rank_map in keeper.maps.items()
            ),
            counts={**self._counts, "bytes": keeper.sent},
            history=self._history.points,
            published=self._history.published,
            trouble="; ".join(self._troubles.values()),
        )


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock at `path` while the context lasts, or raise UnusableError.

    The file stays; it is the lock on it that counts, and a process that is
    killed leaves none.

    The folder is closed to other users, if it is ours: to lock a file it is enough
    that one can read it, and SQLite's, which are beside it, are locked, too.
    """
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        about = path.parent.stat()
        if about.st_uid == os.geteuid() and about.st_mode & 0o077:
            path.parent.chmod(0o700)
        # Not buffered: what a full disk did not take would be tried again at the end.
        file = path.open("ab+", buffering=0)
    except OSError as error:
        raise UnusableError(f"cannot open {path}: {error.strerror}") from error
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UnusableError(f"cannot open {path}: it is no file")
        if not lock(file):
            file.seek(0)
            holder = file.read(200).decode(errors="replace").strip()
            raise UnusableError(
                f"{path.parent} belongs to a running daemon: "
                f"{holder or 'a process that only just began'} (stop it, or set "
                "CLOUDCOLL_HOME to another folder)"
            )
        # Who reads it meanwhile was refused: only they are told.
        file.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        holder = f"process {os.getpid()} on {socket.gethostname()} since {since}"
        with contextlib.suppress(OSError):  # a full disk costs the name only
            file.write(holder.encode())
        yield
