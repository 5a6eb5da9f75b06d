"""The options of Open MPI 5's ``mpirun``, and where the program starts.

Names and arities are those of ``schizo_ompi.c`` in PRRTE 3.0.14.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cloudcoll.errors import LaunchError

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
"""Options with one value; ``--mca`` and its kin have two."""

SHORT = {"n": "np", "c": "np", "H": "host", "V": "version", "v": "verbose"}
SHORT |= {"h": "help", "p": "parseable", "s": "preload-binary"}
SYNONYMS = {"mapby": "map-by", "rankby": "rank-by", "bindto": "bind-to"}
SYNONYMS |= {"rtos": "runtime-options", **SHORT}

MCA = frozenset({"mca", "omca", "gmca", "gomca", "prtemca", "pmixmca"})


@dataclass(frozen=True)
class Option:
    """One option as it stands on a command line.

    Attributes
    ----------
    name : str
        Long name without dashes.
    values : tuple of str
        What belongs to it.
    start, end : int
        It is ``argv[start:end]``.
    """

    name: str
    values: tuple[str, ...]
    start: int
    end: int


def scan_options(argv: Sequence[str]) -> tuple[list[Option], int]:
    """Return the options and the index at which they end.

    The program follows there, after a ``--`` if there is one. ``mpirun``
    takes one dash for two before a long name.

    Raises
    ------
    LaunchError
        An option that is not known here, or one that lacks its value.
    """
    options = list(_options(argv))
    return options, options[-1].end if options else 1


def _options(argv: Sequence[str]) -> Iterator[Option]:
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] not in {"-", "--"}:
        word, equals, value = argv[at].lstrip("-").partition("=")
        name = SYNONYMS.get(word, word)
        count = 2 if name in MCA else int(name in VALUED)
        if not count and name not in FLAGS:
            raise LaunchError(f"{argv[0]} option {argv[at]!r} is not known here")
        if equals and count == 2:
            raise LaunchError(f"{argv[0]} option {argv[at]!r} takes two words, no '='")
        end = at + 1 if equals else at + 1 + count
        if end > len(argv):
            raise LaunchError(f"{argv[0]} option {argv[at]!r} lacks its value")
        values = (value,) if equals else tuple(argv[at + 1 : end])
        yield Option(name, values, at, end)
        at = end
