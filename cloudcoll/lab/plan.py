"""From a `LabSpec` to what is typed into ``ip`` and ``tc``: pure functions.

Every host and every group below the root has one link to the switch above. Its
lower end is ``eth0`` in the host or a port of the group's bridge, its upper end
a port of the bridge above; each end shapes what leaves through it:

    eth0 ======== p3 [bridge]                 a link without latency
    eth0 == x3 ~ wire ~ y3 == p3 [bridge]     and with, where netem is missing

The program ``wire`` carries packets between ``x3`` and ``y3`` and holds each
for the time asked. All ends but ``eth0`` are in the namespace of the switches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Literal

from cloudcoll.lab.spec import GroupSpec, LabSpec

NETWORK = IPv4Network("10.77.0.0/16")
HEAD = "head"
SWITCH = ""
"""Name of the namespace that holds every bridge: no host is called so."""
BURST = 128 * 1024
"""Bytes a token bucket lets through at once: at least one 64 KiB TCP segment
with its headers, or tbf would cut every segment into packets."""
QUEUE = 0.03
"""Seconds a packet may wait at a full link before it is dropped: deep enough
for one TCP stream to fill the link, small enough to stay a switch's buffer."""

Backend = Literal["netem", "wire"]


@dataclass(frozen=True)
class Link:
    """The link of one host or group to the bridge above.

    Attributes
    ----------
    name : str
        The host or group below.
    number : int
        Unique; names the interfaces.
    namespace : str
        Where the lower end is: the host's, or `SWITCH`.
    bridge : str
        The bridge above.
    below : str
        The bridge below, empty for a host.
    up, down : float
        Rates in bytes/s, away from and towards what is below.
    delay : float
        Seconds added in each direction.
    """

    name: str
    number: int
    namespace: str
    bridge: str
    below: str
    up: float
    down: float
    delay: float

    @property
    def lower(self) -> str:
        """Interface at the lower end."""
        return f"u{self.number}" if self.below else "eth0"

    @property
    def port(self) -> str:
        """Interface at the upper end."""
        return f"p{self.number}"

    @property
    def wire_ends(self) -> tuple[str, str]:
        """Interfaces between which a wire stands, lower first."""
        return f"x{self.number}", f"y{self.number}"


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
    wired = tuple(link for link in links if backend == "wire" and link.delay)
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
        upper = link.wire_ends[0] if _is_wired(link, backend) else link.port
        yield Batch(
            link.namespace,
            "ip",
            (
                "link set lo up",
                # Process 1 of the lab is in the namespace of the switches.
                f"link add eth0 type veth peer name {upper} netns 1",
                f"address add {addresses[link.name]} dev eth0",
                "link set eth0 up",
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
        wired = _is_wired(link, backend)
        if link.below:
            upper = link.wire_ends[0] if wired else link.port
            yield f"link add {link.lower} type veth peer name {upper}"
            yield f"link set {link.lower} master {link.below} up"
        yield from splice_lines(link) if wired else attach_lines(link)


def attach_lines(link: Link) -> tuple[str, ...]:
    """Return ``ip`` lines that attach the upper end of `link` to its bridge."""
    return (f"link set {link.port} master {link.bridge} up",)


def splice_lines(link: Link) -> tuple[str, ...]:
    """Return ``ip`` lines for the second half of a link with a wire in it."""
    lower, upper = link.wire_ends
    return (
        f"link add {link.port} type veth peer name {upper}",
        f"link set {lower} up",
        f"link set {upper} up",
        *attach_lines(link),
    )


def qdisc_lines(
    device: str, rate: float, backend: Backend, delay: float = 0.0, loss: float = 0.0
) -> tuple[str, ...]:
    """Return ``tc`` lines for what leaves through `device`.

    Parameters
    ----------
    device : str
        Interface.
    rate : float
        Bytes/s.
    backend : str
        With ``wire``, `delay` and `loss` are the wire's job, not that of
        ``tc``.
    delay : float
        Seconds.
    loss : float
        Share of packets dropped, 0 to 1.
    """
    lines = []
    parent = "root"
    if backend == "netem" and (delay or loss):
        # The outer qdisc delays and the inner shapes, so that the bytes that
        # may queue stay bounded by tbf and not by netem's count of packets.
        lines.append(
            f"qdisc add dev {device} root handle 1: netem limit 100000 "
            f"delay {delay * 1e6:.1f}us loss {loss * 100:.4f}%"
        )
        parent = "parent 1:1"
    if math.isfinite(rate):
        lines.append(
            f"qdisc add dev {device} {parent} handle 10: tbf rate "
            f"{rate * 8:.0f}bit burst {BURST} latency {QUEUE * 1e3:.0f}ms"
        )
    return tuple(lines)


def _is_wired(link: Link, backend: Backend) -> bool:
    return backend == "wire" and link.delay > 0
