"""Bring the agents of a probe to where they only wait for their rounds."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from cloudcoll.errors import UnusableError
from cloudcoll.hosts import Host
from cloudcoll.probe.agents import Agents
from cloudcoll.probe.frames import Frame
from cloudcoll.probe.plan import ProbePlan

ANSWER_SECONDS = 10.0
"""How long an agent may take for an answer that needs no measurement."""
SPARE_LIFE_SECONDS = 60.0
"""What an agent may live longer than the plan takes, if its driver hangs."""


def prepare(
    agents: Agents, hosts: tuple[Host, ...], plan: ProbePlan, force: bool
) -> dict[int, Frame]:
    """Bring the agents to where they only wait for `go`; return what each is.

    That is its hello, the ``address`` by which another host reaches it, and, if it
    could not be locked where all probes of its user look, why it is ``unlocked``.
    """
    hello = agents.start()
    need_two(agents)
    key, parameters = secrets.token_hex(16), plan.parameters()
    for position in agents.alive:
        agents.send(
            position,
            "prepare",
            **parameters,
            position=position,
            key=key,
            address=hosts[position].address,
            life_s=plan.most_seconds + SPARE_LIFE_SECONDS,
            force=force,
        )
    ports = agents.collect("ports", ANSWER_SECONDS)
    _refuse_busy(ports, hosts)
    peers = [
        [host.address, ports[i]["udp"], ports[i]["tcp"]] if i in ports else None
        for i, host in enumerate(hosts)
    ]
    agents.send_all("peers", peers=peers)
    ready = agents.collect("ready", ANSWER_SECONDS)
    for position, host in enumerate(hosts):
        others = [frame for i, frame in ready.items() if i != position]
        if others and all(position in frame["unknown"] for frame in others):
            reason = f"{host.address} does not resolve on the other hosts"
            agents.dismiss(position, reason)
    need_two(agents)
    return {
        i: {**fact, **_address(i, peers, ready), **_unlocked(ports.get(i, {}))}
        for i, fact in hello.items()
    }


def _address(
    position: int, peers: Sequence[object], ready: Mapping[int, Frame]
) -> dict[str, str]:
    """Return the address by which the host before this one reaches it, if known."""
    around = [*range(position - 1, -1, -1), *range(len(peers) - 1, position, -1)]
    before = next((i for i in around if peers[i]), -1)
    if before not in ready or position in ready[before]["unknown"]:
        return {}
    return {"address": ready[before]["next"]}


def _unlocked(ports: Frame) -> dict[str, str]:
    """Return why a host has no lock, if it has none."""
    return {"unlocked": ports["unlocked"]} if ports.get("unlocked") else {}


def _refuse_busy(ports: dict[int, Frame], hosts: tuple[Host, ...]) -> None:
    for position, frame in sorted(ports.items()):
        if frame["type"] == "busy":
            raise UnusableError(
                f"{hosts[position].name} is being probed by process {frame['pid']} "
                f"since {frame['since']}: wait for it, or use --force"
            )


def need_two(agents: Agents) -> None:
    """Raise UnusableError, which says why, unless two agents are left."""
    if len(agents.alive) >= 2:
        return
    reasons = [
        f"{agent.name}: {agent.failed}" for agent in agents.agents if agent.failed
    ]
    shown = "; ".join(reasons[:5]) + ("; ..." if len(reasons) > 5 else "")
    raise UnusableError(
        f"{len(agents.alive)} of {len(agents.agents)} hosts could be probed, two are "
        f"needed ({shown})"
    )
