"""A rendezvous for torchrun that orders the hosts by a rank map.

``--rdzv-backend=cloudcoll`` finds it under torch's own group of entry points,
``torchrun.handlers`` (``torch/distributed/elastic/rendezvous/registry.py``, torch
2.6 to 2.13), and only public names of torch are used. Who takes part, and
every restart, is c10d's to settle. Then the hosts tell each other through its
store where they stand in the map, and the one that c10d put first decides for
all of them: they never disagree, whatever each could read.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from cloudcoll.errors import CloudcollError
from cloudcoll.files import NOT_JSON, strict_json
from cloudcoll.files.limits import STORED_HOSTS
from cloudcoll.launch.own_host import own_host
from cloudcoll.launch.torchrun import BACKEND
from cloudcoll.plain import say

EXCHANGE = timedelta(seconds=30)
"""Hosts that joined have this long to say where they stand."""


class Place(NamedTuple):
    """Where a host stands: in which map (empty: it has none), and its index."""

    digest: str = ""
    position: int | None = None


def handler() -> Callable[[Any], MapRendezvous]:
    """Return the function that makes a rendezvous: what torch's registry asks for."""
    return create


def create(params: Any) -> MapRendezvous:
    """Return c10d's rendezvous for `params` (RendezvousParameters), reordered."""
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import (
        create_backend,
    )
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    backend, store = create_backend(params)
    address = params.local_addr or socket.getfqdn()
    return MapRendezvous(create_handler(store, backend, params), address)


class MapRendezvous:
    """A RendezvousHandler: c10d's own, with other ranks; `address` is this host's."""

    def __init__(self, inner: Any, address: str) -> None:
        self._inner = inner
        self._address = address
        self._server: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_backend(self) -> str:
        """Return the name under which torchrun knows this rendezvous."""
        return BACKEND

    def next_rendezvous(self) -> Any:
        """Join the next round and return its RendezvousInfo, ranks by the map."""
        from torch.distributed import PrefixStore
        from torch.distributed.elastic.rendezvous import RendezvousInfo

        info = self._inner.next_rendezvous()
        store = PrefixStore(BACKEND, info.store)
        ranks = agree(store, info.rank, info.world_size, own_place())
        bootstrap = info.bootstrap_store_info
        if ranks[0] != 0:
            bootstrap = self._bootstrap(store, ranks[info.rank])
        return RendezvousInfo(info.store, ranks[info.rank], info.world_size, bootstrap)

    def _bootstrap(self, store: Any, rank: int) -> Any:
        """Return where the job's store is when another host becomes the first.

        As in c10d, the first host's agent serves it, unless that was turned off.
        """
        from torch.distributed import TCPStore
        from torch.distributed.elastic.rendezvous import RendezvousStoreInfo

        port = None
        if rank == 0 and self._inner.use_agent_store:
            self._server = TCPStore(self._address, 0, is_master=True, multi_tenant=True)
            port = self._server.port
        return RendezvousStoreInfo.build(
            rank, store, local_addr=self._address, server_port=port
        )


def own_place() -> Place:
    """Return where this host stands, with one line if it has no readable map."""
    try:
        host = own_host(None, os.environ)
    except CloudcollError as error:
        say(str(error))
        return Place()
    digest = hashlib.sha256(json.dumps(host.rank_map.order).encode()).hexdigest()
    try:
        return Place(digest, host.position)
    except CloudcollError:
        # A spare that took the place of another host: it comes last.
        return Place(digest)


def agree(store: Any, rank: int, world: int, place: Place) -> list[int]:
    """Return the new rank of every host, by the rank that c10d gave it.

    The store is of this round alone; `rank` and `world` are as c10d has them.
    """
    from torch.distributed import DistStoreError

    store.set(f"place/{rank}", json.dumps(place))
    if rank == 0:
        keys = [f"place/{other}" for other in range(world)]
        try:
            store.wait(keys, EXCHANGE)
            ranks, reason = decide([read_place(store.get(k)) for k in keys])
        except DistStoreError:
            ranks, reason = list(range(world)), "not every host came through cloudcoll"
        if reason:
            say(f"{reason}: torchrun's own order of hosts is kept")
        store.set("ranks", json.dumps(ranks))
    try:
        # The first host may use up its time, and then has to be heard.
        store.wait(["ranks"], 2 * EXCHANGE)
    except DistStoreError:
        return list(range(world))
    return _read_ranks(store.get("ranks"), world)


def read_place(said: bytes) -> Place:
    """Return a place as a host wrote it into the store, or some stranger."""
    try:
        digest, position = strict_json(said)
    except (*NOT_JSON, TypeError):
        return Place()
    whole = position is None or (type(position) is int and 0 <= position < STORED_HOSTS)
    return Place(digest, position) if isinstance(digest, str) and whole else Place()


def _read_ranks(said: bytes, world: int) -> list[int]:
    """Return the new ranks of all hosts; the old ones if they are none."""
    kept = list(range(world))
    try:
        ranks = strict_json(said)
        return ranks if sorted(ranks) == kept else kept
    except (*NOT_JSON, TypeError):
        return kept


def decide(places: Sequence[Place]) -> tuple[list[int], str]:
    """Return the new rank of each host, and why it is the old one if it is.

    Hosts of the map come first, in its order; ties and the others keep theirs.
    """
    kept = list(range(len(places)))
    without = sum(not place.digest for place in places)
    if without:
        return kept, f"{without} of {len(places)} hosts have no rank map"
    if len({place.digest for place in places}) > 1:
        return kept, "the hosts have different rank maps"
    last = max((p.position for p in places if p.position is not None), default=0) + 1
    order = sorted(
        kept,
        key=lambda old: last if (at := places[old].position) is None else at,
    )
    return [order.index(old) for old in kept], ""
