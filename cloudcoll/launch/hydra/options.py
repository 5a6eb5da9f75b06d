"""The options of Hydra's ``mpiexec``."""

from __future__ import annotations

from cloudcoll.launch.command_line import Syntax

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

NO_VARIABLES = frozenset({"envnone", "genvnone"})
LISTED = frozenset({"envlist", "genvlist"})
"""Options by which ranks get no variables of the command's own, or only some."""
