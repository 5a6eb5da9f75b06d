"""What a lab is like, in words: shown, and kept with what was measured in it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from cloudcoll.files import LAB_CHARACTER, write_atomic
from cloudcoll.lab.link import Link
from cloudcoll.lab.spec_text import queue_text
from cloudcoll.lab.state import Lab


def character(lab: Lab) -> dict[str, Any]:
    """Return what a lab is like: JSON values, without hosts' names.

    Returns
    -------
    dict
        ``preset`` (empty: none); ``racks``, the hosts in each; ``cards`` and
        ``uplinks``, each kind of link that there is, in words; ``rto_s`` (None:
        the kernel's own), ``congestion`` (empty: this machine's), ``hogs``,
        ``traffic``, and ``delayed_by``.
    """
    around = lab.surroundings
    names = {host.name for host in lab.hosts}
    cards = [link for link in lab.links if link.name in names]
    uplinks = [link for link in lab.links if not link.host]
    return {
        "preset": around.preset,
        "racks": [len(group) for group in lab.groups],
        "cards": _kinds(cards),
        "uplinks": _kinds(uplinks),
        "rto_s": around.rto,
        "congestion": around.congestion,
        "hogs": around.hogs,
        "traffic": [
            f"{one.source} to {one.destination}, {rate_text(one.rate)}"
            for one in around.traffic
        ],
        "delayed_by": lab.backend,
    }


def keep_character(lab: Lab) -> None:
    """Write it where probes and benches in the lab look for it."""
    text = json.dumps(character(lab), indent=1)
    write_atomic(lab.directory / LAB_CHARACTER, text)


def character_lines(lab: Lab) -> list[str]:
    """Return what a lab is like as lines, each with its subject first."""
    told = character(lab)
    rto = told["rto_s"]
    least = "the kernel's" if rto is None else f"{rto * 1e3:g} ms"
    lines = [
        f"preset    {told['preset'] or '-'}",
        *(f"card      {kind}" for kind in told["cards"]),
        *(f"uplink    {kind}" for kind in told["uplinks"]),
        f"TCP       {told['congestion'] or 'the congestion control of this machine'}, "
        f"least timeout {least}",
        *(f"traffic   {one}" for one in told["traffic"]),
    ]
    if lab.hogged:
        lines.append(f"CPU hogs  {' '.join(lab.hogged)}")
    return lines


def rates_text(link: Link) -> str:
    """Return the rates of a link's two directions."""
    if link.up == link.down:
        return rate_text(link.up)
    return f"{rate_text(link.up)} up, {rate_text(link.down)} down"


def rate_text(rate: float) -> str:
    """Return a rate in bytes/s as networks count it."""
    return f"{rate * 8 / 1e6:g} Mbit/s" if math.isfinite(rate) else "unlimited"


def _kinds(links: Iterable[Link]) -> list[str]:
    return list(dict.fromkeys(_kind(link) for link in links))


def _kind(link: Link) -> str:
    shape = link.shape
    parts = [rates_text(link)]
    if math.isfinite(min(link.up, link.down)):
        parts.append(f"queue: {queue_text(shape.queue)}")
        if link.host and shape.backpressure and shape.queue.kind == "time":
            parts.append("seen by the host (backpressure)")
    if link.delay:
        parts.append(f"{link.delay * 1e6:g} us each way")
    if shape.jitter:
        parts.append(f"jitter up to {shape.jitter * 1e6:g} us")
    return ", ".join(parts)
