"""From a `LabSpec` to what is typed into ``ip`` and ``tc``: pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Literal

from cloudcoll.lab.link import (
    RTO_MIN,
    SWITCH,
    Backend,
    Link,
    attach_lines,
    qdisc_lines,
    splice_lines,
)
from cloudcoll.lab.spec import GroupSpec, LabSpec

NETWORK = IPv4Network("10.77.0.0/16")
HEAD = "head"


@dataclass(frozen=True)
class Batch:
    """Lines for one call of ``ip -batch`` or ``tc -batch`` in one namespace."""

    namespace: str
    tool: Literal["ip", "tc"]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """All that is needed to build a lab.

    Attributes
    ----------
    hosts : tuple of str
        Host names in name order, then `HEAD`.
    slots : tuple of int
        Ranks per host, in the same order, without `HEAD`.
    groups : tuple of tuple of str
        The racks: the names of the hosts under each lowest switch.
    hosts_file : str
        Content of ``/etc/hosts`` in every host.
    links : tuple of Link
        Hosts and groups, each with its way up.
    batches : tuple of Batch
        What to type, in order.
    wired : tuple of Link
        The links in which a wire stands.
    backend : str
        What delays packets: ``netem`` or ``wire``.
    seed : int
        For the wires' losses.
    """

    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    groups: tuple[tuple[str, ...], ...]
    hosts_file: str
    links: tuple[Link, ...]
    batches: tuple[Batch, ...]
    wired: tuple[Link, ...]
    backend: Backend
    seed: int


def plan_lab(spec: LabSpec, backend: Backend) -> Plan:
    """Return what builds the lab of `spec`."""
    placed = spec.placed_names()
    slots = dict(zip(placed, (h.slots for h in spec.root.hosts()), strict=True))
    names = sorted(placed)
    links = tuple(_links(spec))
    addresses = _addresses(names)
    wired = tuple(link for link in links if link.wired(backend))
    return Plan(
        hosts=(*names, HEAD),
        slots=tuple(slots[name] for name in names),
        groups=_racks(links),
        hosts_file=_hosts_file(addresses),
        links=links,
        batches=tuple(_batches(links, addresses, backend)),
        wired=wired,
        backend=backend,
        seed=spec.seed,
    )


def _links(spec: LabSpec) -> Iterator[Link]:
    names = iter(spec.placed_names())
    numbers = iter(range(1, 10_000))
    bridges = {group.name: f"b{n}" for n, group in enumerate(spec.root.groups())}

    def below(group: GroupSpec) -> Iterator[Link]:
        bridge = bridges[group.name]
        for child in group.children:
            # A path crosses this level's links twice each way.
            if isinstance(child, GroupSpec):
                delay = (group.rtt - child.rtt) / 4
                ends = (SWITCH, bridge, bridges[child.name])
                yield Link(
                    child.name, next(numbers), *ends, child.up, child.down, delay
                )
                yield from below(child)
            else:
                name = next(names)
                ends = (name, bridge, "")
                delay = group.rtt / 4
                yield Link(name, next(numbers), *ends, child.up, child.down, delay)

    yield from below(spec.root)
    root = bridges[spec.root.name]
    yield Link(HEAD, next(numbers), HEAD, root, "", math.inf, math.inf, 0.0)


def _racks(links: tuple[Link, ...]) -> tuple[tuple[str, ...], ...]:
    racks: dict[str, list[str]] = {}
    for link in links:
        if not link.below and link.name != HEAD:
            racks.setdefault(link.bridge, []).append(link.name)
    return tuple(tuple(sorted(rack)) for rack in racks.values())


def _addresses(names: list[str]) -> dict[str, IPv4Interface]:
    # By name, not by place: an address must not give the rack away.
    first = int(NETWORK.network_address)
    addresses = {name: first + n for n, name in enumerate(names, start=1)}
    addresses[HEAD] = int(NETWORK.broadcast_address) - 1
    return {
        name: IPv4Interface((IPv4Address(number), NETWORK.prefixlen))
        for name, number in addresses.items()
    }


def _hosts_file(addresses: dict[str, IPv4Interface]) -> str:
    lines = [f"{address.ip} {name}\n" for name, address in addresses.items()]
    return "127.0.0.1 localhost\n" + "".join(lines)


def _batches(
    links: tuple[Link, ...], addresses: dict[str, IPv4Interface], backend: Backend
) -> Iterator[Batch]:
    hosts = [link for link in links if not link.below]
    for link in hosts:
        upper = link.wire_ends[0] if link.wired(backend) else link.port
        yield Batch(
            link.namespace,
            "ip",
            (
                "link set lo up",
                # Process 1 of the lab is in the namespace of the switches.
                f"link add eth0 type veth peer name {upper} netns 1",
                f"address add {addresses[link.name]} dev eth0",
                "link set eth0 up",
                f"route replace {NETWORK} dev eth0 proto kernel scope link "
                f"src {addresses[link.name].ip} rto_min {RTO_MIN * 1e3:.0f}ms",
            ),
        )
    yield Batch(SWITCH, "ip", tuple(_switch_lines(links, backend)))
    for link in hosts:
        if lines := qdisc_lines(link.lower, link.up, backend, link.delay):
            yield Batch(link.namespace, "tc", lines)
    lines = ()
    for link in links:
        if link.below:
            lines += qdisc_lines(link.lower, link.up, backend, link.delay)
        lines += qdisc_lines(link.port, link.down, backend, link.delay)
    if lines:
        yield Batch(SWITCH, "tc", lines)


def _switch_lines(links: tuple[Link, ...], backend: Backend) -> Iterator[str]:
    yield "link set lo up"
    bridges = dict.fromkeys(b for link in links for b in (link.bridge, link.below) if b)
    for bridge in bridges:
        yield (
            f"link add {bridge} type bridge "
            "stp_state 0 forward_delay 0 mcast_snooping 0"
        )
        yield f"link set {bridge} up"
    for link in links:
        wired = link.wired(backend)
        if link.below:
            upper = link.wire_ends[0] if wired else link.port
            yield f"link add {link.lower} type veth peer name {upper}"
            yield f"link set {link.lower} master {link.below} up"
        yield from splice_lines(link) if wired else attach_lines(link)
