"""What a probe will do, as a value: who meets whom, for how long, how thoroughly.

Nothing here touches a network. The agents work out the same schedule from the
plan's few numbers, so it is never sent: who meets whom is the circle method over
hosts in an order of the seed's, and a test holds ``probes/agent.py`` to it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from cloudcoll import units
from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.infer.holdout import COVERED
from cloudcoll.infer.sharing import LARGE

LEAST_SLOT_S = 0.025
"""Seconds between rounds of latency that many hosts have, at least: a hundred round
trips of 200 us."""


@dataclass(frozen=True)
class Mode:
    """How thorough a probe is.

    A thousand hosts take 90 s in a standard probe and 10 minutes in a full one, at
    most; ``benchmarks/scale.py`` shows what comes of it.

    Attributes
    ----------
    samples : int
        Round trips per pair, spread over `ports` source ports, because the
        equal-cost paths of a data centre are chosen by port.
    warm_up : int
        Round trips on each port before its samples.
    rtt_s : float
        Seconds that a pair has for them, at most.
    mesh_s : float
        Seconds for the latency of all pairs: where these are many, each has
        less, down to `LEAST_SLOT_S`.
    loaded_rounds : int
        Rounds of the tournament that are also run under load, at most.
    repeats : int
        Times that the latency of all pairs is taken, spread over the probe: what holds
        a host up for a moment then is not taken for its way. Where few pairs of many
        are taken, it is all at once.
    both_ways : bool
        Whether each pair is measured in both directions.
    sure_s : float
        Seconds for more loaded rounds, at most, as long as it is not sure from these
        who shares a link; as many times more as a pass has more than `USUAL_LOADED`.
    uplink_s : float
        Seconds for a second phase that loads the uplinks found, at most; less
        for fewer than `UPLINK_HOSTS`.
    """

    samples: int
    ports: int
    warm_up: int
    rtt_s: float
    mesh_s: float
    loaded_rounds: int
    repeats: int = 1
    both_ways: bool = False
    sure_s: float = 0.0
    uplink_s: float = 0.0


MODES = {
    "quick": Mode(
        samples=20,
        ports=4,
        warm_up=2,
        # With warm-up they are 28 round trips, of up to 570 us.
        rtt_s=0.016,
        mesh_s=1.0,
        loaded_rounds=4,
        repeats=2,
        # All pairs once more, and two seconds inside groups: with what comes before,
        # agents' start included, 16 hosts take 15 s.
        sure_s=6.6,
    ),
    "standard": Mode(
        samples=104,
        ports=8,
        warm_up=3,
        rtt_s=0.06,
        mesh_s=50.0,
        loaded_rounds=40,
        sure_s=15.0,
        uplink_s=18.0,
    ),
}
MODES["full"] = replace(
    MODES["standard"],
    loaded_rounds=300,
    repeats=3,
    both_ways=True,
    sure_s=30.0,
    uplink_s=60.0,
)


def labels(hosts: int, seed: int) -> list[int]:
    """Return the host of each player; random() may differ between Pythons."""
    return sorted(
        range(hosts), key=lambda host: hashlib.sha256(b"%d %d" % (seed, host)).digest()
    )


def tournament_round(players: int, round_: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of one round of the circle method, `players` being even.

    The last player meets `middle`; the others meet across it. Over
    ``players - 1`` rounds every two players meet once.
    """
    last = players - 1
    middle = round_ * (players // 2) % last
    yield (last, middle) if round_ % 2 == 0 else (middle, last)
    for ahead in range(1, players // 2):
        yield (middle + ahead) % last, (middle - ahead) % last


RTT_PACKET = 64
"""Bytes of a request and of its reply, without UDP's and IP's headers."""
FULL_MESH = 32
"""Hosts up to which even a quick probe takes every pair, idle and under load."""
USUAL_LOADED = 15
"""Loaded rounds, those of 16 hosts, that a probe has `Mode.sure_s` to go on after."""
LOOKED_AT = 4
"""Loaded rounds after which a probe looks whether flows stall: every tenth window that
is counted tells, and 16 hosts have 64 flows in them, of 8 each."""
REPEATED = 0.05
"""Share of a probe's time that goes into repeating, at most."""
UPLINK_HOSTS = 128
"""Hosts from which on loading the uplinks takes all of its time."""
UPLINK_FLOWS = 12
"""Flows for each host while uplinks are loaded, at most: doubling loads take
less than three a member of a group, outward and inward, on two levels."""
USUAL_UPLINK_FLOWS = 1 / 3
"""Share of them that it usually takes: most groups are of one level, and full
before all of their members send."""
ASSUMED_RATE = 1.25e9
"""Bytes/s of a flow where nothing was measured yet: 10 Gbit/s."""


@dataclass(frozen=True)
class Round:
    """Disjoint pairs that are measured at the same time.

    Attributes
    ----------
    number : int
        Position among the plan's rounds.
    kind : str
        ``rtt``, ``load``, or ``duplex``: both hosts of a pair send at once.
    start : float
        Seconds after the probe began.
    pairs : tuple of (int, int)
        Positions of the host that asks or sends and of the other; a pair that
        sends both ways is there both ways.
    """

    number: int
    kind: str
    start: float
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ProbePlan:
    """A probe of `hosts` hosts; the same numbers give the same rounds.

    Attributes
    ----------
    mode : str
        Key of `MODES`.
    seed : int
        Decides which hosts meet in which round.
    concurrency : int
        Pairs whose latency is taken at the same time, at most.
    passes : tuple of (str, int, bool)
        Kind, rounds of the tournament, whether the direction is turned round.
    samples, ports, warm_up, streams : int
        See `Mode`; `streams` is the TCP connections of a flow, or the messages
        that a job has on their way. One connection, as a collective has: of several
        that begin at once some lose their first packets in a short queue, or fill a
        long one, and how they share a link is mostly noise.
    flow_bytes : int
        Where a flow ends before its time.
    rtt_s, load_s : float
        Seconds of a round; `rtt_gap_s` and `load_gap_s` lie between rounds,
        for clocks that differ and queues that must drain.
    window_s : float
        Seconds in which a flow's bytes are counted together.
    sure_s : float
        Seconds for more rounds under load, at most, as long as it is not sure who
        shares a link.
    uplink_s : float
        Seconds of the rounds, beyond those of `passes`, that load the uplinks
        found (`cloudcoll.probe.extra_rounds`), at most.
    uplink_flows : int
        Flows in them, at most.
    repeat_s : float
        Seconds for meetings of hosts that were starved of CPU in the first
        place (`cloudcoll.probe.extra_rounds`), at most.
    """

    hosts: int
    mode: str
    seed: int
    concurrency: int
    passes: tuple[tuple[str, int, bool], ...]
    samples: int
    ports: int
    warm_up: int
    rtt_s: float
    rtt_gap_s: float = 0.003
    load_s: float = 0.25
    load_gap_s: float = 0.05
    window_s: float = 0.025
    streams: int = 1
    # 64 MiB would end before the ramp-up does on anything above 10 Gbit/s.
    flow_bytes: int = 512 << 20
    sure_s: float = 0.0
    uplink_s: float = 0.0
    uplink_flows: int = 0
    repeat_s: float = 0.0

    def rounds(self) -> Iterator[Round]:
        """Yield the rounds in order of time."""
        players = labels(self.hosts, self.seed)
        tables = (self.hosts + 1) // 2
        number, start = 0, 0.0
        for kind, rounds, flip in self.passes:
            at_once = self.concurrency if kind == "rtt" else tables
            for round_ in range(rounds):
                met = list(tournament_round(2 * tables, round_))
                for first in range(0, tables, at_once):
                    pairs = tuple(
                        (players[b], players[a]) if flip else (players[a], players[b])
                        for a, b in met[first : first + at_once]
                        if max(a, b) < self.hosts  # the odd one out rests
                    )
                    if kind == "duplex":
                        pairs += tuple((b, a) for a, b in pairs)
                    yield Round(number, kind, start, pairs)
                    number += 1
                    start += self.length(kind)

    def once_more(
        self, turn: int, first: int, seconds: float, without: Collection[int] = ()
    ) -> list[Round]:
        """Return another tournament under load, or as much of it as there is time for.

        Each `turn`, from 1 on, has other pairs meet at the same time, without the hosts
        that failed. Rounds are numbered from `first` on, and take `seconds` at most.
        """
        kind = next((kind for kind, _, _ in self.passes if kind != "rtt"), "duplex")
        mesh = self.hosts - 1 + self.hosts % 2
        fit = min(mesh, int(seconds / self.length(kind) + 1e-9))
        again = replace(self, seed=self.seed + turn, passes=((kind, fit, False),))
        return [
            replace(
                slot,
                number=first + slot.number,
                pairs=tuple(pair for pair in slot.pairs if not {*pair} & {*without}),
            )
            for slot in again.rounds()
        ]

    def beginning(self) -> ProbePlan:
        """Return the rounds after which it shows whether flows stall, as a plan.

        It has the same length, as the driver sends the others. All rounds where there
        is no time to load the pairs again, or few of them are under load.
        """
        kinds = [kind != "rtt" for kind, _, _ in self.passes]
        if not self.sure_s or True not in kinds:
            return self
        at = kinds.index(True)
        kind, rounds, flip = self.passes[at]
        return self.led((*self.passes[:at], (kind, min(rounds, LOOKED_AT), flip)))

    def led(
        self, passes: tuple[tuple[str, int, bool], ...] = (("rtt", 0, False),)
    ) -> ProbePlan:
        """Return a plan of the same length whose rounds but these the driver sends."""
        own = replace(self, passes=passes)
        return replace(own, repeat_s=self.repeat_s + self.seconds - own.seconds)

    @property
    def count(self) -> int:
        """How many rounds `passes` make."""
        return sum(rounds * self._turns(kind) for kind, rounds, _ in self.passes)

    @property
    def seconds(self) -> float:
        """How long those rounds take together, start-up not counted."""
        return sum(
            rounds * self._turns(kind) * self.length(kind)
            for kind, rounds, _ in self.passes
        )

    @property
    def lead_s(self) -> float:
        """Seconds between sending rounds to the agents and the first round."""
        return 0.05 + 0.0005 * self.hosts

    @property
    def most_seconds(self) -> float:
        """How long a probe takes with all that may follow those rounds."""
        more = self.repeat_s + self.sure_s + self.uplink_s
        return self.lead_s + self.seconds + more

    @property
    def bytes(self) -> int:
        """Payload bytes that cross the network in all, at most."""
        each = {
            "rtt": 2 * RTT_PACKET * (self.samples + self.warm_up * self.ports),
            "load": self.flow_bytes,
            "duplex": 2 * self.flow_bytes,
        }
        # What is repeated takes the longest round's bytes in each round's time.
        more = int(self.repeat_s / self.length("load"))
        more += int(self.sure_s / self.length("load"))
        again = more * max((each[kind] for kind, _, _ in self.passes), default=0)
        return self.uplink_flows * self.flow_bytes + (self.hosts // 2) * (
            again + sum(rounds * each[kind] for kind, rounds, _ in self.passes)
        )

    def likely_bytes(self, bytes_per_s: float) -> int:
        """Return the payload bytes that cross the network if flows get this rate.

        Without what is measured again, which is nothing on most networks.
        """
        flow = min(self.flow_bytes, bytes_per_s * self.load_s)
        each = {
            "rtt": 2 * RTT_PACKET * (self.samples + self.warm_up * self.ports),
            "load": flow,
            "duplex": 2 * flow,
        }
        meetings = sum(rounds * each[kind] for kind, rounds, _ in self.passes)
        uplinks = USUAL_UPLINK_FLOWS * self.uplink_flows * flow
        return round(uplinks + self.hosts // 2 * meetings)

    def parameters(self) -> dict[str, object]:
        """Return what an agent needs to work out its own schedule."""
        fields = asdict(self)
        for name in ("mode", "sure_s", "uplink_s", "uplink_flows", "repeat_s"):
            del fields[name]
        return fields

    def summary(self) -> dict[str, Any]:
        """Return the plan as JSON-ready values, with the most that it takes."""
        most = {"seconds": self.most_seconds, "bytes": self.bytes}
        return {**asdict(self), "rounds": self.count, **most}

    def describe(self) -> list[str]:
        """Return lines for a reader: hosts, rounds, seconds, bytes."""
        rounds = {"rtt": 0, "load": 0, "duplex": 0}
        for kind, count, _ in self.passes:
            rounds[kind] += count
        uplinks = int(self.uplink_s / self.length("load"))
        at_once = self.hosts // 2 * (2 if rounds["duplex"] else 1)
        again = int(self.sure_s / self.length("load"))
        more = (
            f"up to {again} rounds more under load until it is sure who shares a link"
        )
        filling = f"up to {uplinks} rounds that fill the uplinks of the groups found"
        return [
            f"{self.hosts} hosts, mode {self.mode}, seed {self.seed}",
            f"{rounds['rtt']} rounds of latency, {self.concurrency} pairs at a time, "
            f"{self.samples} samples from {self.ports} ports",
            f"{rounds['load'] + rounds['duplex']} rounds under load, "
            f"{at_once} flows at a time, "
            f"{self.streams} streams for {units.seconds(self.load_s)}",
            *([more] if again else []),
            *([filling] if uplinks else []),
            f"at most {units.seconds(self.most_seconds)} and "
            f"{units.decimal_size(self.bytes)} moved",
        ]

    def _turns(self, kind: str) -> int:
        """Return how many rounds one of the tournament takes."""
        tables = (self.hosts + 1) // 2
        return math.ceil(tables / self.concurrency) if kind == "rtt" else 1

    def length(self, kind: str) -> float:
        """Return the seconds from the start of a round to that of the next."""
        if kind == "rtt":
            return self.rtt_s + self.rtt_gap_s
        return self.load_s + self.load_gap_s


def plan_probes(
    hosts: tuple[Host, ...],
    *,
    mode: str = "quick",
    seed: int = 0,
    concurrency: int | None = None,
    duplex: bool = True,
) -> ProbePlan:
    """Return the plan of a probe of `hosts`.

    Parameters
    ----------
    mode : str
        Key of `MODES`.
    seed : int
        Decides which hosts meet in which round.
    concurrency : int, optional
        Pairs whose latency is taken at the same time; all of a round if not
        given. Hosts that share the cores of one machine need a low figure.
    duplex : bool
        Whether both hosts of a pair send at once under load, as they do in a
        collective: half of the hosts alone would not fill many an uplink.

    Raises
    ------
    UsageError
        No host, an unknown mode, or a number out of range.
    """
    if mode not in MODES:
        raise UsageError(f"unknown probe mode {mode!r} (known: {', '.join(MODES)})")
    if not hosts:
        raise UsageError("no host to probe: name at least two")
    if not 0 <= seed < 1 << 63 or (concurrency is not None and concurrency < 1):
        raise UsageError(f"no probe with seed {seed} and concurrency {concurrency}")
    how = MODES[mode]
    tables = (len(hosts) + 1) // 2
    # Loads double from round to round; no two groups are in under four hosts.
    share = min(1.0, math.log(len(hosts), UPLINK_HOSTS)) if len(hosts) > 3 else 0.0
    uplink_s = how.uplink_s * share
    plan = ProbePlan(
        hosts=len(hosts),
        mode=mode,
        seed=seed,
        concurrency=min(concurrency or tables, tables),
        passes=_passes(how, len(hosts), duplex),
        samples=how.samples * how.repeats // _repeats(how, len(hosts)),
        ports=how.ports,
        warm_up=how.warm_up,
        rtt_s=_slot_s(how, len(hosts)),
        sure_s=_sure_s(how, len(hosts)),
        uplink_s=uplink_s,
        uplink_flows=UPLINK_FLOWS * len(hosts) if uplink_s else 0,
    )
    # A round under load is repeated as a whole: one must fit.
    least = plan.lead_s + plan.length("load")
    spare = REPEATED * plan.seconds + least if plan.passes else 0.0
    return replace(plan, repeat_s=spare)


def _mesh(mode: Mode, hosts: int) -> int:
    """Return the rounds of one pass over the pairs' latency."""
    if mode is MODES["quick"] and hosts > FULL_MESH:
        return 4 * math.ceil(math.log2(hosts))
    return hosts - 1 + hosts % 2


def _repeats(mode: Mode, hosts: int) -> int:
    """Return the times that latency is taken: of a few pairs of many once."""
    return mode.repeats if _mesh(mode, hosts) >= hosts - 1 else 1


def _slot_s(mode: Mode, hosts: int) -> float:
    """Return the seconds of a round of latency, the gap after it not counted."""
    share = mode.mesh_s / max(1, _mesh(mode, hosts))
    whole = mode.rtt_s * mode.repeats / _repeats(mode, hosts)
    return min(whole, max(share, LEAST_SLOT_S) - ProbePlan.rtt_gap_s)


def _loaded(mode: Mode, hosts: int) -> int:
    """Return the rounds of one pass under load."""
    mesh = hosts - 1 + hosts % 2
    # Who shares a link shows where every two hosts have met: few hosts do soon.
    return mesh if hosts <= FULL_MESH else min(mesh, mode.loaded_rounds)


def _sure_s(mode: Mode, hosts: int) -> float:
    """Return the seconds for more loaded rounds: where these can tell, and help."""
    loaded = _loaded(mode, hosts)
    if loaded < COVERED * (hosts - 1) or not 2 < hosts <= LARGE:
        return 0.0
    # So that as many pairs can be loaded again as were before.
    return mode.sure_s * max(1.0, loaded / USUAL_LOADED)


def _passes(mode: Mode, hosts: int, duplex: bool) -> tuple[tuple[str, int, bool], ...]:
    """Return the passes over the tournament that a mode makes."""
    if hosts < 2:
        return ()
    latency = _mesh(mode, hosts)
    loaded = _loaded(mode, hosts)
    once = [("rtt", latency, flip) for flip in (False, True)[: 1 + mode.both_ways]]
    # Four hosts have too few rounds for each to send and to receive in one.
    turns = (False, True) if mode.both_ways or hosts <= 4 else (False,)
    load = [("load", loaded, flip) for flip in turns]
    if duplex:
        load = [("duplex", loaded, False)]
    # Repeats lie apart in time, with the load between them.
    return (*once, *load, *(once * (_repeats(mode, hosts) - 1)))
