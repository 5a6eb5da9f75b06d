"""What every launcher can do: read a command line, and write the one in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, Version

if TYPE_CHECKING:
    from cloudcoll.launch.own_host import OwnHost


class Described(Protocol):
    """What a launcher says of itself, to whoever asks what there is."""

    @property
    def title(self) -> str:
        """What it is called in messages, such as ``Open MPI 5 (mpirun)``."""

    @property
    def mechanism(self) -> str:
        """How it is given an order, and how that is read back."""

    @property
    def source(self) -> str:
        """Where it can be had."""

    @property
    def package(self) -> str:
        """The Python package that has it; empty if it is a program of its own."""


class Launcher(Described, Protocol):
    """One kind of launcher: how its command line is read and rewritten."""

    def recognises(self, argv: Sequence[str], version: Version) -> bool:
        """Return whether the command line is one for this launcher.

        Several launchers share a name; only these need to call `version`.
        """

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for.

        Raises
        ------
        CloudcollError
            It asks for something that can't be reordered; the message says
            what.
        """

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``.

        Command, files and variables; `plan_launch` adds placement and request.
        """


class HostLauncher(Described, Protocol):
    """A launcher that is started once on every host, without a list of hosts.

    Each start changes only its own numbers, by a map that all of them read.
    What makes a plan impossible has to be the same on all hosts where that can
    be had: if some reorder and some do not, two hosts have one number.
    """

    def recognises(self, argv: Sequence[str]) -> bool:
        """Return whether the command line is one for this launcher."""

    def plan(
        self, argv: Sequence[str], env: Mapping[str, str], host: OwnHost
    ) -> LaunchPlan:
        """Return the plan that gives this host the ranks of its place in the map.

        Raises
        ------
        CloudcollError
            It can't; the message says why.
        """

    def store(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, int]:
        """Return the host and TCP port where the ranks of the job first meet.

        Raises
        ------
        CloudcollError
            They do not meet anywhere that is known here.
        """
