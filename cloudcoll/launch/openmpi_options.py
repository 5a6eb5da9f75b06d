"""What the options of Open MPI's ``mpirun`` ask for: hosts, ranks on each, binding.

Both generations share most of it. Names and arities of version 5 are those of
``schizo_ompi.c`` in PRRTE 3.0.14.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch.command_line import (
    Option,
    Part,
    Syntax,
    deal,
    fill,
    names_in,
    total_ranks,
)
from cloudcoll.launch.plan import LaunchRequest

PRRTE = Syntax.of(
    """
    allow-run-as-root bind-to-core bind-to-socket bycore bynode byslot continuous
    debug debug-daemons debug-daemons-file disable-recovery display-allocation
    display-comm display-comm-finalize display-devel-map display-map do-not-launch
    enable-recovery fwd-environment get-stack-traces help hetero-nodes
    leave-session-attached merge-stderr-to-stdout no-aggregate-help no-app-prefix
    nolocal nooversubscribe noprefix output-proctable oversubscribe parsable
    parseable pernode preload-binary report-bindings report-child-jobs-separately
    report-state-on-timeout show-progress soft stop-in-app stop-in-init stop-on-exec
    tag-output timestamp-output use-hwthread-cpus verbose version xml
    """,
    """
    am amca app app-pmix-prefix append-env arch bind-to cpu-list cpu-set
    cpus-per-proc cpus-per-rank default-hostfile display display-topo dvm file
    forward-signals gpu-support host hostfile initial-errhandler launch-agent
    machinefile map-by max-restarts max-vm-size memory-alloc-kinds N np npernode
    npersocket output output-directory output-filename path personality ppr prefix
    preload-files prepend-env pset rank-by rankfile report-pid report-uri
    runtime-options set-env spawn-timeout stdin stream-buffering timeout tmpdir tune
    unset-env wd wdir with-ft x xterm
    """,
    """
    mapby map-by rankby rank-by bindto bind-to rtos runtime-options
    n np c np H host V version v verbose h help p parseable s preload-binary
    """,
    pairs="mca omca gmca gomca prtemca pmixmca",
)
"""Of Open MPI 5."""

ORTE = Syntax.of(
    """
    allow-run-as-root bind-to-core bind-to-socket bycore bynode byslot continuous
    debug debug-daemons debug-daemons-file debug-devel disable-recovery
    display-allocation display-devel-allocation display-devel-map
    display-diffable-map display-map display-topo do-not-launch do-not-resolve dvm
    enable-instant-on-support enable-recovery fwd-mpirun-port get-stack-traces
    index-argv-by-rank leave-session-attached merge-stderr-to-stdout nolocal
    nooversubscribe noprefix novm output-proctable oversubscribe pernode
    preload-binary quiet report-bindings report-child-jobs-separately
    report-state-on-timeout set-cwd-to-session-dir show-progress tag-output
    timestamp-output tv use-hwthread-cpus use-regexp verbose version xml
    """,
    """
    am app bind-to cf cpu-list cpu-set cpus-per-proc cpus-per-rank debugger
    default-hostfile help hnp host hostfile launch-agent machinefile map-by
    max-restarts max-vm-size N np npernode npersocket ompi-server output-filename
    path personality ppr prefix preload-files rank-by rankfile report-events
    report-pid report-uri stdin timeout tune wd wdir x xml-file xterm
    """,
    """
    n np c np H host V version v verbose h help q quiet s preload-binary
    rf rankfile d debug-devel cartofile cf
    """,
    pairs="mca gmca",
)
"""Of Open MPI 4.1: what ``mpirun --help all`` of 4.1.4 and 4.1.8 lists."""

PLACEMENT = names_in(
    """
    bind-to bind-to-core bind-to-socket bycore bynode byslot default-hostfile host
    hostfile machinefile map-by N nooversubscribe npernode pernode rank-by
    """
)
"""Options that say which ranks go where."""

LISTS = frozenset({"host", "hostfile", "machinefile", "default-hostfile"})
"""Those of them that name hosts."""

MAPS_ONLY = "--do-not-launch"
"""Places ranks, with the same exit codes, and starts none (tried with 5.0.11)."""

UCC = (
    "UCC before 1.3 puts hosts into an order of its own for allgather and allreduce: "
    "set UCC_TL_UCP_RANKS_REORDERING=n on all hosts"
)

OBJECTS = {"core": "core", "package": "package", "socket": "package", "numa": "numa"}
"""Objects of ``--map-by`` -> what a rank is then bound to."""

IF_SUPPORTED_SINCE = (5, 0, 11)
"""First version in which ``seq`` honours ``:if-supported``."""


def release(text: str) -> tuple[int, ...] | None:
    """Return the version of Open MPI in an answer to ``--version``."""
    found = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else None


def refuse(options: Sequence[Option], unsupported: frozenset[str]) -> None:
    """Raise if whole hosts can't be moved with these options."""
    for option in options:
        if option.name in unsupported:
            raise LaunchError(f"--{option.name} decides the placement")
    placement = [option.name for option in options if option.name in PLACEMENT | {"np"}]
    for name in placement:
        if placement.count(name) > 1:
            raise LaunchError(f"--{name} is given twice")


def asked_ranks(parts: Sequence[Part], layout: Layout) -> int | None:
    """Return the number of ranks of all programs, None to fill every slot.

    LaunchError also where `layout` starts anew with each of several programs.
    """
    if len(parts) > 1 and (layout.policy not in {"core", "slot"} or layout.cyclic):
        raise LaunchError(
            "ranks of several programs (':') are kept only where they fill the slots "
            "of one host after the other (--map-by slot)"
        )
    return total_ranks(parts, "np", PLACEMENT)


def caution(settings: Mapping[str, str]) -> str:
    """Return what can undo an order where no rank shows it, empty if nothing.

    Which UCC it is can't be seen from here; read from ``ucc_sbgp.c`` (openucx/ucc
    pull requests 698 and 904), not tried.
    """
    off = {"", "0", "f", "false", "n", "no"}
    return "" if settings.get("coll_ucc_enable", "").lower() in off else UCC


def hostfile_text(request: LaunchRequest, placement: Sequence[str]) -> str:
    """Return the hostfile whose slots, filled in turn, give `placement`.

    A host that is only half full has to stay so before the last one, too.
    """
    slots = {host.name: host.slots for host in request.hosts}
    ranks = Counter(placement)
    return "".join(
        f"{name} slots={ranks[name] or slots[name] or 1}\n"
        for name in dict.fromkeys((*placement, *slots))
    )


@dataclass(frozen=True)
class Layout:
    """The layout that a command line asks for.

    Attributes
    ----------
    policy : str
        Of ``--map-by``: ``slot``, ``node``, ``ppr`` or a key of `OBJECTS`.
    per_host : int or None
        Ranks on each host, for ``ppr``.
    cyclic : bool
        Ranks are numbered over the hosts in turn.
    """

    policy: str = "core"
    per_host: int | None = None
    cyclic: bool = False


def read_mapping(options: Sequence[Option]) -> Layout:
    """Return the layout that the options ask for, if whole hosts can be moved in it."""
    given = [text for option in options if (text := _as_map_by(option))]
    if len(given) > 1:
        raise LaunchError(f"two mappings are given: {' and '.join(given)}")
    (asked,) = given or ["core"]
    text = asked.lower()
    per_host = re.fullmatch(r"ppr:(\d+):node", text)
    policy = "ppr" if per_host else text
    if policy not in {"ppr", "slot", "node", *OBJECTS}:
        raise LaunchError(f"--map-by {asked} is not one that whole hosts move in")
    rank_by = next((o.values[0].lower() for o in options if o.name == "rank-by"), "")
    if rank_by not in {"", "slot", "node"}:
        raise LaunchError(f"--rank-by {rank_by} is not one that whole hosts move in")
    return Layout(
        policy,
        int(per_host[1]) if per_host else None,
        (rank_by or policy) == "node",
    )


def _as_map_by(option: Option) -> str:
    """Return what `option` means as a value of ``--map-by``, empty if nothing."""
    if option.name == "map-by":
        return option.values[0]
    if option.name in {"N", "npernode"}:
        return f"ppr:{option.values[0]}:node"
    short = {"pernode": "ppr:1:node", "bynode": "node", "bycore": "core"}
    return (short | {"byslot": "slot"}).get(option.name, "")


def count_ranks(
    hosts: Sequence[Host], source: str, ranks: int | None, mapping: Layout
) -> tuple[int, ...]:
    """Return how many ranks each host gets from the unmodified command.

    No `ranks` fill every slot. LaunchError, which names `source`, where the list
    leaves the slots open, or there are too few.
    """
    if mapping.per_host is not None:
        room = [mapping.per_host] * len(hosts)
    else:
        room = [_slots(host, source) for host in hosts]
    total = sum(room) if ranks is None else ranks
    if not 1 <= total <= sum(room):
        raise LaunchError(f"{total} ranks for the {sum(room)} slots of {source}")
    return (deal if mapping.policy == "node" else fill)(room, total)


def _slots(host: Host, source: str) -> int:
    if host.slots is None:
        raise LaunchError(
            f"{source} gives no slots for {host.name}: add slots=N, as many ranks as "
            "are to start there"
        )
    return host.slots


def read_binding(
    options: Sequence[Option],
    mapping: Layout,
    counts: Sequence[int],
    version: tuple[int, ...],
) -> str:
    """Return the ``--bind-to`` that equals what the unmodified command does.

    LaunchError where ranks may share cores in a way that ``seq`` can't express.
    """
    names = {"bind-to-core": "core", "bind-to-socket": "package"}
    for option in options:
        binding = names.get(option.name, "")
        if option.name == "bind-to":
            binding = option.values[0]
        if "overload" in binding.lower():
            raise LaunchError(f"--bind-to {binding} can't be kept in another order")
        if binding:
            return binding
    if mapping.policy in OBJECTS:
        return f"{OBJECTS[mapping.policy]}:if-supported"
    if max(counts) > 1 and version < IF_SUPPORTED_SINCE:
        raise LaunchError(
            f"Open MPI {'.'.join(map(str, version))} can't keep the default binding of "
            f"--map-by {mapping.policy}: add --bind-to"
        )
    return f"{'core' if sum(counts) <= 2 else 'numa'}:if-supported"
