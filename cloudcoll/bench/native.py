"""Makes the C program that times MPI's collectives, with the user's own mpicc."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cloudcoll import files
from cloudcoll.bench.job import MPI_PROGRAM
from cloudcoll.errors import LaunchError
from cloudcoll.programs import program_folder

FLAGS = ("-O2", "-std=gnu11")
DEADLINE = 60.0
"""Seconds for the compiler."""
_TOLD = {"MPI4PY_LIBMPI", "MPI4PY_MPIABI"}
"""Variables that name the MPI for mpi4py."""


def mpi_program(
    backend: str | None, launcher: str, env: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the program that ranks of MPI are to run.

    The backend is ``mpi4py`` or ``c``; by default the first where this Python has it,
    and it is of the launcher's MPI. LaunchError without it and an mpicc.
    """
    if (backend or _usual(launcher, env)) == "mpi4py":
        return MPI_PROGRAM
    return (str(compile_bench(find_mpicc(launcher, env))),)


def _usual(launcher: str, env: Mapping[str, str]) -> str:
    there = importlib.util.find_spec("mpi4py") is not None
    return "mpi4py" if there and not _loads_another(launcher, env) else "c"


def _loads_another(launcher: str, env: Mapping[str, str]) -> bool:
    """Return whether mpi4py would load an MPI that is not the launcher's.

    Its wheels take the one that stands in this Python's prefix, if there is one
    (mpi4py 4.1), and ranks of another launcher would wait for each other for ever.
    """
    if not Path(launcher).name.startswith(("mpirun", "mpiexec")) or _TOLD & env.keys():
        return False
    found, own = shutil.which(launcher, path=env.get("PATH")), Path(sys.prefix)
    if found is None or not any((own / "lib").glob("libmpi.so*")):
        return False
    return Path(found).parent.resolve() != (own / "bin").resolve()


def find_mpicc(launcher: str, env: Mapping[str, str]) -> str:
    """Return the compiler of a launcher's MPI, or raise LaunchError.

    ``MPICC`` goes first, then what stands beside the launcher: another MPI's would
    start every rank in a world of its own.
    """
    if "MPICC" in env:
        return env["MPICC"]
    path = env.get("PATH")
    names = ["mpicc"]
    if found := shutil.which(launcher, path=path):
        # Debian has mpirun.mpich and mpicc.mpich.
        beside = [f"mpicc{Path(found).suffix}", "mpicc"]
        names = [*(str(Path(found).with_name(name)) for name in beside), *names]
    for name in names:
        if mpicc := shutil.which(name, path=path):
            return mpicc
    raise LaunchError(
        "bench needs mpi4py of the launcher's MPI or its mpicc, and found neither: pip "
        "install 'cloudcoll[mpi]' for both, or name an mpicc in MPICC"
    )


def compile_bench(mpicc: str) -> Path:
    """Return the compiled program, made anew where compiler or sources changed.

    It is kept in CloudColl's folder, which all hosts have to share. `mpicc` is a
    wrapper that knows ``-show``, as all do. LaunchError if it fails, in words of its
    own on stderr, or if anybody may put a program of their own into the folder.
    """
    folder = program_folder() / "native"
    sources = sorted(folder.glob("*.c"))
    texts = [path.read_bytes() for path in sorted(folder.glob("*.[ch]"))]
    digest = hashlib.sha256(b"\0".join([_run(mpicc, "-show"), *texts])).hexdigest()
    program = files.state_dir() / "bench" / digest[:16]
    if program.parent.exists() and not _is_closed(program.parent):
        raise LaunchError(
            f"everybody may write to {program.parent}, from where the bench is run: "
            "chmod o-w, or set CLOUDCOLL_HOME to another folder"
        )
    if not (program.exists() and _is_ours(program)):
        # A reader sees all of it or nothing.
        made = program.with_name(f".{program.name}.{os.getpid()}")
        try:
            made.parent.mkdir(parents=True, exist_ok=True)
            _run(mpicc, *FLAGS, "-o", str(made), *map(str, sources), "-lm")
            made.rename(program)
        except OSError as error:
            raise LaunchError(
                f"{mpicc} left no program at {made}: {error.strerror}"
            ) from error
    return program


def _is_closed(path: Path) -> bool:
    return not path.stat().st_mode & stat.S_IWOTH


def _is_ours(path: Path) -> bool:
    return path.stat().st_uid in (0, os.geteuid()) and _is_closed(path)


def _run(*argv: str) -> bytes:
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, timeout=DEADLINE, check=True
        )
    except OSError as error:
        raise LaunchError(f"cannot run {argv[0]}: {error.strerror}") from error
    except subprocess.SubprocessError as error:
        raise LaunchError(
            f"{argv[0]} did not compile the bench (see its own words above): name "
            "another one in MPICC, or use --backend mpi4py"
        ) from error
    return done.stdout
