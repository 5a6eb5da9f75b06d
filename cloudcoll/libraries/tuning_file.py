"""A tuning as a file, for people who keep their own launch lines: `tuning_file`.

What `cloudcoll run --tune` adds is not in it: no rank looks whether all others have
the file, and nothing keeps operations that do not commute from Open MPI's rules.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from cloudcoll.errors import UsageError
from cloudcoll.libraries.tell import tell
from cloudcoll.libraries.tell_open_mpi import PREFIX
from cloudcoll.libraries.telling import NOTHING, Told, library_version
from cloudcoll.plain import plain_line
from cloudcoll.tuning import Tuning

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
    tuning : Tuning
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
        comments = _comments((*_of_rules(tuning, told, path), *wrong))
        return TuningFile(f"{first}\n{comments}{rest}", (*told.notes, *wrong))
    if key == "mpich":
        return TuningFile(told.file, (*told.notes, *_of_json(tuning, told, path)))
    head = [f"{_whose(tuning)}; before the command that starts the job:", f"  . {path}"]
    head += [ALSO[key]] if key in ALSO else []
    lines = (f"export {n}={shlex.quote(v)}\n" for n, v in told.variables.items())
    return TuningFile(_comments(head) + "".join(lines), told.notes)


def _whose(tuning: Tuning) -> str:
    local = f", {tuning.local} on each host" if tuning.local > 1 else ""
    # A name in a map may end in anything, and lines of shell follow.
    library = plain_line(tuning.library)
    return f"algorithms for {library}, {tuning.ranks} ranks{local}"


def _comments(lines: tuple[str, ...] | list[str]) -> str:
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
