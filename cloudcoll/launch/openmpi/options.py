"""The options of Open MPI's ``mpirun``.

Names and arities of version 5 are those of ``schizo_ompi.c`` in PRRTE 3.0.14.
"""

from __future__ import annotations

from cloudcoll.launch.command_line import Syntax

_FLAGS = """
allow-run-as-root bind-to-core bind-to-socket bycore bynode byslot continuous
debug debug-daemons debug-daemons-file disable-recovery display-allocation
display-comm display-comm-finalize display-devel-map display-map do-not-launch
enable-recovery fwd-environment get-stack-traces help hetero-nodes
leave-session-attached merge-stderr-to-stdout no-aggregate-help no-app-prefix
nolocal nooversubscribe noprefix output-proctable oversubscribe parsable
parseable pernode preload-binary report-bindings report-child-jobs-separately
report-state-on-timeout show-progress soft stop-in-app stop-in-init stop-on-exec
tag-output timestamp-output use-hwthread-cpus verbose version xml
"""

FLAGS = frozenset(_FLAGS.split())
"""Options without a value, or with one only after ``=``."""

_VALUED = """
am amca app app-pmix-prefix append-env arch bind-to cpu-list cpu-set
cpus-per-proc cpus-per-rank default-hostfile display display-topo dvm file
forward-signals gpu-support host hostfile initial-errhandler launch-agent
machinefile map-by max-restarts max-vm-size memory-alloc-kinds N np npernode
npersocket output output-directory output-filename path personality ppr prefix
preload-files prepend-env pset rank-by rankfile report-pid report-uri
runtime-options set-env spawn-timeout stdin stream-buffering timeout tmpdir tune
unset-env wd wdir with-ft x xterm
"""

VALUED = frozenset(_VALUED.split())
"""Options with one value."""

SHORT = {"n": "np", "c": "np", "H": "host", "V": "version", "v": "verbose"}
SHORT |= {"h": "help", "p": "parseable", "s": "preload-binary"}
SYNONYMS = {"mapby": "map-by", "rankby": "rank-by", "bindto": "bind-to"}
SYNONYMS |= {"rtos": "runtime-options", **SHORT}

MCA = frozenset({"mca", "omca", "gmca", "gomca", "prtemca", "pmixmca"})
"""Options with two values."""

PRRTE = Syntax(FLAGS, VALUED, MCA, SYNONYMS)

_ORTE_FLAGS = """
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
"""

_ORTE_VALUED = """
am app bind-to cf cpu-list cpu-set cpus-per-proc cpus-per-rank debugger
default-hostfile help hnp host hostfile launch-agent machinefile map-by
max-restarts max-vm-size N np npernode npersocket ompi-server output-filename
path personality ppr prefix preload-files rank-by rankfile report-events
report-pid report-uri stdin timeout tune wd wdir x xml-file xterm
"""

ORTE_MCA = frozenset({"mca", "gmca"})
_ORTE_SHORT = {"n": "np", "c": "np", "H": "host", "V": "version", "v": "verbose"}
_ORTE_SHORT |= {"h": "help", "q": "quiet", "s": "preload-binary", "rf": "rankfile"}
_ORTE_SHORT |= {"d": "debug-devel", "cartofile": "cf"}

ORTE = Syntax(
    frozenset(_ORTE_FLAGS.split()),
    frozenset(_ORTE_VALUED.split()),
    ORTE_MCA,
    _ORTE_SHORT,
)
"""Of Open MPI 4.1: what ``mpirun --help all`` of 4.1.4 and 4.1.8 lists."""
