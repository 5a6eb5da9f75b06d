"""``torchrun``, also as ``python -m torch.distributed.run``, of torch 2.6 to 2.13.

It is started once on every host. With the static rendezvous its ranks are
those of ``--node-rank``; an option wins over its ``PET_`` variable
(``torch/distributed/argparse_util.py``). The c10d rendezvous ignores
``--node-rank`` and sorts the hosts by name, as text
(``_mark_rendezvous_complete`` in ``dynamic_rendezvous.py``): it is replaced by
`cloudcoll.launch.rendezvous`, which sorts them by the map.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from cloudcoll.errors import LaunchError
from cloudcoll.launch.command_line import CommandLine, Syntax, options_start
from cloudcoll.launch.own_host import MAP_VARIABLE, OwnHost
from cloudcoll.launch.plan import LaunchPlan

BACKEND = "cloudcoll"
"""Name of our rendezvous among torchrun's."""

SYNTAX = Syntax.of(
    "module no-python run-path standalone virtual-local-rank",
    """
    duplicate-stderr-filters duplicate-stdout-filters event-log-handler local-addr
    local-ranks-filter log-dir logs-specs master-addr master-port max-restarts
    monitor-interval nnodes node-rank nproc-per-node numa-binding rdzv-backend
    rdzv-conf rdzv-endpoint rdzv-id redirects role shutdown-timeout
    signals-to-handle start-method tee
    """,
    "m module r redirects t tee",
)


class Torchrun:
    """The launcher of torch, started once on every host."""

    title = "torchrun"
    mechanism = (
        "--node-rank, read back from the ranks' environment, or "
        "--rdzv-backend=cloudcoll over c10d, by one map on all hosts"
    )
    source = "pip install torch"
    package = "torch"

    def recognises(self, argv: Sequence[str]) -> bool:
        """Return whether this is torchrun under one of its two names."""
        return _start(argv) > 0

    def plan(
        self, argv: Sequence[str], env: Mapping[str, str], host: OwnHost
    ) -> LaunchPlan:
        """Return the plan of this host: see `HostLauncher.plan`."""
        line = CommandLine.read(argv, _start(argv), SYNTAX)
        given = {**_from_environment(env), **line.values}
        nodes = given.get("nnodes", "1")
        if "standalone" in given or nodes in {"1", "1:1"}:
            return LaunchPlan(tuple(argv))
        backend = given.get("rdzv-backend", "static")
        if backend != "static":
            return plan_rendezvous(line, backend, host)
        host.check_count(_fixed(nodes), f"--nnodes {nodes}")
        options = [f"--node-rank={host.position}", *_master(given, host)]
        return plan_static(line, options, env, host)

    def store(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, int]:
        """Return where the rendezvous is: see `HostLauncher.store`."""
        line = CommandLine.read(argv, _start(argv), SYNTAX)
        given = {**_from_environment(env), **line.values}
        if "standalone" in given or given.get("nnodes", "1") in {"1", "1:1"}:
            raise LaunchError("torchrun with one host has nothing to reorder")
        host, _, port = given.get("rdzv-endpoint", "").partition(":")
        static = given.get("rdzv-backend", "static") == "static"
        return store_at(
            host or given.get("master-addr", ""),
            port or (given.get("master-port", "29500") if static else "29400"),
        )


def plan_static(
    line: CommandLine, options: Sequence[str], env: Mapping[str, str], host: OwnHost
) -> LaunchPlan:
    """Return the plan with `options`, which give this host its static place.

    torchrun tells its ranks that place, as ``GROUP_RANK``.
    """
    place, name = str(host.position), "PET_NODE_RANK"
    return LaunchPlan(
        line.replaced(*options),
        placement=host.rank_map.order,
        # For scripts that read it themselves.
        env={name: place} if name in env else {},
        own=("GROUP_RANK", place),
    )


def store_at(host: str, port: str) -> tuple[str, int]:
    """Return both, if they are an address that all hosts of a job can know."""
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise LaunchError(
            f"no host and port where the ranks meet ({host or 'no host'}:{port}): give "
            "the launcher the address of the first host and a port"
        )
    return host, int(port)


def plan_rendezvous(line: CommandLine, backend: str, host: OwnHost) -> LaunchPlan:
    """Return the plan with our rendezvous in place of `backend`, if that can be."""
    if backend not in {"c10d", BACKEND}:
        raise LaunchError(f"the rendezvous {backend!r} puts hosts in its own order")
    _check_python(line.argv[0])
    return LaunchPlan(
        line.replaced(f"--rdzv-backend={BACKEND}"),
        placement=host.rank_map.order,
        env={MAP_VARIABLE: str(host.path)},
    )


def _check_python(program: str) -> None:
    """Refuse a launcher that stands beside another Python than CloudColl's.

    It would not find our rendezvous.
    """
    found = os.path.abspath(shutil.which(program) or program)
    if os.path.dirname(found) != os.path.dirname(os.path.abspath(sys.executable)):
        raise LaunchError(
            f"{found} is of another Python than CloudColl ({sys.executable}): install "
            "cloudcoll there too, or use the static rendezvous"
        )


def _start(argv: Sequence[str]) -> int:
    """Return where torchrun's options begin, 0 if this is something else."""
    return options_start(argv, "torchrun", "torch.distributed.run")


def _from_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return what ``PET_`` variables say, flags only where they are on."""
    given = {
        name[4:].lower().replace("_", "-"): value
        for name, value in env.items()
        if name.startswith("PET_")
    }
    off = {name for name in SYNTAX.flags if given.get(name) == "0"}
    return {name: value for name, value in given.items() if name not in off}


def _fixed(nodes: str) -> int:
    low, _, high = nodes.partition(":")
    if not low.isdecimal() or high not in {"", low}:
        raise LaunchError(
            f"--nnodes {nodes}: the static rendezvous needs one number of hosts"
        )
    return int(low)


def _master(given: Mapping[str, str], host: OwnHost) -> list[str]:
    """Return the option that moves the store with rank 0, if it has to move."""
    option = "rdzv-endpoint" if given.get("rdzv-endpoint") else "master-addr"
    text = given.get(option, "127.0.0.1")
    address, colon, port = text, "", ""
    if option == "rdzv-endpoint":
        address, colon, port = text.rpartition(":")
    current = address.strip("[]")
    moved = host.master(current)
    return [] if moved == current else [f"--{option}={moved}{colon}{port}"]
