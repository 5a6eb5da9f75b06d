"""Flux: ``flux run`` on all hosts of an instance.

``--taskmap=hostfile:FILE`` lays tasks out as the file's lines say, one host for
each task; every host has to be among them (``flux-run(1)`` of flux-core).
Written from documentation; no such system was tried.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import parse_host_argument
from cloudcoll.launch.command_line import (
    Syntax,
    even_counts,
    last_values,
    program_start,
    scan_options,
)
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, Version

ANSWER_SECONDS = 5.0
"""``flux hostlist`` has this long to answer."""

SYNTAX = Syntax.of(
    "exclusive label-io unbuffered verbose",
    """
    cores-per-task cwd env error flags gpus-per-task input job-name nodes ntasks
    output setattr setopt tasks-per-node time-limit urgency
    """,
    """
    N nodes n ntasks c cores-per-task g gpus-per-task t time-limit o setopt
    x exclusive l label-io u unbuffered v verbose
    """,
    attached=True,
)
"""The options of ``flux run`` that keep tasks where they are."""

RANK = "FLUX_TASK_RANK"


def instance_hosts() -> str:
    """Return the hosts of the Flux instance around us, as a Flux host list."""
    try:
        answer = subprocess.run(
            ["flux", "hostlist", "instance"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LaunchError(f"'flux hostlist instance' failed: {error}") from error
    return answer.stdout.strip()


@dataclass(frozen=True)
class FluxRun:
    """``flux run``; `hosts` returns the host list of the instance."""

    hosts: Callable[[], str] = instance_hosts

    title = "Flux (flux run)"
    mechanism = "--taskmap=hostfile:FILE; each rank reports; not tried"
    source = "Flux's own packages"
    package = ""

    def recognises(self, argv: Sequence[str], version: Version) -> bool:
        """Return whether this is a ``flux run``."""
        return os.path.basename(argv[0]) == "flux" and list(argv[1:2]) == ["run"]

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for: see `Launcher.parse`."""
        options, start = scan_options(argv, SYNTAX, 2)
        hosts = parse_host_argument(self.hosts())
        if last_values(options, "nodes") != [str(len(hosts))]:
            raise LaunchError(f"not all hosts are asked for: add --nodes={len(hosts)}")
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=program_start(argv, start),
            hosts=hosts,
            source="the Flux instance",
            counts=even_counts(hosts, options, "ntasks", "tasks-per-node"),
        )

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``."""
        path = str(directory / "hosts")
        argv, start = request.argv, request.start
        placed = (*argv[:2], f"--taskmap=hostfile:{path}", *argv[2:start])
        if request.inbox:
            # After other rules for the environment, which may have emptied it.
            placed = (*placed, f"--env={request.inbox.variable}")
        return LaunchPlan(
            argv=(*placed, *request.reporting(RANK)),
            files={path: "".join(f"{host}\n" for host in placement)},
            inbox=request.inbox,
        )
