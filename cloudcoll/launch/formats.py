"""A rank map in the files that launchers read: `FORMATS` is the table.

Where the format has comments, the first line says what the file is. LightGBM
(any line with a letter of ``rank=`` counts as a rank line in many versions),
Horovod (splits every line at ``=``), ``SLURM_HOSTFILE``, Flux and
``PBS_NODEFILE`` go without.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from cloudcoll.errors import UsageError
from cloudcoll.hosts import natural_key
from cloudcoll.launch.environment import write_environment
from cloudcoll.launch.own_host import packed
from cloudcoll.rankmap import RankMap

LIGHTGBM_PORT = 12400
"""LightGBM's default ``local_listen_port``; local rank N listens N above."""


def write_seq(ranks: RankMap) -> str:
    """Return a file for Open MPI's ``--map-by seq``: one host per rank."""
    return _lines(chain([_comment(ranks)], _host_per_rank(ranks)))


def write_rankfile(ranks: RankMap) -> str:
    """Return a file for Open MPI's ``--map-by rankfile:file=F``.

    The local rank is the CPU that the rank is bound to.
    """
    placed = enumerate(ranks.placement())
    lines = (f"rank {rank}={host} slot={slot}" for rank, (host, slot) in placed)
    return _lines(chain([_comment(ranks)], lines))


def write_hostfile(ranks: RankMap) -> str:
    """Return an Open MPI hostfile: hosts with their slots.

    Open MPI keeps this order when it maps by slot, but 4.x takes it as a set:
    a seq file or a rankfile binds it. DeepSpeed reads the same form.
    """
    return _lines([_comment(ranks), *_host_with_slots(ranks)])


def write_hydra(ranks: RankMap) -> str:
    """Return a machine file for MPICH and Intel MPI (``-f``): ``host:slots``.

    Raises
    ------
    UsageError
        A host is an IPv6 address: Hydra cuts it at the first colon.
    """
    _refuse_ipv6(ranks, "an MPICH machine file")
    pairs = zip(ranks.order, ranks.slots, strict=True)
    return _lines([_comment(ranks), *(f"{host}:{slots}" for host, slots in pairs)])


def write_slurm(ranks: RankMap) -> str:
    """Return a ``SLURM_HOSTFILE`` for ``srun -m arbitrary``: a host per task.

    Flux reads the same (``--taskmap=hostfile:F``), and so does what starts from
    ``PBS_NODEFILE``.
    """
    return _lines(_host_per_rank(ranks))


def write_cray(ranks: RankMap) -> str:
    """Return an ``MPICH_RANK_ORDER`` for ``MPICH_RANK_REORDER_METHOD=3``.

    It lists ranks by the slot they get, node after node as the allocation
    has them, with block distribution: by name, numbers counted as numbers.
    """
    taken, first = {}, 0
    for host, slots in zip(ranks.order, ranks.slots, strict=True):
        taken[host] = ",".join(str(first + slot) for slot in range(slots))
        first += slots
    return _lines(
        [_comment(ranks), *(taken[h] for h in sorted(taken, key=natural_key))]
    )


def write_node_ranks(ranks: RankMap) -> str:
    """Return a table of hosts and their numbers, for what starts on each host.

    As in ``torchrun --node-rank $(awk -v h=$(hostname) '$1 == h {print $2}' F)``.
    """
    rows = [f"{host} {number}" for number, host in enumerate(ranks.order)]
    return _lines([_comment(ranks), *rows])


def write_lightgbm(ranks: RankMap, addresses: Mapping[str, str] | None = None) -> str:
    """Return a LightGBM machine list: address and port of each rank.

    Parameters
    ----------
    ranks : RankMap
        The order.
    addresses : mapping of str to str, optional
        IPv4 address by host name, for hosts that are not named by their address and
        whose address the map does not know.

    Raises
    ------
    UsageError
        No address is known for a host: LightGBM finds its rank by looking for
        its own IPv4 address in the list, where a name never matches.
    """
    known = {**(addresses or {}), **ranks.addresses}
    reached = {host: known.get(host, host) for host in ranks.order}
    for host, address in reached.items():
        if len(packed(address)) != 4:
            raise UsageError(
                f"a LightGBM machine list needs IPv4 addresses, not {address!r} for "
                f"{host!r}, which has none here: add it to /etc/hosts, or name the "
                "hosts by address in the host list"
            )
    return _lines(
        f"{reached[host]} {LIGHTGBM_PORT + slot}" for host, slot in ranks.placement()
    )


def write_horovod(ranks: RankMap) -> str:
    """Return a file for ``horovodrun --hostfile``.

    Raises
    ------
    UsageError
        A host is an IPv6 address: Horovod takes none.
    """
    _refuse_ipv6(ranks, "a Horovod hostfile")
    return _lines(_host_with_slots(ranks))


FORMATS: dict[str, Callable[[RankMap], str]] = {
    "ompi-rankfile": write_rankfile,
    "seq": write_seq,
    "hostfile": write_hostfile,
    "mpich": write_hydra,
    "slurm": write_slurm,
    "flux": write_slurm,
    "pbs": write_slurm,
    "cray": write_cray,
    "torchrun": write_node_ranks,
    "accelerate": write_node_ranks,
    "lightgbm": write_lightgbm,
    "deepspeed": write_hostfile,
    "horovod": write_horovod,
    "environment": write_environment,
    "json": RankMap.to_json,
}
"""Format name -> function that returns the text of the file."""


def _comment(ranks: RankMap) -> str:
    digest = ranks.snapshot[:12] or "none"
    return f"# cloudcoll: order of {len(ranks.order)} hosts, snapshot {digest}"


def _host_per_rank(ranks: RankMap) -> Iterator[str]:
    return (host for host, _ in ranks.placement())


def _host_with_slots(ranks: RankMap) -> list[str]:
    pairs = zip(ranks.order, ranks.slots, strict=True)
    return [f"{host} slots={slots}" for host, slots in pairs]


def _lines(lines: Iterable[str]) -> str:
    # Not joined: of a million ranks, a million lines would be there twice.
    text = io.StringIO()
    for line in lines:
        text.write(f"{line}\n")
    return text.getvalue()


def _refuse_ipv6(ranks: RankMap, target: str) -> None:
    for host in ranks.order:
        if ":" in host:
            raise UsageError(
                f"{target} cannot hold the IPv6 address {host!r}: give the host a "
                "name in the host list"
            )
