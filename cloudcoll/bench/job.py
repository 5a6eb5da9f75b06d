"""The one job of a bench: which orders it compares, how it is planned, and run.

Orders come from a list such as ``given,random:5``; each has a communicator.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cloudcoll.errors import CloudcollError, UsageError
from cloudcoll.files import NOT_JSON, strict_json
from cloudcoll.hosts import read_hosts
from cloudcoll.launch.plan import LaunchRequest
from cloudcoll.libraries.open_mpi_rules import ALGORITHMS
from cloudcoll.network.tree import Fabric
from cloudcoll.programs import rank_program, run_job
from cloudcoll.rankmap import RankMap
from cloudcoll.solve.orders import baseline_orders, random_orders

PORT = 29500
"""Where torch's ranks meet on the first host, unless ``MASTER_PORT`` says."""
MPI_PROGRAM = (sys.executable, *rank_program("mpi_bench"))
TORCH_PROGRAM = (sys.executable, *rank_program("torch_bench"))

MAX_RANDOM = 100
KNOWN = ("given", "sorted", "natural", "grouped", "random[:COUNT]", "cloudcoll", "FILE")


@dataclass(frozen=True)
class NamedOrder:
    """One order of hosts under comparison.

    Attributes
    ----------
    name : str
        ``given``, ``sorted``, ``random-1``, ``cloudcoll``, ....
    hosts : tuple of str
        The first host takes the first ranks.
    same_as : tuple of str
        Other names whose order is the same one; measured once.
    """

    name: str
    hosts: tuple[str, ...]
    same_as: tuple[str, ...] = ()


def named_orders(
    text: str, given: Sequence[str], fabric: Fabric, rank_map: RankMap, seed: int
) -> tuple[NamedOrder, ...]:
    """Return the orders of a comma-separated list, equal ones merged.

    Parameters
    ----------
    text : str
        Names from `KNOWN`; a FILE is any host list of exactly these hosts.
    given : sequence of str
        Hosts as the user listed them.
    fabric : Fabric
        Of exactly these hosts.
    rank_map : RankMap
        CloudColl's answer.
    seed : int
        Of the random orders.

    Raises
    ------
    UsageError
        An unknown name, or no name at all.
    """
    known = {**baseline_orders(given, fabric), "cloudcoll": rank_map.order}
    wanted: dict[str, tuple[str, ...]] = {}
    for name in filter(None, (part.strip() for part in text.split(","))):
        head, _, count = name.partition(":")
        if head == "random":
            orders = random_orders(given, _random_count(name, count), seed)
            wanted |= {f"random-{i}": order for i, order in enumerate(orders, 1)}
        elif name in known:
            wanted[name] = known[name]
        elif Path(name).is_file():
            stem = Path(name).stem
            taken = stem in {*known, *wanted} or stem.startswith("random-")
            wanted[name if taken else stem] = _from_file(name, given)
        else:
            raise UsageError(f"unknown order {name!r} (known: {', '.join(KNOWN)})")
    if not wanted:
        raise UsageError(f"no orders to compare (known: {', '.join(KNOWN)})")
    return _merged(wanted)


def _from_file(path: str, given: Sequence[str]) -> tuple[str, ...]:
    order = tuple(host.name for host in read_hosts(path))
    if strangers := set(order) ^ set(given):
        raise UsageError(
            f"{path} must name exactly the job's hosts, in another order: "
            f"{sorted(strangers)[0]!r} is only in one of the two"
        )
    return order


def _random_count(name: str, text: str) -> int:
    if not text:
        return 5
    if not text.isdecimal() or not 1 <= int(text) <= MAX_RANDOM:
        raise UsageError(f"{name!r}: the count must be a number from 1 to {MAX_RANDOM}")
    return int(text)


def _merged(orders: Mapping[str, tuple[str, ...]]) -> tuple[NamedOrder, ...]:
    names: dict[tuple[str, ...], list[str]] = {}
    for name, hosts in orders.items():
        names.setdefault(hosts, []).append(name)
    return tuple(
        NamedOrder(same[0], hosts, tuple(same[1:])) for hosts, same in names.items()
    )


@dataclass(frozen=True)
class BenchPace:
    """How long to measure.

    Attributes
    ----------
    repeats : int
        Most measurements of each order at each size.
    seconds : float
        Box of time for all, warm-ups included; one measurement is made in any case.
    narrow : float
        Half width, as a share, of the ratios' intervals at which a size ends.
    least : int
        As many are made, whatever a size's share of the time, if there is any left.
    min_seconds : float
        A measurement of a fast call is the mean of as many as fit into this.
    """

    repeats: int
    seconds: float
    narrow: float
    least: int
    min_seconds: float = 0.05


@dataclass(frozen=True)
class BenchPlan:
    """One job that times every order.

    Attributes
    ----------
    argv : tuple of str
        The launcher's command line, with our program as the application.
    spec : mapping
        What rank 0 reads from stdin; see ``probes/timing.py``.
    placement : tuple of str
        The host of each rank, as the launcher is expected to place them.
    rows : int
        Most measurements that the job will print.
    """

    argv: tuple[str, ...]
    spec: dict[str, Any]
    placement: tuple[str, ...]
    rows: int


def bench_command(
    argv: Sequence[str],
    collective: str = "allreduce",
    algorithm: str = "auto",
    program: Sequence[str] = MPI_PROGRAM,
) -> tuple[str, ...]:
    """Return a launcher's command line completed by our program of MPI.

    The `algorithm` is one of Open MPI's, forced through ``coll_tuned``; ``auto`` forces
    nothing.
    """
    if algorithm == "auto":
        return (*argv, *program)
    names = ALGORITHMS[collective].split()
    if algorithm not in names:
        raise UsageError(
            f"unknown {collective} algorithm {algorithm!r} of Open MPI "
            f"(known: auto, {', '.join(names)})"
        )
    forced = {
        "coll_tuned_use_dynamic_rules": "1",
        f"coll_tuned_{collective}_algorithm": str(names.index(algorithm) + 1),
        # Else HAN takes over where a host has several ranks.
        "coll_han_priority": "0",
    }
    settings = [word for pair in forced.items() for word in ("--mca", *pair)]
    return (*argv, *settings, *program)


def torch_command(
    argv: Sequence[str], address: str, env: Mapping[str, str], backend: str = "gloo"
) -> tuple[str, ...]:
    """Return a launcher's command line completed by our program of torch.

    `address` is a host with a rank; ``MASTER_ADDR`` goes before it. The backend is
    ``gloo`` or ``nccl``, which needs a GPU for each rank.
    """
    where = env.get("MASTER_ADDR", address), env.get("MASTER_PORT", PORT)
    return (*argv, *TORCH_PROGRAM, f"{where[0]}:{where[1]}", backend)


def plan_bench(
    request: LaunchRequest,
    orders: Sequence[NamedOrder],
    *,
    collective: str,
    sizes: Sequence[int],
    pace: BenchPace,
) -> BenchPlan:
    """Return the plan of a bench; nothing is executed.

    The request is of our program; its ranks stay where the launcher puts them.
    """
    placement = request.place(request.used)
    names = {n: order.name for order in orders for n in (order.name, *order.same_as)}
    return BenchPlan(
        argv=request.argv,
        spec={
            "op": collective,
            "orders": {
                order.name: split_keys(placement, request.place(order.hosts))
                for order in orders
            },
            "sizes": list(sizes),
            "reference": names.get("cloudcoll", ""),
            **asdict(pace),
        },
        placement=placement,
        rows=len(orders) * len(sizes) * pace.repeats,
    )


def split_keys(placement: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return for each rank the key that puts it in its place of another order.

    `placement` has the host of each rank of the world, `wanted` that of each rank of
    the communicator to make; as many on each host. A host's ranks keep their order.
    """
    places: dict[str, list[int]] = {}
    for key, host in enumerate(wanted):
        places.setdefault(host, []).append(key)
    return [places[host].pop(0) for host in placement]


_ROW = {
    "op": str,
    "bytes": int,
    "order": str,
    "repeat": int,
    "time_us": float,
    "calls": int,
    "wrong": int,
}

Row = dict[str, Any]


@dataclass(frozen=True)
class JobOutput:
    """What a bench's job printed.

    Attributes
    ----------
    hello : mapping
        Its first line.
    rows : tuple of mapping
        Its measurements, in order of time.
    failure : str
        Why there are no more of them; empty if that is all.
    left_out : mapping of str to str
        Orders that could not be started, and why.
    spared : tuple of int
        Bytes of sizes for which there was no time.
    """

    hello: Mapping[str, Any]
    rows: tuple[Row, ...]
    failure: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    spared: tuple[int, ...] = ()


def run_bench(
    plan: BenchPlan,
    env: Mapping[str, str],
    timeout: float,
    on_row: Callable[[Row, float], None] = lambda row, left: None,
) -> JobOutput:
    """Run the job; what it measured before a failure is kept.

    The job's stderr is ours.

    Parameters
    ----------
    env : mapping
        Environment of the launcher.
    timeout : float
        Seconds after which the job is stopped.
    on_row : callable
        Told each row, and about how many seconds are left, as it comes.

    Raises
    ------
    CloudcollError
        Nothing was measured, or ranks are elsewhere than planned.
    """
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    spared: list[int] = []
    hello: dict[str, Any] = {}
    failure = "the job ended before it was done"
    try:
        with run_job(plan.argv, plan.spec, env, timeout) as printed:
            lines = _objects(printed)
            hello = next(lines, {})
            _check_placement(hello, plan)
            for line in lines:
                if line.get("done"):
                    failure = ""
                    continue
                if "trouble" in line:
                    left_out[str(line.get("order"))] = str(line["trouble"])
                    continue
                if type(size := line.get("spared")) is int:
                    spared.append(size)
                    continue
                left = line.pop("left_s", math.nan)
                rows.append(_row(line))
                on_row(rows[-1], left)
    except CloudcollError as error:
        if not rows:
            raise
        failure = str(error)
    if not rows:
        reasons = [failure, *(f"order {n}: {why}" for n, why in left_out.items())]
        raise CloudcollError(
            f"nothing was measured: {'; '.join(filter(None, reasons))}"
        )
    return JobOutput(hello, tuple(rows), failure, left_out, tuple(spared))


def _objects(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield strict_json(line)
        except NOT_JSON:
            raise CloudcollError(
                f"the job printed half a line: {line[:60]!r}"
            ) from None


def _row(line: Mapping[str, Any]) -> Row:
    for key, kind in _ROW.items():
        if type(line.get(key)) is not kind:
            raise CloudcollError(f"a measurement without a valid {key!r}: {line}")
    return dict(line)


def _check_placement(hello: Mapping[str, Any], plan: BenchPlan) -> None:
    """Compare where ranks landed with where the launcher was to put them.

    A host may call itself something else than the host list does (an address,
    an alias), but ranks of one host must stay together.
    """
    hosts = hello.get("hosts")
    if not isinstance(hosts, list):
        needed = sys.executable if sys.executable in plan.argv else plan.argv[-1]
        raise CloudcollError(
            "the bench's ranks never began: if the launcher's own words above do not "
            f"say why, is {needed} on every host?"
        )
    if len(hosts) != len(plan.placement):
        raise CloudcollError(
            f"the job has {len(hosts)} ranks, {len(plan.placement)} were expected: is "
            "our program of the launcher's own MPI? (see --backend)"
        )
    short = {host: host.partition(".")[0] for host in plan.placement}
    if len(set(short.values())) < len(short):
        # They are addresses, or of two domains: all of each tells them apart.
        short = {host: host for host in short}
    alias: dict[str, str] = {}
    for rank, wanted in enumerate(map(short.__getitem__, plan.placement)):
        named = str(hosts[rank])
        found = short.get(named, named.partition(".")[0])
        known = alias.setdefault(wanted, found)
        if known != found or (found in short.values() and found != wanted):
            raise CloudcollError(
                f"rank {rank} landed on {found}, not on {wanted}: the launcher placed "
                "ranks in another order than its command line says"
            )
