"""The options of Hydra's ``mpiexec``, and the programs it starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cloudcoll.errors import LaunchError
from cloudcoll.launch.words import Syntax, program_start, rank_count, scan_options

PROGRAMS = frozenset(
    {"mpiexec", "mpirun", "mpiexec.hydra", "mpirun.hydra", "mpiexec.mpich"}
    | {"mpirun.mpich"}
)
"""Names of the launcher; others share some of them."""

_FLAGS = """
aps disable-auto-cleanup disable-hostname-propagation disable-x enable-x envall
envnone genvall genvnone help hybrid-hosts info l mps nolocal pmi-port
prepend-rank prepend-timestamp print-all-exitcodes print-rank-map profile prot
silent-abort skip-launch-node verbose version
"""

_VALUED = """
bind-to configfile cpu-bind demux envlist errfile-pattern f genvlist gpus-per-proc
grr gtool gtoolfile host hosts hosts-group iface launcher launcher-exec localhost
machinefile map-by membind memory-alloc-kinds n nameserver order-nodes
outfile-pattern ppn prepend-pattern rankmap rmk rr s topolib tune usize wdir
"""

_SYNONYMS = {"np": "n", "v": "verbose", "h": "help", "wd": "wdir", "perhost": "ppn"}
_SYNONYMS |= {"hostfile": "f", "bootstrap": "launcher", "machine": "machinefile"}
_SYNONYMS |= {"bootstrap-exec": "launcher-exec", "hostlist": "hosts", "dir": "wdir"}

SYNTAX = Syntax(
    frozenset(_FLAGS.split()),
    frozenset(_VALUED.split()),
    frozenset({"env", "genv"}),
    _SYNONYMS,
)
"""What ``mpiexec --help`` of the versions above lists."""

PLACEMENT = frozenset({"f", "hosts", "machinefile", "ppn"})
"""Options that a plan replaces."""

UNSUPPORTED = frozenset(
    {"configfile", "grr", "host", "hosts-group", "nolocal", "order-nodes", "rankmap"}
    | {"rr", "skip-launch-node"}
)
"""Options that decide placement in a way that whole hosts can't be moved in."""


class Part(NamedTuple):
    """One of the programs of ``mpiexec a : b``, as indices of the words.

    Attributes
    ----------
    start, program, end : int
        Its options begin, it stands itself, and its own words end there.
    """

    start: int
    program: int
    end: int


def parts(argv: Sequence[str]) -> Iterator[Part]:
    """Yield the programs of a command line.

    Raises
    ------
    LaunchError
        An option is not known, or a program is missing.
    """
    at = 1
    while True:
        _, options_end = scan_options(argv, SYNTAX, at)
        program = program_start(argv, options_end)
        end = next((i for i in range(program, len(argv)) if argv[i] == ":"), len(argv))
        yield Part(at, program, end)
        if end == len(argv):
            return
        at = end + 1


def total_ranks(argv: Sequence[str]) -> int | None:
    """Return the number of ranks of all programs, None if the hosts decide.

    Raises
    ------
    LaunchError
        It can't be told, or a later program names hosts of its own.
    """
    counts = []
    for number, part in enumerate(parts(argv)):
        options, _ = scan_options(argv, SYNTAX, part.start)
        if number and any(option.name in PLACEMENT | UNSUPPORTED for option in options):
            raise LaunchError("hosts are given behind a ':': give them in front")
        counts.append(rank_count(options, "n"))
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) and len(counts) > 1:
        raise LaunchError("a part of the command line has no -n")
    return sum(known) if known else None
