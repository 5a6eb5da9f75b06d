"""Orders for torch's groups and meshes: for training scripts that can add a line.

No rank moves to another host: what changes is which ranks make a group, and in which
order they stand in it. All ranks call these functions together, as they do torch's
own, and rank 0 decides for all. It reads a rank map or a snapshot, tells the others
through torch's store which hosts there are, hears which of them each is on, and
writes the order. They get the same one or raise: with two different ones a job would
hang. Where rank 0 can't find one, the order is the one given, and one line says why.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudcoll.errors import LaunchError, UsageError
from cloudcoll.files import NOT_JSON, strict_json
from cloudcoll.hosts import Host
from cloudcoll.launch.own_host import MAP_VARIABLE, own_name, own_places
from cloudcoll.libraries.torch import way_of
from cloudcoll.plain import say
from cloudcoll.rankmap import RankMap, load_rankmap
from cloudcoll.work import Reporter

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from cloudcoll.measured.snapshot import NetworkSnapshot

__all__ = ["init_device_mesh", "order"]

EXCHANGE = timedelta(seconds=30)
"""Ranks have this long after rank 0 to say which host they are on."""

AXES = {
    **{axis: axis for axis in ("tp", "cp", "pp", "dp")},
    **dict.fromkeys(("ddp", "fsdp", "replicate", "shard"), "dp"),
    **dict.fromkeys(("dp_replicate", "dp_shard"), "dp"),
}
"""Dimension of a mesh, as people call it -> how its ranks split the job."""

_CALLS = itertools.count()
"""Each call has keys of its own in the store."""

Search = Callable[["NetworkSnapshot", Sequence[Host]], RankMap]


def order(
    ranks: Sequence[int] | None = None,
    *,
    source: RankMap | NetworkSnapshot | str | os.PathLike[str] | None = None,
) -> list[int]:
    """Return the ranks of a group in the best order, the same on all ranks.

    Every rank of the world calls it, also those that are not in the group; then
    ``new_group(order, sort_ranks=False)`` makes a group in which they stand so, from
    torch 2.13 on.

    Parameters
    ----------
    ranks : sequence of int, optional
        Global ranks of the group, in the order given; all if not given.
    source : RankMap, NetworkSnapshot or path of one, optional
        Only rank 0's counts. Ranks follow the hosts of a map; for a snapshot the
        order is found in which the group's allreduce is fastest. The map that
        ``CLOUDCOLL_MAP`` names if not given.

    Returns
    -------
    list of int
        Ranks of one host stay side by side. The order given where there is no
        usable source, or no better one; a line of rank 0's says what is wrong.

    Raises
    ------
    UsageError
        There is no process group, or `ranks` are not ranks of it.
    LaunchError
        Rank 0 decided nothing within the time of torch's store, or for other ranks.
    """
    world = _world_size()
    asked = list(range(world) if ranks is None else ranks)
    if len(set(asked)) != len(asked) or not set(asked) <= set(range(world)):
        raise UsageError(f"{asked[:8]} are not different ranks of {world}")
    return _agreed(asked, source, _by_allreduce)


def init_device_mesh(
    device_type: str,
    shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str],
    source: RankMap | NetworkSnapshot | str | os.PathLike[str] | None = None,
    workload: str | None = None,
    ranks: Sequence[int] | None = None,
) -> DeviceMesh:
    """Return a DeviceMesh whose groups suit the network, as torch's own function.

    Its dimensions are filled with ranks in the best order. Where torch sorts all
    groups (before 2.13), and where no order is better, it is torch's plain mesh.

    Parameters
    ----------
    device_type : str
        ``cpu`` or ``cuda``.
    shape : sequence of int
        As many ranks as the world has; the last dimension has neighbours.
    mesh_dim_names : sequence of str
        Of each dimension. For a snapshot they say what is sent: see `AXES`.
    source : RankMap, NetworkSnapshot or path of one, optional
        Only rank 0's counts; see `order`. For a snapshot the order is found in which
        a step of the job is fastest.
    workload : str, optional
        What a step sends; see `cloudcoll.work.sent`. By default what Megatron sends
        in a job that is split so.
    ranks : sequence of int, optional
        The order itself, the same on all ranks, such as of another mesh of this job
        (``mesh.mesh.flatten().tolist()``); nothing is asked.

    Raises
    ------
    UsageError
        There is no process group, or the shape or the ranks are not of its size.
        Also when a mesh in an order of its own is flattened (``_flatten``,
        ``_unflatten``) in a way in which torch would sort the ranks: make a second
        mesh with the same `ranks` instead.
    LaunchError
        As of `order`.
    """
    import torch
    from torch.distributed import device_mesh

    shape, names, world = tuple(shape), tuple(mesh_dim_names), _world_size()
    _check_mesh(shape, names, world, ranks)
    given = list(range(world))
    found = given if ranks is None else list(ranks)
    if not _keeps_order():
        found = given
        if torch.distributed.get_rank() == 0:
            say(f"torch {torch.__version__} sorts groups: ranks are in the order given")
    elif ranks is None:
        library = "gloo" if device_type == "cpu" else _library()
        search = partial(_by_split, library, shape, names, workload)
        found = _agreed(given, source, search)
    if found == given:
        return device_mesh.init_device_mesh(device_type, shape, mesh_dim_names=names)
    mesh = torch.tensor(found, dtype=torch.int).reshape(shape)
    groups = [_own_group(mesh, at, name) for at, name in enumerate(names)]
    made = device_mesh.DeviceMesh.from_group(
        groups, device_type, mesh, mesh_dim_names=names
    )
    made._pg_registry = _Registry(made._pg_registry, found)
    return made


def _check_mesh(
    shape: tuple[int, ...],
    names: tuple[str, ...],
    world: int,
    ranks: Sequence[int] | None,
) -> None:
    if len(shape) != len({*names}) or math.prod(shape) != world or not shape:
        raise UsageError(
            f"the mesh {shape} needs as many names as dimensions, not "
            f"({', '.join(names)}), and as many places as there are ranks: {world}"
        )
    if ranks is not None and sorted(ranks) != list(range(world)):
        raise UsageError(f"{list(ranks)[:8]} are not all ranks of {world}, each once")


class _Registry(dict[str, Any]):
    """The groups of a mesh, which takes none whose ranks are in another order.

    A rank's shard would be the one of its place in the mesh, and what is gathered
    would be put together by its place in the group, without an error.
    """

    def __init__(self, groups: Mapping[str, Any], ranks: Sequence[int]) -> None:
        super().__init__(groups)
        self._place = {rank: place for place, rank in enumerate(ranks)}

    def __setitem__(self, name: str, group: Any) -> None:
        from torch.distributed import get_process_group_ranks

        ranks = get_process_group_ranks(group)
        if ranks != sorted(ranks, key=self._place.__getitem__):
            raise UsageError(
                "torch sorts the ranks of a dimension that is made by flattening, and "
                "this mesh has another order: make a second mesh of that shape with "
                "cloudcoll.torch.init_device_mesh(ranks=mesh.mesh.flatten().tolist())"
            )
        super().__setitem__(name, group)


def _own_group(mesh: Any, dimension: int, name: str) -> Any:
    """Return this rank's group of a dimension; all ranks make all of them."""
    import torch.distributed as dist

    rows = mesh.movedim(dimension, -1).reshape(-1, mesh.shape[dimension]).tolist()
    made = [
        dist.new_group(row, sort_ranks=False, group_desc=f"mesh_{name}") for row in rows
    ]
    (own,) = (
        group for row, group in zip(rows, made, strict=True) if dist.get_rank() in row
    )
    return own


def _keeps_order() -> bool:
    """Return whether groups can be in an order, and a mesh guard it, in this torch."""
    import torch
    from torch.distributed import device_mesh, new_group

    version = tuple(map(int, torch.__version__.split(".")[:2]))
    return (
        way_of(version).groups
        and "sort_ranks" in inspect.signature(new_group).parameters
        and "_pg_registry" in device_mesh.DeviceMesh.__annotations__
    )


def _world_size() -> int:
    """Return how many ranks there are, if torch has a process group yet."""
    import torch.distributed as dist

    if not dist.is_initialized():
        raise UsageError("call torch.distributed.init_process_group first")
    return int(dist.get_world_size())


def _library() -> str:
    """Return whose collectives the world runs, as `cloudcoll.libraries` has it."""
    import torch.distributed as dist

    return "nccl" if "nccl" in str(dist.get_backend_config()) else "gloo"


class _Lines(Reporter):
    """Prints what the search has to say."""

    def say(self, line: str) -> None:
        say(line)


def _by_allreduce(snapshot: NetworkSnapshot, hosts: Sequence[Host]) -> RankMap:
    """Return the order of hosts in which an allreduce of all their ranks is fastest."""
    from cloudcoll.work.solve import order_for

    library = _library()
    return order_for(
        snapshot, hosts, library=library, free_rank0=True, reporter=_Lines()
    )


def _by_split(
    library: str,
    shape: Sequence[int],
    names: Sequence[str],
    workload: str | None,
    snapshot: NetworkSnapshot,
    hosts: Sequence[Host],
) -> RankMap:
    """Return the order of hosts in which a step of a job is fastest, split so."""
    from cloudcoll.work.solve import order_for

    return order_for(
        snapshot,
        hosts,
        workload=workload or f"megatron:library={library}",
        parallel=_parallel(shape, names),
        free_rank0=True,
        reporter=_Lines(),
    )


def _parallel(shape: Sequence[int], names: Sequence[str]) -> str:
    """Return a mesh as ``--parallel`` has it, the dimension of neighbours first."""
    split = [(_axis(name), size) for name, size in zip(names, shape, strict=True)]
    used = [one for one in reversed(split) if one[1] > 1]
    axes = [axis for axis, _ in itertools.groupby(axis for axis, _ in used)]
    if len({*axes}) != len(axes):
        raise UsageError(f"the mesh {', '.join(names)} has another between two of dp")
    sizes = {axis: math.prod(s for a, s in used if a == axis) for axis in axes}
    words = [f"{axis}={size}" for axis, size in sizes.items()]
    return ",".join([*words, f"order={'-'.join(axes)}"])


def _axis(name: str) -> str:
    if name not in AXES:
        raise UsageError(
            f"nobody knows what dimension {name!r} sends (known: {', '.join(AXES)})"
        )
    return AXES[name]


def _agreed(asked: Sequence[int], source: Any, search: Search) -> list[int]:
    """Return some ranks in the order that rank 0 finds, the same on all ranks."""
    import torch.distributed as dist

    default = dist.group.WORLD.get_group_store()
    store = dist.PrefixStore(f"cloudcoll/order/{next(_CALLS)}", default)
    rank = dist.get_rank()
    try:
        if rank == 0:
            store.set("order", json.dumps(_decided(store, asked, source, search)))
        else:
            place = _own_place(*_read_hosts(store.get("hosts")))
            store.set(f"place/{rank}", json.dumps(place))
        agreed = _read_ranks(store.get("order"))
    except RuntimeError as error:  # some stores raise no DistStoreError
        raise LaunchError(f"rank {rank} heard of no order: {error}") from None
    if sorted(agreed) != sorted(asked):
        raise LaunchError(f"rank 0 asked for the order of other ranks than rank {rank}")
    return agreed


def _decided(
    store: Any, asked: Sequence[int], source: Any, search: Search
) -> list[int]:
    """Return the order that rank 0 finds; the one given, with a line, if it can't."""
    try:
        return _found(store, asked, source, search)
    except Exception as error:  # without CloudColl the job would run
        say(f"{error or type(error).__name__}: ranks are in the order given")
        # The others may wait for the hosts still.
        store.set("hosts", json.dumps([[], {}]))
        return list(asked)


def _found(store: Any, asked: Sequence[int], source: Any, search: Search) -> list[int]:
    """Return the order that rank 0 finds; raise whatever keeps it from that."""
    known = _known(source)
    hosts = known.order if isinstance(known, RankMap) else known.names
    store.set("hosts", json.dumps([hosts, dict(known.addresses)]))
    places = _places(store, _own_place(hosts, known.addresses), len(hosts))
    on = {rank: place for rank in asked if (place := places[rank]) is not None}
    if len(on) < len(asked):
        lost = len(asked) - len(on)
        raise LaunchError(f"{lost} of {len(asked)} ranks are on none of the hosts")
    if isinstance(known, RankMap):
        return sorted(asked, key=on.__getitem__)
    counts = Counter(on[rank] for rank in asked)
    if len(counts) < 2:
        return list(asked)
    if [on[rank] for rank in asked] != list(counts.elements()):
        raise LaunchError("ranks are dealt over the hosts in turn")
    given = [Host(hosts[place], slots=count) for place, count in counts.items()]
    best = search(known, given).order
    return sorted(asked, key=lambda rank: best.index(hosts[on[rank]]))


def _known(source: Any) -> RankMap | NetworkSnapshot:
    """Return the map or the snapshot that an order comes from."""
    source = source or os.environ.get(MAP_VARIABLE)
    if not source:
        raise LaunchError(f"no rank map: name it with source= or {MAP_VARIABLE}")
    if not isinstance(source, (str, os.PathLike)):
        found: RankMap | NetworkSnapshot = source
        return found
    from cloudcoll.measured.snapshot import load_snapshot

    try:
        with open(source, "rb") as file:
            is_map = file.read(1) == b"{"
    except OSError as error:
        raise LaunchError(f"cannot read {source}: {error.strerror}") from None
    return load_rankmap(source) if is_map else load_snapshot(source)


def _own_place(hosts: Sequence[str], addresses: Mapping[str, str]) -> int | None:
    """Return which of the hosts this is; None if it is none, or could be several."""
    name, given = own_name(os.environ)
    found = own_places(hosts, name, addresses, given=given)
    return found[0] if len(found) == 1 else None


def _places(store: Any, own: int | None, hosts: int) -> list[int | None]:
    """Return which of so many hosts each rank is on, if all say so; rank 0 on `own`."""
    import torch.distributed as dist

    others = [f"place/{rank}" for rank in range(1, dist.get_world_size())]
    try:
        store.wait(others, EXCHANGE)
    except RuntimeError:
        raise LaunchError("not every rank said in time on which host it is") from None
    return [own, *(_read_place(store.get(key), hosts) for key in others)]


def _read_hosts(said: bytes) -> tuple[list[str], dict[str, str]]:
    """Return hosts and addresses as rank 0 wrote them; none if that makes no sense."""
    try:
        hosts, addresses = strict_json(said)
        texts = [*hosts, *addresses, *addresses.values()]
    except (*NOT_JSON, TypeError, AttributeError):
        return [], {}
    right = isinstance(hosts, list) and all(isinstance(text, str) for text in texts)
    return (hosts, addresses) if right else ([], {})


def _read_place(said: bytes, hosts: int) -> int | None:
    """Return the number of a host as a rank wrote it, None for no host."""
    try:
        place = strict_json(said)
    except NOT_JSON:
        return None
    return place if type(place) is int and 0 <= place < hosts else None


def _read_ranks(said: bytes) -> list[int]:
    """Return ranks as rank 0 wrote them; none if that makes no sense."""
    try:
        ranks = strict_json(said)
    except NOT_JSON:
        return []
    whole = isinstance(ranks, list) and all(type(rank) is int for rank in ranks)
    return ranks if whole else []
