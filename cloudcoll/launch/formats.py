"""A rank map in the files that launchers read, its algorithms in those of libraries.

`FORMATS` is the table of the launchers'. Where a format has comments, the first line
says what the file is. LightGBM (any line with a letter of ``rank=`` counts as a rank
line in many versions), Horovod (splits every line at ``=``), ``SLURM_HOSTFILE``, Flux
and ``PBS_NODEFILE`` go without.

`tuning_file` is for people who keep their own launch lines. What `cloudcoll run --tune`
adds is not in it: no rank looks whether all others have the file, and nothing keeps
operations that do not commute from Open MPI's rules.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from cloudcoll.errors import UsageError
from cloudcoll.hosts import natural_key
from cloudcoll.launch.environment import write_environment
from cloudcoll.launch.own_host import packed
from cloudcoll.libraries.tell import tell
from cloudcoll.libraries.tell_open_mpi import PREFIX
from cloudcoll.libraries.telling import NOTHING, Told, library_version
from cloudcoll.plain import plain_line
from cloudcoll.rankmap import RankMap
from cloudcoll.tuning import Tuning

LIGHTGBM_PORT = 12400
"""LightGBM's default ``local_listen_port``; local rank N listens N above."""

NAMELESS = "FILE"
"""Stands for the file where it is not known what it will be called."""

REDUCING = frozenset({"allreduce", "reduce", "reduce_scatter"})

COMMUTE = (
    "these rules give wrong results of MPI_Op_create's operations that do not commute; "
    "'cloudcoll run --tune' keeps those right"
)

OTHERS = "run 'cloudcoll tune' for a library that can (openmpi, mpich)"

ALSO = {
    "ucc": "Open MPI's mpirun hands it on with -x UCC_TL_UCP_TUNE",
    "nccl": "Open MPI's mpirun hands it on with -x NCCL_ALGO; it holds for "
    "communicators of any size",
}
"""Key of a library that is told by variables -> what else there is to know."""


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

    Not of IPv6 addresses: Hydra cuts them at the first colon.
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
    """Return a file for ``horovodrun --hostfile``, which takes no IPv6 addresses."""
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


@dataclass(frozen=True)
class TuningFile:
    """What a library reads, and what a person has to know of it.

    Attributes
    ----------
    text : str
        Of the file.
    notes : tuple of str
        What is not in it, or does not fit into it: a line each.
    """

    text: str
    notes: tuple[str, ...] = ()


def tuning_file(tuning: Tuning, name: str = "") -> TuningFile:
    """Return the file by which a tuning's library runs its algorithms.

    Open MPI's is a file of rules, MPICH's the JSON of its decisions. What is told by
    variables alone (Intel MPI, UCC, NCCL) is lines of shell. Which settings of the
    launch line go with a file is said in it or, of JSON, in the notes.

    Parameters
    ----------
    name : str
        Path at which the job's hosts will find it; `NAMELESS` stands for none.

    Raises
    ------
    UsageError
        The library can't be told any of it.
    """
    told = tell(tuning)
    key, _ = library_version(tuning.library)
    if not told.anything:
        instead = f": {OTHERS}" if key in NOTHING else ""
        raise UsageError(f"nothing to write: {'; '.join(told.notes)}{instead}")
    path = shlex.quote(plain_line(name)) if name else NAMELESS
    if key == "openmpi":
        wrong = (COMMUTE,) if REDUCING.intersection(told.collectives) else ()
        first, _, rest = told.file.partition("\n")
        # Behind the first number: what Open MPI expects there differs by version.
        comments = _commented((*_of_rules(tuning, told, path), *wrong))
        return TuningFile(f"{first}\n{comments}{rest}", (*told.notes, *wrong))
    if key == "mpich":
        return TuningFile(told.file, (*told.notes, *_of_json(tuning, told, path)))
    head = [f"{_whose(tuning)}; before the command that starts the job:", f"  . {path}"]
    head += [ALSO[key]] if key in ALSO else []
    lines = (f"export {n}={shlex.quote(v)}\n" for n, v in told.variables.items())
    return TuningFile(_commented(head) + "".join(lines), told.notes)


def _whose(tuning: Tuning) -> str:
    local = f", {tuning.local} on each host" if tuning.local > 1 else ""
    # A name in a map may end in anything, and lines of shell follow.
    library = plain_line(tuning.library)
    return f"algorithms for {library}, {tuning.ranks} ranks{local}"


def _commented(lines: tuple[str, ...] | list[str]) -> str:
    return "".join(f"# {line}\n" for line in lines)


def _of_rules(tuning: Tuning, told: Told, path: str) -> Iterator[str]:
    """Yield how Open MPI is started with a file of rules."""
    settings = {**told.variables, told.file_variable: path}
    yield f"{_whose(tuning)}; every host has to have this file. Start with:"
    words = (f"--mca {n.removeprefix(PREFIX)} {v}" for n, v in settings.items())
    yield f"  mpirun {' '.join(words)} ..."
    yield "or, where srun starts the ranks, after:"
    yield f"  export {' '.join(f'{n}={v}' for n, v in settings.items())}"


def _of_json(tuning: Tuning, told: Told, path: str) -> Iterator[str]:
    """Yield the same of MPICH, whose JSON has no comments."""
    settings = {**told.variables, told.file_variable: path}
    words = (f"-genv {n} {v}" for n, v in settings.items())
    yield f"{_whose(tuning)}: start with mpirun {' '.join(words)} ..."
    yield "every host has to have the file: MPICH ends a job that can't read it"
