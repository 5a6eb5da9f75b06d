from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import TORCH

from cloudcoll.files.limits import STORED_HOSTS
from cloudcoll.launch import rendezvous
from cloudcoll.launch.rendezvous import Place, agree, decide, read_place


def together(places: list[Place], missing: int = 0) -> list[list[int]]:
    """Let all hosts agree over a real store, the last ones being absent."""
    from torch.distributed import HashStore, PrefixStore

    store, world = HashStore(), len(places) + missing
    with ThreadPoolExecutor(len(places)) as pool:
        asked = [
            pool.submit(agree, PrefixStore("round", store), rank, world, place)
            for rank, place in enumerate(places)
        ]
        return [one.result(timeout=120) for one in asked]


@TORCH.mark
def test_all_hosts_get_the_same_ranks() -> None:
    """Tests that hosts find the map's order over torch's own store."""
    places = [Place("m", position) for position in (2, 0, 3, 1)]
    assert together(places) == [[2, 0, 3, 1]] * 4


@TORCH.mark
def test_a_host_that_never_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that all keep c10d's order when one host knows nothing of ours."""
    monkeypatch.setattr(rendezvous, "EXCHANGE", timedelta(seconds=0.2))
    assert together([Place("m", 1), Place("m", 0)], missing=1) == [[0, 1, 2]] * 2


@TORCH.mark
def test_a_first_host_that_never_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the others keep c10d's order when nobody decides."""
    import torch

    monkeypatch.setattr(rendezvous, "EXCHANGE", timedelta(seconds=0.1))
    store = torch.distributed.HashStore()
    assert agree(store, 1, 2, Place("m", 0)) == [0, 1]


@TORCH.mark
@pytest.mark.parametrize("said", ["7", '["0", 1]', "[0, 2]", "[0"])
def test_a_first_host_that_says_nonsense(said: str) -> None:
    """Tests that the others keep c10d's order."""
    import torch

    store = torch.distributed.HashStore()
    store.set("ranks", said)
    assert agree(store, 1, 2, Place("m", 0)) == [0, 1]


@given(st.permutations(range(6)), st.integers(0, 6))
def test_order(positions: list[int], spares: int) -> None:
    """Tests that hosts of the map come in its order and spares after them."""
    places = [Place("m", p if p >= spares else None) for p in positions]
    ranks, reason = decide(places)
    assert (sorted(ranks), reason) == (list(range(6)), "")
    ordered = [places[ranks.index(new)].position for new in range(6)]
    assert ordered == [*range(spares, 6), *[None] * min(spares, 6)]
    kept = [rank for rank, place in zip(ranks, places, strict=True) if not place[1]]
    assert kept == sorted(kept)


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ([Place("m", 1), Place(), Place("m", 0)], "1 of 3 hosts have no rank map"),
        ([Place("m", 1), Place("n", 0)], "the hosts have different rank maps"),
    ],
)
def test_order_kept(places: list[Place], reason: str) -> None:
    """Tests that c10d's order is kept, and why, where maps are missing or differ."""
    assert decide(places) == (list(range(len(places))), reason)


@pytest.mark.parametrize(
    ("said", "place"),
    [
        (b'["m", 0]', Place("m", 0)),
        (b'["m", null]', Place("m")),
        (b'["m", %d]' % (STORED_HOSTS - 1), Place("m", STORED_HOSTS - 1)),
        (b'["m", %d]' % STORED_HOSTS, Place()),
        (b'["m", -1]', Place()),
        (b'["m", true]', Place()),
        (b'["m", "0"]', Place()),
        (b"[7, 0]", Place()),
        (b'["m"]', Place()),
        (b"7", Place()),
        (b"[", Place()),
    ],
)
def test_places_of_hosts_and_of_strangers(said: bytes, place: Place) -> None:
    """Tests that what no host says is no place in a map."""
    assert read_place(said) == place


@contextlib.contextmanager
def met(positions: Sequence[int]) -> Iterator[list[Any]]:
    """Let hosts with places in a map meet by real c10d; yield what each is told."""
    from torch.distributed import TCPStore
    from torch.distributed.elastic.rendezvous import RendezvousParameters

    count = len(positions)
    # Holds the port: c10d's first host gets this same server, of its own process.
    held = TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True)
    # c10d puts first who came first.
    hosts = [
        rendezvous.create(
            RendezvousParameters(
                backend="cloudcoll",
                endpoint=f"127.0.0.1:{held.port}",
                run_id="job",
                min_nodes=count,
                max_nodes=count,
                local_addr="127.0.0.1",
                is_host=number == 0,
            )
        )
        for number in range(count)
    ]
    stands = threading.local()

    def join(host: Any, position: int) -> Any:
        stands.place = Place("m", position)
        return host.next_rendezvous()

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(count) as pool:
        patch.setattr(rendezvous, "own_place", lambda: stands.place)
        yield list(pool.map(join, hosts, positions, timeout=120))
    for host in hosts:
        host.shutdown()


@pytest.mark.many
@TORCH.mark
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("positions", [(0, 1), (1, 0)])
def test_who_serves_the_store_of_the_job(
    positions: tuple[int, int], shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that the host of rank 0 does, unless torch was told that its ranks do."""
    from torch.distributed import TCPStore

    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", str(int(not shared)))
    with met(positions) as told:
        assert [(one.rank, one.world_size) for one in told] == [
            (p, 2) for p in positions
        ]
        first, second = (one.bootstrap_store_info for one in told)
        assert first == second
        assert first.master_addr == "127.0.0.1"
        assert first.master_port >= 1024
        if shared:
            client = TCPStore(
                "127.0.0.1",
                first.master_port,
                is_master=False,
                timeout=timedelta(seconds=30),
            )
            client.set("key", "value")
            assert client.get("key") == b"value"
        else:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", first.master_port), 10)


def test_torch_finds_it() -> None:
    """Tests that the entry point that torchrun looks for is this rendezvous."""
    (found,) = entry_points(group="torchrun.handlers", name="cloudcoll")
    assert found.load()() is rendezvous.create
