"""The snapshot and the maps in force, and the probes that keep them true."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cloudcoll.daemon import slowest_card
from cloudcoll.daemon.beats import Beat, HostGroup, latencies, seated, shortened, spared
from cloudcoll.daemon.changes import (
    FIRST,
    Ratios,
    drifted,
    groups_of,
    logarithm,
    median_trips,
    ratios,
    still_stands,
)
from cloudcoll.daemon.combined_probes import (
    borne_out,
    completed,
    newcomers,
    returned,
    together,
    with_trips,
)
from cloudcoll.daemon.verdict import Case, OrderQuestion, Verdict, judged_apart
from cloudcoll.daemon.view import GroupView
from cloudcoll.files import map_file
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot, latest_path, load_snapshot
from cloudcoll.network.tree import Fabric
from cloudcoll.probe import Conduct, ProbePlan, Transport
from cloudcoll.rankmap import SURE, RankMap, load_rankmap

Plan = Callable[[tuple[Host, ...], int], ProbePlan]
"""Hosts and a seed -> the plan of a quick probe of them."""
Ask = Callable[[tuple[Host, ...]], tuple[OrderQuestion, ...]]
"""Hosts -> what orders of them are wanted for; the first is the daemon's own."""
Judge = Callable[[Case], Verdict]
"""What works out fabric and orders: `judged`, or `judged_apart`."""

OLDEST_S = 7 * 86400.0
"""Age from which on a snapshot counts for nothing, as for ``cloudcoll run``."""


PATIENCE = 2.5
"""Times as long as another quick probe the first one goes on until it is sure: groups
are sought in a process of its own, which takes a second each time."""

LEAST_BURST = 256 * 1024
"""Bytes that a host sends in a beat, at least: a shaper's bucket lets through 128 KiB
or so at once, and less would tell nothing of the rate behind it."""


@dataclass
class Keeper:
    """The snapshot and the maps in force of a set of hosts.

    Attributes
    ----------
    lab : Path or None
        The folder of the lab that the hosts are in: see `cloudcoll.files.results_dir`.
    snapshot : NetworkSnapshot or None
        In force.
    maps : mapping of str to RankMap
        In force, by question.
    groups : tuple of HostGroup
        Of the snapshot in force.
    seconds : mapping of str to float
        What each map is predicted to take by it.
    seen : mapping of str to Ratios
        Of each group, as a beat saw it last.
    first : mapping of str to list of Ratios
        Of each group, as the first beats saw it that tell rates.
    trips : mapping of str to float
        Median round trip of each host in its last probe, seconds.
    failed : mapping of str to str
        Hosts that did not answer in their last probe, and why.
    checks : list of NetworkSnapshot
        Those in a row that were made last.
    verdict : Verdict or None
        On all of them together.
    refused : str
        Why the last probe was not taken; empty if it was, or shows the same.
    drift : dict of str to float
        Predicted seconds of each map by what was seen last, over those by the
        snapshot in force.
    digest : str
        Of the snapshot that was written last; empty for none.
    stored : bool
        Whether that is the one in force.
    written : tuple of int or None
        Tells the file that was stored last from what others write in its place.
    sent : int
        Bytes of payload that hosts said they sent in all probes.
    """

    transport: Transport
    plan: Plan
    ask: Ask
    judge: Judge = judged_apart
    lab: Path | None = None
    hosts: Mapping[str, Host] = field(default_factory=dict)
    questions: tuple[OrderQuestion, ...] = ()
    snapshot: NetworkSnapshot | None = None
    maps: dict[str, RankMap] = field(default_factory=dict)
    groups: tuple[HostGroup, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    seen: dict[str, Ratios] = field(default_factory=dict)
    first: dict[str, list[Ratios]] = field(default_factory=dict)
    trips: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    checks: list[NetworkSnapshot] = field(default_factory=list)
    verdict: Verdict | None = None
    refused: str = ""
    drift: dict[str, float] = field(default_factory=dict)
    digest: str = ""
    stored: bool = True
    written: tuple[int, ...] | None = None
    sent: int = 0

    def whole(self, hosts: tuple[Host, ...], seed: int) -> ProbePlan:
        """Return the plan of a whole probe, as short as a daemon's has to be."""
        return spared(self.plan(hosts, seed))

    def turn_to(self, hosts: tuple[Host, ...]) -> None:
        """Keep these hosts from now on, of which nothing is known.

        Those from before are kept where no order of these is possible (UsageError).
        """
        self.questions = self.ask(hosts)
        self.hosts = {host.name: host for host in hosts}
        self.snapshot, self.digest, self.stored = None, "", True
        self.refused, self.written = "", None
        self._forget()
        for kept in (self.checks, self.maps, self.failed, self.trips):
            kept.clear()

    def take_up(self) -> float:
        """Put a stored snapshot of these hosts in force; return its age in seconds.

        An earlier daemon stored it, or the user's own probe. If it is less sure than
        what is in force, it changes of that what a probe would, and is replaced. NaN if
        there is nothing new; CloudcollError if it, or a map made of it, is not intact.
        """
        path = self._latest()
        written = _written(path)
        if written in (None, self.written):
            return math.nan
        self.written = written
        found = load_snapshot(path)
        if found.digest == self.digest or not 0.0 <= found.age <= OLDEST_S:
            return math.nan
        files = {q.key: map_file(found.digest, q.key, self.lab) for q in self.questions}
        maps = {k: load_rankmap(f) for k, f in files.items() if f.exists()}
        known = self.snapshot.fabric if self.snapshot else None
        if known and not (found.fabric and _as_sure(found.fabric, known)):
            bare = replace(found, fabric=None)
            self.checks[:] = [bare]
            case = Case(bare, self.questions, self.maps, known)
            self.verdict = self.judge(case)
            self.publish(keep=False)
            return found.age
        lacking = tuple(q for q in self.questions if q.key not in maps)
        if lacking or found.fabric is None:
            verdict = self.judge(Case(found, lacking))
            found = replace(found, fabric=verdict.fabric)
            maps |= {key: one.best for key, one in verdict.found.items()}
        self.refused = ""
        self._put_in_force(found, maps)
        self._forget()
        return found.age

    def group_views(self) -> tuple[GroupView, ...]:
        """Return the groups that have an uplink, as a beat saw them last."""
        if self.snapshot is None:
            return ()
        unseen = Ratios()
        return tuple(
            GroupView(group.name, group.hosts, one.rtt, one.up, one.down)
            for group in self.groups
            if group.name and (one := self.seen.get(group.name, unseen))
        )

    def beat(self, beat: Beat, load_s: float) -> tuple[dict[str, float], bool, float]:
        """Measure a beat for `state.Measure`; return the rest of `state.Beaten`."""
        kept, fabric = self._in_force()
        hosts = tuple(self.hosts[name] for name in seated(beat))
        card = slowest_card(kept, beat.hosts)
        burst = max(int(load_s * card), LEAST_BURST) if load_s * card else 0
        probe = self._measure(hosts, shortened(self.plan(hosts, beat.seed), burst))
        # A burst counts from its first byte to its last: all of it is ramp-up.
        probe = replace(probe, flows=replace(probe.flows, ramp_up=0))
        found = self._relative(beat.group, ratios(fabric, beat, probe))
        values = dict(found.series(beat.group))
        if beat.group:
            self.seen[beat.group] = found
            now = drifted(fabric, self.seen)
            for question in self.questions:
                key = question.key
                after = question.seconds(self.maps[key], now)
                self.drift[key] = after / (self.seconds[key] or math.nan)
                values[f"map {key}"] = logarithm(self.drift[key])
        more_s = max(burst / card - load_s, 0.0) if burst else 0.0
        return values, returned(kept, probe), more_s

    def _relative(self, group: str, found: Ratios) -> Ratios:
        """Return what a beat found over what the first ones did."""
        first = self.first.setdefault(group, [])
        if len(first) < FIRST and not math.isnan(found.up + found.down):
            first.append(found)
        return found.over(first)

    def check(
        self, seed: int, without: frozenset[str] = frozenset(), *, again: bool = False
    ) -> Verdict:
        """Measure all hosts; return what that means with the checks right before.

        See `state.Check` for the parameters. CloudcollError if nothing was measured.
        """
        if not again:
            self.checks.clear()
        hosts = tuple(h for name, h in self.hosts.items() if name not in without)
        plan = self.whole(hosts, seed)
        if self.snapshot is None:
            # Nothing is known that a few rounds could add to.
            whole = self.plan(hosts, seed)
            plan = replace(whole, sure_s=PATIENCE * whole.sure_s)
        probe, more = self._measure(hosts, plan), latencies(plan)
        kept = self.snapshot
        known = kept.fabric if kept else None
        fresh = newcomers(kept, probe) if kept else frozenset()
        stands = moved = False
        if more and known and not fresh:
            # Who stands where was seen a moment ago if this is not the first check.
            stands = bool(self.checks) or still_stands(known, probe)
            last = self.verdict.fabric if self.checks and self.verdict else known
            moved = groups_of(last) != groups_of(known)
            known = last if moved else known
        if not stands:
            probe = with_trips(probe, [self._measure(hosts, one) for one in more])
        if without or fresh:
            probe = completed(kept, probe, tuple(self.hosts.values()))
            self.failed.update(probe.failed)
        self.checks.append(probe)
        combined = together(self.checks) or probe
        case = Case(combined, self.questions, self.maps, known, fresh, stands)
        verdict = self.judge(case)
        self.verdict = replace(verdict, taken=verdict.taken or moved)
        return self.verdict

    def discard(self, busy: str) -> None:
        """Forget the last check: so many hosts began a job meanwhile."""
        del self.checks[-1:]
        self.refused = f"{busy} were busy"

    def publish(self, *, keep: bool) -> bool:
        """Put in force what was checked: see `state.Publish`. `store` writes it.

        Return whether anything of the network is taken to be other than before.
        """
        verdict, kept = self.verdict, self.snapshot
        assert verdict, "what was checked is published"
        combined = together(self.checks) or self.checks[-1]
        self.checks.clear()
        maps = {
            key: one.kept if keep and one.kept else one.best
            for key, one in verdict.found.items()
        }
        if kept and not verdict.taken and not newcomers(kept, combined):
            combined = borne_out(kept, verdict.fabric, combined)
        self.refused = verdict.refused
        self._put_in_force(combined.with_fabric(verdict.fabric), maps)
        if verdict.taken:
            self._forget()
        return verdict.taken

    def _latest(self) -> Path:
        return latest_path(tuple(self.hosts.values()), self.lab)

    def store(self) -> None:
        """Write what is in force to where ``cloudcoll run`` looks, if not there."""
        if self.stored:
            return
        path = self._latest()
        self.snapshot = self._in_force()[0].save(path)
        digest = self.snapshot.digest
        for key, rank_map in self.maps.items():
            self.maps[key] = replace(rank_map, snapshot=digest)
            self.maps[key].save(map_file(digest, key, self.lab))
        self.digest, self.stored, self.written = digest, True, _written(path)

    def _put_in_force(
        self, snapshot: NetworkSnapshot, maps: dict[str, RankMap]
    ) -> None:
        self.snapshot, self.maps, self.stored = snapshot, maps, False
        fabric = self._in_force()[1]
        self.groups = groups_of(fabric)
        self.seconds = {q.key: q.seconds(maps[q.key], fabric) for q in self.questions}

    def _forget(self) -> None:
        """Forget what beats saw: it was compared with another network."""
        self.seen.clear()
        self.first.clear()
        self.drift.clear()

    def _measure(self, hosts: tuple[Host, ...], plan: ProbePlan) -> NetworkSnapshot:
        """Carry a plan out, and keep what it says of each host."""
        probe = self.transport.measure(hosts, plan, Conduct(infer=self._groups))
        # What a probe sent that came to nothing is not known.
        self.sent += probe.metadata.get("sent_bytes", 0)
        for name, seconds in median_trips(probe).items():
            self.trips[name] = seconds
            self.failed.pop(name, None)
        self.failed.update(probe.failed)
        return probe

    def _groups(self, snapshot: NetworkSnapshot) -> Fabric:
        """Return the groups in what a probe has measured so far."""
        return self.judge(Case(snapshot, ())).fabric

    def _in_force(self) -> tuple[NetworkSnapshot, Fabric]:
        """Return the snapshot and its fabric."""
        kept = self.snapshot
        assert kept is not None, "a beat follows a check"
        assert kept.fabric is not None, "all that is in force was judged"
        return kept, kept.fabric


def _written(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file is written anew, None if there is none."""
    try:
        known = path.stat()
    except FileNotFoundError:
        return None
    return known.st_ino, known.st_mtime_ns, known.st_size


def _as_sure(found: Fabric, known: Fabric) -> bool:
    """Return whether groups are as sure as others; what was not looked at is not."""
    return math.isnan(known.confidence) or found.confidence >= min(
        known.confidence, SURE
    )
