"""From a `LabSpec` to what is typed into ``ip`` and ``tc``: pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Literal

from cloudcoll.lab.link import (
    FLOOR,
    SEGMENT,
    SWITCH,
    Backend,
    Link,
    attach_lines,
    largest_segment,
    shaping_lines,
    splice_lines,
)
from cloudcoll.lab.spec import GroupSpec, HostSpec, LabSpec, Shape, Surroundings

NETWORK = IPv4Network("10.77.0.0/16")
HEAD = "head"
NEIGHBOURS = 300
"""Hosts, at most, that are told of each other, in a line of ``ip`` for each pair: 256
come up no slower for it (6 s on two cores), 1000 would be a million lines."""
OPEN = (math.inf, math.inf, 0.0, Shape())
"""A link that neither delays nor shapes."""


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
        Host names in name order, then `HEAD`, then tenants: the hosts between
        which cross traffic goes, two for each.
    slots : tuple of int
        Ranks per host, in the same order, without `HEAD` and tenants.
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
    surroundings : Surroundings
        As asked for.
    hogged : tuple of str
        Hosts with a hog.
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
    surroundings: Surroundings
    hogged: tuple[str, ...]


def plan_lab(spec: LabSpec, backend: Backend) -> Plan:
    """Return the plan that builds the lab of `spec`."""
    placed = spec.placed_names()
    slots = dict(zip(placed, (h.slots for h in spec.root.hosts()), strict=True))
    names = sorted(placed)
    tenants = _tenants(spec)
    links = _levelled(tuple(_links(spec, tenants)), names)
    addresses = _addresses(names, (HEAD, *tenants))
    wired = tuple(link for link in links if link.wired(backend))
    return Plan(
        hosts=(*names, HEAD, *tenants),
        slots=tuple(slots[name] for name in names),
        groups=_racks(links, {HEAD, *tenants}),
        hosts_file=_hosts_file(addresses),
        links=links,
        batches=tuple(_batches(links, addresses, backend, spec.surroundings)),
        wired=wired,
        backend=backend,
        seed=spec.seed,
        surroundings=spec.surroundings,
        hogged=spec.hogged(),
    )


def _tenants(spec: LabSpec) -> dict[str, str]:
    """Return the names of the ends of cross traffic, and the group of each."""
    ends = (
        group
        for traffic in spec.surroundings.traffic
        for group in (traffic.source, traffic.destination)
    )
    return {f"tenant-{number}": group for number, group in enumerate(ends, start=1)}


def _links(spec: LabSpec, tenants: dict[str, str]) -> Iterator[Link]:
    names = iter(spec.placed_names())
    numbers = iter(range(1, 10_000))
    bridges = {group.name: f"b{n}" for n, group in enumerate(spec.root.groups())}

    def below(group: GroupSpec) -> Iterator[Link]:
        bridge = bridges[group.name]
        for child in group.children:
            # A path crosses this level's links twice each way.
            number = next(numbers)
            shaped = (child.up, child.down)
            if isinstance(child, GroupSpec):
                delay = (group.rtt - child.rtt) / 4
                ends = (SWITCH, bridge, bridges[child.name])
                shape = child.shape
                yield Link(child.name, number, *ends, *shaped, delay, shape, host=False)
                yield from below(child)
            else:
                own = _own_bridge(number, child)
                name = next(names)
                ends = (SWITCH if own else name, bridge, own)
                delay = group.rtt / 4
                shape = child.shape
                yield Link(name, number, *ends, *shaped, delay, shape, host=True)

    yield from below(spec.root)
    for name, group in {HEAD: spec.root.name, **tenants}.items():
        yield Link(name, next(numbers), name, bridges[group], "", *OPEN, host=True)


def _levelled(links: tuple[Link, ...], names: list[str]) -> tuple[Link, ...]:
    """Return links on which wires take no longer between racks than within one.

    A wire takes a while, so ways across more wires would be longer than asked
    for, and racks seen by that. So wires between switches take `FLOOR`, and cards
    hold back what crosses fewer of them than others do, by as many `FLOOR`.
    """
    if not any(link.needs_wire and not link.host for link in links):
        return links
    above = {link.below: link for link in links if not link.host}

    def crossed(link: Link) -> frozenset[str]:
        found = set()
        while link.bridge in above:
            link = above[link.bridge]
            found |= {link.name} if link.needs_wire else set()
        return frozenset(found)

    ways = {link.name: crossed(link) for link in links if link.name in names}
    counts = {one: [len(ways[one] ^ ways[other]) for other in names] for one in ways}
    most = max(max(row) for row in counts.values())

    def levelled(link: Link) -> Link:
        if link.name in ways:
            steps = "".join(str(most - count) for count in counts[link.name])
            return replace(link, floor=FLOOR, steps=steps)
        return replace(link, floor=FLOOR) if link.needs_wire else link

    return tuple(map(levelled, links))


def _own_bridge(number: int, host: HostSpec) -> str:
    """Return the bridge that hides what waits at a card from its host, if any does.

    A wire does that too.
    """
    queue, backpressure = host.shape.queue, host.shape.backpressure
    waits = math.isfinite(host.up) and queue.kind == "time" and not backpressure
    return f"v{number}" if waits else ""


def _racks(links: tuple[Link, ...], others: set[str]) -> tuple[tuple[str, ...], ...]:
    racks: dict[str, list[str]] = {}
    for link in links:
        if link.host and link.name not in others:
            racks.setdefault(link.bridge, []).append(link.name)
    return tuple(tuple(sorted(rack)) for rack in racks.values())


def _addresses(names: list[str], others: tuple[str, ...]) -> dict[str, IPv4Interface]:
    # By name, not by place: an address must not give the rack away.
    first, last = int(NETWORK.network_address), int(NETWORK.broadcast_address)
    addresses = {name: first + n for n, name in enumerate(names, start=1)}
    addresses |= {name: last - n for n, name in enumerate(others, start=1)}
    return {
        name: IPv4Interface((IPv4Address(number), NETWORK.prefixlen))
        for name, number in addresses.items()
    }


def _hosts_file(addresses: dict[str, IPv4Interface]) -> str:
    lines = [f"{address.ip} {name}\n" for name, address in addresses.items()]
    return "127.0.0.1 localhost\n" + "".join(lines)


def _batches(
    links: tuple[Link, ...],
    addresses: dict[str, IPv4Interface],
    backend: Backend,
    around: Surroundings,
) -> Iterator[Batch]:
    hosts = [link for link in links if link.host]
    segment = largest_segment(links)
    # Linux keeps 1024 learned neighbours for all namespaces together (arp(7),
    # gc_thresh3), and sends nothing to the others: too few for 33 hosts.
    known = {
        name: f"neighbour replace {address.ip} lladdr {_card_address(address)} "
        "nud permanent dev eth0"
        for name, address in addresses.items()
        if len(addresses) <= NEIGHBOURS
    }
    for link in hosts:
        typed = _host_lines(link, addresses[link.name], backend, segment, around)
        others = (line for name, line in known.items() if name != link.name)
        yield Batch(link.name, "ip", (*typed, *others))
    yield Batch(SWITCH, "ip", tuple(_switch_lines(links, backend)))
    shaping: dict[str, tuple[str, ...]] = {}
    for link in links:
        lower, upper = shaping_lines(link, backend, segment)
        for namespace, lines in ((link.namespace, lower), (SWITCH, upper)):
            shaping[namespace] = shaping.get(namespace, ()) + lines
    # The switches' come last, as they are the longest.
    switches = shaping.pop(SWITCH, ())
    for namespace, lines in (*shaping.items(), (SWITCH, switches)):
        if lines:
            yield Batch(namespace, "tc", lines)


def _host_lines(
    link: Link,
    address: IPv4Interface,
    backend: Backend,
    segment: int,
    around: Surroundings,
) -> Iterator[str]:
    upper = link.wire_ends[0] if link.wired(backend) else link.port
    route = f"route replace {NETWORK} dev eth0 proto kernel scope link src {address.ip}"
    if around.rto is not None:
        route += f" rto_min {around.rto * 1e3:.0f}ms"
    if around.congestion:
        # By the route: a namespace's own setting takes those alone that the
        # machine's administrator allows everybody.
        route += f" congctl {around.congestion}"
    yield "link set lo up"
    # Process 1 of the lab is in the namespace of the switches.
    far = link.card if link.below else upper
    card = _card_address(address)
    yield f"link add eth0 address {card} type veth peer name {far} netns 1"
    yield f"address add {address} dev eth0"
    if segment < SEGMENT:
        yield f"link set eth0 gso_max_size {segment}"
    yield "link set eth0 up"
    yield route


def _card_address(address: IPv4Interface) -> str:
    """Return an Ethernet address of the locally administered ones, from the IPv4's."""
    return ":".join(f"{byte:02x}" for byte in b"\x02\x00" + address.packed)


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
            if link.host:
                yield f"link set {link.card} master {link.below} up"
        yield from splice_lines(link) if wired else attach_lines(link)
