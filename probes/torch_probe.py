"""Measure the network between the hosts of a torch.distributed job.

Point to point, with Gloo, or with NCCL if every rank has a GPU of its own.
Started by torchrun as ``.../start.py torch_probe ADDRESS:PORT``, or once
on each host by mpirun or srun; their ranks then meet at that address, which is
one of a host with a rank. `ranks` says what is read, written and measured.
"""

from __future__ import annotations

import datetime
import os
import signal
import socket
import sys
from typing import Any, Mapping, NamedTuple

# Host names that no name server knows are nothing to warn of.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch
import torch.distributed as dist

from . import ranks
from .start import read_request

START_LIFE = 120  # seconds for all ranks to be there
NO_GPU = (
    "cloudcoll: NCCL needs a GPU for each rank, and a torch with NCCL: %d of %d ranks "
    "have not both; leave --backend out"
)
LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # torchrun, which others may start
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),  # also set around the others
)


class RankPlace(NamedTuple):
    """What a launcher says of a rank in its environment."""

    rank: int
    size: int
    local_rank: int


def find_place(env: Mapping[str, str]) -> RankPlace:
    """Return this process's place; ValueError if no launcher told it."""
    for names in LAUNCHERS:
        if all(name in env for name in names):
            return RankPlace(*(int(env[name]) for name in names))
    known = ", ".join(names[0] for names in LAUNCHERS)
    raise ValueError("no launcher told this process its rank (one of %s)" % known)


def connect(env: Mapping[str, str], meeting_point: str) -> RankPlace:
    """Join the other ranks in a world of Gloo; return this one's place.

    ValueError if no launcher told this process its rank, RuntimeError if not all came.
    """
    place = find_place(env)
    limit = datetime.timedelta(seconds=START_LIFE)
    if LAUNCHERS[0][0] in env:
        # torchrun has its own meeting point, in the environment.
        dist.init_process_group("gloo", timeout=limit)
        return place
    store = open_store(place, meeting_point)
    dist.init_process_group(
        "gloo", store=store, rank=place.rank, world_size=place.size, timeout=limit
    )
    return place


def open_store(place: RankPlace, meeting_point: str) -> Any:
    """Return what ranks find each other by, kept by one at ``ADDRESS:PORT``."""
    address, _, port = meeting_point.rpartition(":")
    # Rank 0 need not be there: the order of a launcher's ranks is its own.
    host = place.local_rank == 0 and is_here(address)
    limit = datetime.timedelta(seconds=START_LIFE)
    return dist.TCPStore(
        address, int(port), is_master=host, timeout=limit, wait_for_workers=False
    )


def is_here(address: str) -> bool:
    """Return whether a name or an IP address is this machine's."""
    if ranks.find_host([[address, address]], socket.gethostname()) == 0:
        return True
    found = socket.getaddrinfo(address, None, type=socket.SOCK_DGRAM)
    return any(ranks.can_bind(str(entry[4][0])) for entry in found)


class GlooLink(ranks.Connection):
    """Messages of the world, which is Gloo's; buffers are tensors of bytes.

    Gloo waits without keeping a core busy.
    """

    device = torch.device("cpu")
    group: Any = None  # the world

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.name = socket.gethostname()
        self.library = "torch %s gloo" % torch.__version__

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier()

    def share(self, text: bytes) -> bytes:
        """Return rank 0's `text` on every rank."""
        size = torch.tensor([len(text)])
        dist.broadcast(size, 0)
        data = bytearray(text) if self.rank == 0 else bytearray(int(size))
        if data:
            dist.broadcast(tensor_over(data), 0)
        return bytes(data)

    def gather(self, text: bytes) -> bytes:
        """Return all ranks' texts on rank 0; nothing elsewhere."""
        sizes = [torch.tensor([0]) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(text)]))
        # Gloo gathers what is of one length.
        longest = int(max(sizes))
        if not longest:
            return b""
        parts = [bytearray(longest) for _ in range(self.size)] if not self.rank else []
        tensors = [tensor_over(part) for part in parts]
        mine = tensor_over(bytearray(text.ljust(longest, b"\0")))
        dist.gather(mine, tensors or None, 0)
        return b"".join(part[: int(sizes[i])] for i, part in enumerate(parts))

    def buffer(self, size: int) -> torch.Tensor:
        """Return a tensor of bytes."""
        return torch.zeros(size, dtype=torch.uint8, device=self.device)

    def write(self, buffer: Any, data: bytes) -> None:
        """Put `data` at the beginning."""
        buffer[: len(data)] = tensor_over(bytearray(data))

    def read(self, buffer: Any, size: int) -> bytes:
        """Return the beginning, once all is there."""
        return bytes(buffer[:size].tolist())

    def exchange(self, request: Any, reply: Any, peer: int) -> None:
        """Send, then receive."""
        dist.send(request, peer, self.group)
        dist.recv(reply, peer, self.group)

    def echo(self, buffer: Any, peer: int) -> None:
        """Receive, and send the same back."""
        dist.recv(buffer, peer, self.group)
        dist.send(buffer, peer, self.group)

    def isend(self, buffer: Any, size: int, peer: int) -> Any:
        """Begin to send."""
        return dist.isend(buffer[:size], peer, self.group)

    def irecv(self, buffer: Any, size: int, peer: int) -> Any:
        """Begin to receive."""
        return dist.irecv(buffer[:size], peer, self.group)


class NcclLink(GlooLink):
    """The same between two ranks with NCCL, from one GPU's memory to another's."""

    def __init__(self, local_rank: int) -> None:
        super().__init__()
        self.device = torch.device("cuda", local_rank)
        torch.cuda.set_device(self.device)
        # With its device known, one communicator serves all pairs.
        self.group = dist.new_group(backend="nccl", device_id=self.device)
        version = ".".join(map(str, torch.cuda.nccl.version()))
        self.library = "torch %s nccl %s" % (torch.__version__, version)

    def exchange(self, request: Any, reply: Any, peer: int) -> None:
        """Send, then receive; return when the GPU is done."""
        super().exchange(request, reply, peer)
        torch.cuda.current_stream().synchronize()

    def isend(self, buffer: Any, size: int, peer: int) -> Any:
        """Begin to send."""
        return OnStream(super().isend(buffer, size, peer))

    def irecv(self, buffer: Any, size: int, peer: int) -> Any:
        """Begin to receive."""
        return OnStream(super().irecv(buffer, size, peer))


class OnStream(NamedTuple):
    """A transfer of NCCL's, whose own `wait` holds up the stream only."""

    work: Any

    def wait(self) -> None:
        """Wait until it is done."""
        self.work.wait()
        torch.cuda.current_stream().synchronize()


def tensor_over(data: bytearray) -> torch.Tensor:
    """Return a tensor that shares the memory of `data`."""
    return torch.frombuffer(data, dtype=torch.uint8)


def choose_link(backend: str, place: RankPlace) -> GlooLink:
    """Return the link of a backend; ``auto`` is NCCL if all ranks have GPUs.

    Where NCCL is asked for, and a rank has no GPU of its own, or a torch without NCCL,
    all ranks end: the first one says why.
    """
    link = GlooLink()
    if backend == "gloo":
        return link
    gpus = torch.cuda.device_count() if dist.is_nccl_available() else 0
    lacking = torch.tensor([int(place.local_rank >= gpus)])
    dist.all_reduce(lacking)
    if not lacking:
        return NcclLink(place.local_rank)
    if backend == "nccl":
        if link.rank == 0:
            print(NO_GPU % (int(lacking), link.size), file=sys.stderr, flush=True)
        # A launcher may end all ranks with the first that leaves.
        link.barrier()
        dist.destroy_process_group()
        sys.exit(1)
    return link


def main() -> None:
    """Do what one rank reads from stdin."""
    # Every wait's deadline: an alarm ends this rank, and so the job, in whatever
    # call it is stuck. `ranks.measure` sets it anew for each round.
    signal.alarm(START_LIFE)
    torch.set_num_threads(1)
    meeting_point, backend = sys.argv[1:]
    place = connect(os.environ, meeting_point)
    link = choose_link(backend, place)
    # mpirun feeds rank 0, srun all, and torchrun what it was started with. The
    # first rank of a host reads; others would share its input.
    line = b"" if place.local_rank else read_request(sys.stdin.buffer)
    ranks.run(link, line)
    # The one that keeps the meeting point must not be the first to leave.
    link.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
