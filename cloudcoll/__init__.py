"""Measure a cloud network, reorder ranks to follow it, prove the gain.

The commands as functions: `measure` is ``cloudcoll probe``, `order_for` is ``solve``,
`start` is ``run`` and `compare` is ``bench``. A `Reporter` hears what they have to say.

Examples
--------
>>> import cloudcoll
>>> snapshot = cloudcoll.measure("127.0.0.[1-2]", via="local", mode="quick")
>>> best = cloudcoll.order_for(snapshot, collective="allreduce", size=1 << 20)
>>> sorted(best.order)
['127.0.0.1', '127.0.0.2']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudcoll.hosts import Host as Host
    from cloudcoll.hosts import read_hosts as read_hosts
    from cloudcoll.measured.snapshot import NetworkSnapshot as NetworkSnapshot
    from cloudcoll.measured.snapshot import load_snapshot as load_snapshot
    from cloudcoll.network.tree import Fabric as Fabric
    from cloudcoll.rankmap import RankMap as RankMap
    from cloudcoll.rankmap import load_rankmap as load_rankmap
    from cloudcoll.work import Reporter as Reporter
    from cloudcoll.work.compare import compare as compare
    from cloudcoll.work.measure import measure as measure
    from cloudcoll.work.request import CompareOptions as CompareOptions
    from cloudcoll.work.request import OrderRequest as OrderRequest
    from cloudcoll.work.solve import order_for as order_for
    from cloudcoll.work.start import StartOptions as StartOptions
    from cloudcoll.work.start import start as start

__version__ = "0.1.0"

__all__ = [
    "CompareOptions",
    "Fabric",
    "Host",
    "NetworkSnapshot",
    "OrderRequest",
    "RankMap",
    "Reporter",
    "StartOptions",
    "compare",
    "load_rankmap",
    "load_snapshot",
    "measure",
    "order_for",
    "read_hosts",
    "start",
]

_HOMES = {
    "CompareOptions": "work.request",
    "Fabric": "network.tree",
    "Host": "hosts",
    "NetworkSnapshot": "measured.snapshot",
    "OrderRequest": "work.request",
    "RankMap": "rankmap",
    "Reporter": "work",
    "StartOptions": "work.start",
    "compare": "work.compare",
    "load_rankmap": "rankmap",
    "load_snapshot": "measured.snapshot",
    "measure": "work.measure",
    "order_for": "work.solve",
    "read_hosts": "hosts",
    "start": "work.start",
}
"""Where each public name lives. They are imported when they are first asked for, so
that ``cloudcoll --help`` and hosts that have no NumPy load none of them."""


def __getattr__(name: str) -> Any:
    """Return a public name, importing its module now."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
