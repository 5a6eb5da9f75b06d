"""CloudColl's order against the true one, in networks that nobody tuned it for.

Each network has a queue, a narrowness of its uplinks, a longer way between racks,
trouble, and racks of its own; every value of one meets many of the others. In each a
quick probe, as `run` makes, and then one job of real Open MPI in which CloudColl's
order and that of the true racks take turns. A line each: the time in the true order
over that in CloudColl's for a ring and for Rabenseifner, the racks, how sure the probe
was, and its seconds. Networks without racks are there to have none found; all orders
are alike in them, so there is no job.

All of it takes hours: what was measured is kept in a folder, with the snapshots, and
not measured again. With ``--repeats 0`` there are probes alone: half an hour. Each
network has two cores to itself, so that a machine with more measures several at a time.

    python -m benchmarks.grid --kept build/grid [--count 64] [--flat 20] [--only WORD]
        [--repeats 4]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from benchmarks.emulated import CLOUDCOLL, command_in
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.bench.result import BenchRun
from cloudcoll.collectives import build_schedule
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot
from cloudcoll.model import fabric_of, problem_of
from cloudcoll.model.cost import interval
from cloudcoll.rankmap import SURE

LAB = "grid"
CARD_MBIT = 100
"""So that two cores carry what all cards send."""

QUEUES = ("2ms", "5ms", "20ms", "50ms", "200ms", "64p", "codel", "policer:256K")
NARROW = (2, 4, 8)
RTTS = ("0", "20us", "200us")
TROUBLES = ("quiet", "hogs", "traffic")
RACKS = ("5,3,6,2", "4,4,4,4", "7,1,4,4", "9,7/8")
NO_RACKS = "16"

ALGORITHMS = ("ring", "rabenseifner")
SIZES = ("1M", "4M")
SECONDS = 60
"""Of each algorithm's job: slow networks are measured less often."""

CORES = 2
"""Of each network, however many a machine has."""

MIDDLE, WORST = 0.98, 0.93
"""Wanted of the median and of the worst ratio."""

SOON = 15.0
"""Seconds in which a probe of 16 hosts should be sure."""


class Racked(Protocol):
    """A network whose racks are to be found."""

    @property
    def name(self) -> str:
        """What it is called in the table."""

    @property
    def racks(self) -> str:
        """`NO_RACKS`, or hosts in each rack."""

    @property
    def hosts(self) -> int:
        """Hosts in all of it."""

    def limits(self, hosts: int) -> bool:
        """Return whether so many hosts in a rack can send more than its link carries.

        Where they can't, nothing depends on it, nor can it be found.
        """


AnyRacked = TypeVar("AnyRacked", bound=Racked)


@dataclass(frozen=True)
class Network:
    """One of the grid."""

    queue: str
    narrow: int
    rtt: str
    trouble: str
    racks: str
    seed: int

    @property
    def name(self) -> str:
        """What it is called in the table."""
        ratio = "" if self.racks == NO_RACKS else f"{self.narrow}:1 "
        return f"{self.racks} {ratio}{self.queue} +{self.rtt} {self.trouble}"

    @property
    def sizes(self) -> list[int]:
        """Hosts in each rack."""
        return [int(n) for n in self.racks.replace("/", ",").split(",")]

    @property
    def hosts(self) -> int:
        """Hosts in all of it."""
        return sum(self.sizes)

    @property
    def uplink(self) -> float:
        """Mbit/s of each rack's: a small one's is seldom full, a large one's always."""
        if self.racks == NO_RACKS:
            return CARD_MBIT * NOT_FULL
        return CARD_MBIT * float(np.mean(self.sizes)) / self.narrow

    def limits(self, hosts: int) -> bool:
        """Return as `Racked` has it."""
        return hosts > 1 and hosts * CARD_MBIT > self.uplink

    @property
    def options(self) -> list[str]:
        """Return what `lab up` is told."""
        found = [
            *("--racks", self.racks, "--nic", f"{CARD_MBIT}mbit"),
            *("--uplink", f"{self.uplink:.0f}mbit", "--queue", self.queue),
            *("--rtt", self.rtt, "--seed", str(self.seed)),
        ]
        if self.trouble == "hogs":
            found += ["--hogs", "2"]
        if self.trouble == "traffic" and self.racks != NO_RACKS:
            found += ["--traffic", f"rack-1:rack-2:{0.3 * self.uplink:.0f}mbit"]
        return found


NOT_FULL = 100
"""Times a card's rate that the only switch of a network without racks carries."""


def grid(count: int, flat: int, seed: int = 0) -> list[Network]:
    """Return networks in which each value comes as often as any other of its kind."""
    generator = np.random.default_rng(seed)

    def dealt(values: Sequence[str] | Sequence[int], many: int) -> list[int]:
        turns = -(-many // len(values))
        decks = [generator.permutation(len(values)) for _ in range(turns)]
        return [int(n) for deck in decks for n in deck][:many]

    found = []
    for many, racks in ((count, RACKS), (flat, (NO_RACKS,))):
        deals = [dealt(v, many) for v in (QUEUES, NARROW, RTTS, TROUBLES, racks)]
        for number, (q, n, t, w, r) in enumerate(zip(*deals, strict=True)):
            network = Network(
                QUEUES[q], NARROW[n], RTTS[t], TROUBLES[w], racks[r], number + 1
            )
            found.append(network)
    return found


@dataclass(frozen=True)
class Timed:
    """A collective of one size in CloudColl's order.

    Attributes
    ----------
    ratio : float
        Seconds in the true order over those in CloudColl's.
    predicted, measured : float
        Seconds in CloudColl's order.
    low, high : float
        Between which seconds it should take, as `model.cost.interval` has it.
    """

    ratio: float
    predicted: float
    measured: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """By how much the prediction is off, without a sign."""
        return abs(self.predicted / self.measured - 1)

    @property
    def held(self) -> bool:
        """Whether it took what it should."""
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class Outcome:
    """What came of a network.

    Attributes
    ----------
    timed : dict of str to Timed
        By algorithm and bytes; without those whose job died.
    missed, extra : int
        Racks whose links limit their hosts that were not found, and groups that are no
        racks.
    confidence : float
    seconds : float
        Of the whole command `probe`.
    """

    timed: dict[str, Timed]
    missed: int
    extra: int
    confidence: float
    seconds: float

    @property
    def right(self) -> bool:
        """Whether the racks were found exactly."""
        return self.missed == self.extra == 0

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """Return what `dataclasses.asdict` wrote."""
        timed = {key: Timed(**one) for key, one in data.pop("timed").items()}
        return cls(timed=timed, **data)


@contextlib.contextmanager
def fresh_lab(network: Network) -> Iterator[tuple[Path, Callable[..., str]]]:
    """Start the lab `LAB` of a network, and take it down in the end.

    Yields the folder of its files, and what runs a command of CloudColl there.
    """
    with tempfile.TemporaryDirectory() as folder:
        cloudcoll = command_in(folder)
        cloudcoll("lab", "up", "--name", LAB, *network.options)
        try:
            yield Path(folder), cloudcoll
        finally:
            cloudcoll("lab", "down", "--name", LAB)


def probe(cloudcoll: Callable[..., str], snapshot: Path) -> None:
    """Measure the lab as `run` does, and write that."""
    # 1: some pairs gave no result, as may be behind short queues.
    cloudcoll("probe", "--lab", LAB, "--quick", "-o", str(snapshot), good=1)


def measured(network: Network, repeats: int, snapshot: Path) -> Outcome:
    """Return what comes of a network in a fresh lab, and write its snapshot."""
    with fresh_lab(network) as (home, cloudcoll):
        truth = home / "true-racks"
        named = ("lab", "hosts", "--name", LAB)
        racks = json.loads(cloudcoll(*named, "--true-groups", "--json"))
        truth.write_text("\n".join(true_order(racks)))
        begin = time.perf_counter()
        probe(cloudcoll, snapshot)
        seconds = time.perf_counter() - begin
        runs = {
            algorithm: BenchRun.from_json(
                cloudcoll(
                    *("lab", "exec", "--name", LAB, "--", *CLOUDCOLL, "bench"),
                    *("--json", "--snapshot", str(snapshot)),
                    *("--algorithm", algorithm, "-b", SIZES[0], "-e", SIZES[-1]),
                    *("--repeats", str(repeats), "--seconds", str(SECONDS)),
                    *("--orders", f"{truth},cloudcoll"),
                    *("mpirun", "--hostfile", str(home / "lab" / LAB / "hosts")),
                )
            )
            for algorithm in (ALGORITHMS if repeats and len(racks) > 1 else ())
        }
    return outcome(network, load_snapshot(snapshot), racks, runs, seconds)


def true_order(racks: list[list[str]]) -> list[str]:
    """Return racks one after the other, that of the first host first."""
    first = min(name for rack in racks for name in rack)
    ordered = sorted(racks, key=lambda rack: first not in rack)
    ordered[0].sort(key=lambda name: name != first)
    return [name for rack in ordered for name in rack]


def outcome(
    network: Racked,
    snapshot: NetworkSnapshot,
    racks: list[list[str]],
    runs: dict[str, BenchRun],
    seconds: float,
) -> Outcome:
    """Return what was found and measured."""
    fabric = fabric_of(snapshot)
    true = {frozenset(rack) for rack in racks}
    limited = {rack for rack in true if network.limits(len(rack))}
    got = {
        frozenset(node.leaves())
        for node in fabric.groups()[0]
        if node is not fabric.root and len(node.children) > 1
    }
    timed = {}
    for algorithm, run in runs.items():
        ours = run.same_as.get("cloudcoll", "cloudcoll")
        theirs = run.same_as.get("true-racks", "true-racks")
        for size in run.sizes:
            if not run.paired(size, [ours, theirs]).size:
                continue  # the job died, or ended too early
            mine, best = (np.median(run.times(size, order)) for order in (ours, theirs))
            timed[f"{algorithm} {size}"] = Timed(
                float(best / mine),
                run.predicted[str(size)][ours],
                float(mine) * 1e-6,
                *interval_of(snapshot, algorithm, size, run.orders[ours]),
            )
    missed, extra = len(limited - got), len(got - true)
    return Outcome(timed, missed, extra, fabric.confidence, seconds)


def interval_of(
    snapshot: NetworkSnapshot, algorithm: str, size: int, order: Sequence[str]
) -> tuple[float, float]:
    """Return between which seconds an allreduce in this order should take."""
    schedule = build_schedule("allreduce", algorithm, len(order), size, "openmpi")
    slots = dict.fromkeys(order, 1)
    shares, fabrics = zip(*fabric_of(snapshot).restrict(order).drawn(), strict=True)
    problems = [problem_of(snapshot, schedule, slots, fabric=one) for one in fabrics]
    known = problems[0].costs_known
    return interval([one.seconds(order) for one in problems], shares, costs_known=known)


def row(network: Racked, found: Outcome) -> str:
    """Return a line of the table."""
    ratios = "  ".join(f"{one.ratio:5.2f}" for one in found.timed.values())
    return (
        f"{network.name:38} {ratios}  {found.missed} missed {found.extra} too many  "
        f"{found.confidence:4.0%} sure  {found.seconds:5.1f} s"
    )


Found = dict[Network, Outcome]


def figures(
    found: Mapping[AnyRacked, Outcome], named: str = "grid"
) -> Iterator[Figure]:
    """Yield what is said of all networks together, under this name."""
    racked = {n: one for n, one in found.items() if n.racks != NO_RACKS}
    flat = [one for n, one in found.items() if n.racks == NO_RACKS]
    of = f"of {len(racked)}"
    for key in dict.fromkeys(key for one in racked.values() for key in one.timed):
        ended = [one.timed[key] for one in racked.values() if key in one.timed]
        what = f"{named}: {key} bytes"
        yield Figure(f"{what}, jobs that died", len(racked) - len(ended), unit=of)
        ratios = [one.ratio for one in ended]
        yield Figure(
            f"{what}, true racks over cloudcoll, median",
            *(float(np.median(ratios)), min(ratios), max(ratios)),
            least=MIDDLE,
            unit="x",
            interval=f"range of {len(ratios)} networks",
        )
        yield Figure(
            f"{what}, true racks over cloudcoll, worst",
            min(ratios),
            unit="x",
            least=WORST,
        )
        error = 100 * float(np.median([one.error for one in ended]))
        yield Figure(f"{what}, error of the seconds", error, unit="%")
        held = sum(one.held for one in ended)
        yield Figure(f"{what}, intervals held", held, unit=f"of {len(ended)}")
    if racked:
        exact = sum(one.right for one in racked.values())
        yield Figure(f"{named}: racks exact", exact, unit=of)
        sure = [one for one in racked.values() if one.confidence >= SURE]
        yield Figure(f"{named}: sure", len(sure), unit=of)
        right = sum(one.right for one in sure)
        yield Figure(f"{named}: sure and right", right, unit=f"of {len(sure)} sure")
        small = [one for n, one in racked.items() if n.hosts == 16]
        soon = sum(one.confidence >= SURE and one.seconds <= SOON for one in small)
        yield Figure(f"{named}: sure soon", soon, unit=f"of {len(small)}")
    if flat:
        none = sum(one.right for one in flat)
        yield Figure(
            f"{named}: no racks where there are none", none, unit=f"of {len(flat)}"
        )


def kept(path: Path) -> dict[Network, Outcome]:
    """Return what a file has of networks measured before."""
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text().splitlines())
    return {
        Network(**line["network"]): Outcome.from_json(line["outcome"]) for line in lines
    }


def measured_in(folder: Path, networks: Sequence[Network], repeats: int) -> Found:
    """Return what comes of networks; what a folder has of them is not measured again.

    Prints the row of each.
    """
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / "outcomes.jsonl"
    before = kept(path)
    found = {network: before[network] for network in networks if network in before}
    for network, one in found.items():
        print(row(network, one), flush=True)

    left = [network for network in networks if network not in found]
    with workers() as pool:
        running = {pool.submit(one_of, n, folder, repeats): n for n in left}
        try:
            for future in as_completed(running):
                network, one = running[future], future.result()
                data = {"network": asdict(network), "outcome": asdict(one)}
                with path.open("a") as file:
                    file.write(json.dumps(data) + "\n")
                found[network] = one
                print(row(network, one), flush=True)
        except BaseException:
            for process in multiprocessing.active_children():
                assert process.pid is not None
                os.kill(process.pid, signal.SIGINT)
            raise
    return found


def one_of(network: Network, folder: Path, repeats: int) -> Outcome:
    """Measure one network, with its snapshot in a folder."""
    name = network.name.replace("/", "-").replace(" ", "_")
    snapshot = folder.absolute() / f"{name}_{network.seed}.snap"
    try:
        return measured(network, repeats, snapshot)
    except KeyboardInterrupt:
        os._exit(130)  # its lab is down, and the pool hands out no more


def workers() -> ProcessPoolExecutor:
    """Return processes that each have `CORES` of this machine to themselves."""
    cores = sorted(os.sched_getaffinity(0))
    many = max(len(cores) // CORES, 1)
    shares: multiprocessing.Queue[list[int]] = multiprocessing.Queue()
    for share in np.array_split(cores, many):
        shares.put(share.tolist())
    return ProcessPoolExecutor(many, initializer=begin, initargs=(shares,))


def begin(shares: multiprocessing.Queue[list[int]]) -> None:
    """Take the next share of the cores, and one Ctrl-C, of the terminal's and ours."""
    os.sched_setaffinity(0, shares.get())
    signal.signal(signal.SIGINT, interrupted)


def interrupted(number: int, frame: object) -> None:
    """End what runs; taking the lab down is not interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """Measure each network, and print its row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=64, help="networks with racks")
    parser.add_argument("--flat", type=int, default=20, help="and without")
    parser.add_argument("--only", default="", help="those whose names have this word")
    parser.add_argument(
        "--repeats", type=int, default=4, help="of each size; 0: no job"
    )
    parser.add_argument("--kept", type=Path, help="folder of what was measured")
    json_option(parser)
    given = parser.parse_args()
    networks = [n for n in grid(given.count, given.flat) if given.only in n.name]
    with tempfile.TemporaryDirectory() as folder:
        kept_in = given.kept or Path(folder)
        found = measured_in(kept_in, networks, given.repeats)
    write_figures(figures(found), given.json)


if __name__ == "__main__":
    main()
