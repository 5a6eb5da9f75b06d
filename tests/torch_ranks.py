"""Four ranks of Gloo that try `cloudcoll.torch`; writes what each saw as JSON.

``python torch_ranks.py FOLDER``: in it are ``map.json`` and ``racks.snap``, both of
the hosts vm-1 to vm-4. All ranks are children of one process: torch is imported once.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch._dynamo  # DTensor would import it in each rank
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import cloudcoll.torch
from cloudcoll.errors import CloudcollError

SIZE = 4
LIFE = timedelta(seconds=60)
PERMUTED = [2, 0, 3, 1]
CHECKS: dict[str, Callable[[Path], Any]] = {}


def check(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
    CHECKS[function.__name__] = function
    return function


def on_host(name: str) -> None:
    os.environ["CLOUDCOLL_HOST"] = name


def only(rank: int, value: Any) -> Any:
    """Return a value on one rank, elsewhere what nobody may read."""
    return value if dist.get_rank() == rank else "/nowhere"


@check
def by_map(folder: Path) -> Any:
    on_host(f"vm-{dist.get_rank() + 1}")
    source = only(0, folder / "map.json")
    return [cloudcoll.torch.order(r, source=source) for r in (None, [0, 1, 2], [1, 3])]


@check
def by_named_map(folder: Path) -> Any:
    os.environ["CLOUDCOLL_MAP"] = str(only(0, folder / "map.json"))
    found = cloudcoll.torch.order()
    del os.environ["CLOUDCOLL_MAP"]
    return found


@check
def several_on_a_host(folder: Path) -> Any:
    on_host(f"vm-{dist.get_rank() % 2 + 1}")
    maps, racks = folder / "map.json", folder / "racks.snap"
    return [cloudcoll.torch.order(source=source) for source in (maps, racks)]


@check
def by_snapshot(folder: Path) -> Any:
    """Return the order of ranks on four hosts, on two and on one."""
    rank, found = dist.get_rank(), []
    for host in (rank, rank // 2, 0):
        on_host(f"vm-{host + 1}")
        found.append(cloudcoll.torch.order(source=only(0, folder / "racks.snap")))
    return found


@check
def without_source(folder: Path) -> Any:
    return cloudcoll.torch.order([3, 0])


@check
def damaged(folder: Path) -> Any:
    return cloudcoll.torch.order(source=only(0, folder / "damaged.snap"))


@check
def stranger(folder: Path) -> Any:
    on_host("elsewhere" if dist.get_rank() == 2 else f"vm-{dist.get_rank() + 1}")
    source = folder / "map.json"
    return [cloudcoll.torch.order(r, source=source) for r in ([3, 2, 1, 0], [3, 1])]


@check
def late(folder: Path) -> Any:
    on_host(f"vm-{dist.get_rank() + 1}")
    cloudcoll.torch.EXCHANGE = timedelta(seconds=0.2)
    store = dist.group.WORLD.get_group_store()
    if dist.get_rank() == 3:
        store.wait(["decided"])
    found = cloudcoll.torch.order(source=folder / "map.json")
    store.set("decided", "")
    cloudcoll.torch.EXCHANGE = LIFE
    return found


@check
def other_ranks(folder: Path) -> Any:
    asked = [0, 1, 2, 3] if dist.get_rank() < 2 else [1, 0]
    return cloudcoll.torch.order(asked, source=folder / "map.json")


@check
def no_ranks(folder: Path) -> Any:
    return cloudcoll.torch.order([0, 4])


def seen_of(mesh: DeviceMesh) -> Any:
    return {
        "mesh": mesh.mesh.tolist(),
        "coordinate": mesh.get_coordinate(),
        "local": [mesh.get_local_rank(at) for at in range(mesh.ndim)],
        "groups": [dist.get_process_group_ranks(g) for g in mesh.get_all_groups()],
    }


def mesh_of(
    shape: Sequence[int], names: str, ranks: Sequence[int] = PERMUTED
) -> DeviceMesh:
    return cloudcoll.torch.init_device_mesh(
        "cpu", shape, mesh_dim_names=names.split(), ranks=ranks
    )


@check
def meshes(folder: Path) -> Any:
    return [seen_of(mesh_of((2, 2), "dp tp")), seen_of(mesh_of((4,), "dp"))]


@check
def mesh_by_snapshot(folder: Path) -> Any:
    found = cloudcoll.torch.init_device_mesh(
        *("cpu", (2, 2)),
        mesh_dim_names=("dp", "tp"),
        source=only(0, folder / "racks.snap"),
    )
    return seen_of(found)


@check
def mesh_of_unknown(folder: Path) -> Any:
    found = cloudcoll.torch.init_device_mesh(
        "cpu", (2, 2), mesh_dim_names=("dp", "x"), source=folder / "racks.snap"
    )
    return seen_of(found)


@check
def shards(folder: Path) -> Any:
    """Return whether tensors come together again, however they are split."""
    whole = torch.arange(48.0).reshape(8, 6)
    right = []
    for mesh in (mesh_of((2, 2), "dp tp"), mesh_of((4,), "dp"), mesh_of((1, 4), "a b")):
        for split in (Shard(0), Shard(1), Replicate()):
            placements = [Shard(0), split][-mesh.ndim :]
            tensor = distribute_tensor(whole, mesh, placements)
            other = tensor.redistribute(mesh, [Shard(1)] * mesh.ndim)
            right += [
                torch.equal(tensor.full_tensor(), whole),
                torch.equal(other.full_tensor(), whole),
            ]
        tensor = distribute_tensor(whole, mesh, [Shard(0)] * mesh.ndim)
        place = mesh.mesh.flatten().tolist().index(dist.get_rank())
        right.append(torch.equal(tensor.to_local(), whole.chunk(4)[place]))
    return right


@check
def fsdp(folder: Path) -> Any:
    """Return how far parameters are from those of one process, after two steps."""
    data = torch.randn(SIZE, 3, 8, generator=torch.Generator().manual_seed(1))
    apart = []
    for mesh in (mesh_of((4,), "dp"), mesh_of((2, 2), "dp_replicate dp_shard")):
        split, alone = ((torch.manual_seed(0), torch.nn.Linear(8, 5))[1] for _ in "12")
        fully_shard(split, mesh=mesh)
        for model, batch in (
            (split, data[dist.get_rank()]),
            (alone, data.flatten(0, 1)),
        ):
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(2):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
        apart.append(
            float((split.weight.full_tensor() - alone.weight).detach().abs().max())
        )
    return apart


@check
def flattened(folder: Path) -> Any:
    return mesh_of((2, 2), "dp tp")._flatten("all")


@check
def unflattened(folder: Path) -> Any:
    return mesh_of((4,), "dp")._unflatten(0, (2, 2), ("a", "b"))


@check
def flattened_alike(folder: Path) -> Any:
    """Return flattened dimensions that torch's sorting leaves as they are."""
    pairs = mesh_of((2, 1, 2), "a b c", [2, 3, 0, 1])["b", "c"]._flatten("bc")
    plain = mesh_of((2, 2), "a b", [0, 1, 2, 3])._flatten("ab")
    return [seen_of(pairs), seen_of(plain)]


@check
def wrong_shape(folder: Path) -> Any:
    return seen_of(mesh_of((2, 3), "dp tp"))


@check
def wrong_names(folder: Path) -> Any:
    return seen_of(mesh_of((2, 2), "dp dp"))


@check
def wrong_ranks(folder: Path) -> Any:
    return seen_of(mesh_of((2, 2), "dp tp", [0, 1, 2, 2]))


@check
def sorting_torch(folder: Path) -> Any:
    cloudcoll.torch._keeps_order, kept = (lambda: False), cloudcoll.torch._keeps_order
    found = seen_of(mesh_of((2, 2), "dp tp"))
    cloudcoll.torch._keeps_order = kept
    return found


@check
def silent_first(folder: Path) -> Any:
    """The last one: from here on the ranks count their calls differently."""
    store, rank = dist.group.WORLD.get_group_store(), dist.get_rank()
    if rank == 0:
        return store.wait([f"heard/{other}" for other in range(1, SIZE)])
    store.set_timeout(timedelta(seconds=0.2))
    try:
        return cloudcoll.torch.order(source=folder / "map.json")
    finally:
        store.set(f"heard/{rank}", "")


def seen(function: Callable[[Path], Any], folder: Path) -> dict[str, Any]:
    """Return what a check found, and the lines that it printed."""
    lines, row = io.StringIO(), {}
    with contextlib.redirect_stderr(lines):
        try:
            row["found"] = function(folder)
        except CloudcollError as error:
            row |= {"error": str(error), "kind": type(error).__name__}
    return row | {"lines": lines.getvalue()}


def rank_of(rank: int, meeting: socket.socket, folder: Path) -> NoReturn:
    """Be a rank, to the end of the process."""
    try:
        row = {}
        try:
            cloudcoll.torch.order()
        except CloudcollError as error:
            row["too_early"] = {"error": str(error)}
        host, port = meeting.getsockname()
        own = {"master_listen_fd": meeting.fileno()} if rank == 0 else {}
        store = dist.TCPStore(host, port, SIZE, rank == 0, LIFE, **own)
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=SIZE, timeout=LIFE
        )
        for name, function in CHECKS.items():
            dist.barrier()
            row[name] = seen(function, folder)
        (folder / f"{rank}.json").write_text(json.dumps(row))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    meeting = socket.create_server(("127.0.0.1", 0))
    ranks = []
    for rank in range(SIZE):
        if not (child := os.fork()):
            rank_of(rank, meeting, folder)
        ranks.append(child)
    # Any that dies takes the others along, by their deadline.
    ended = [os.waitpid(child, 0)[1] for child in ranks]
    sys.exit(any(ended))


if __name__ == "__main__":
    main()
