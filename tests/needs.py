"""What some tests need beyond the packages of README.md, and how to get it.

A test is skipped only by an entry of this table: the last lines of `make test` say
from it what was not tried and why.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

ROOT_FOLDER = Path(__file__).parents[1]
ADMINISTRATORS = f"{os.environ['PATH']}:/usr/sbin"
"""Where Debian's programs are."""


@dataclass(frozen=True)
class Need:
    """What some tests can't do without.

    Attributes
    ----------
    name : str
    covers : str
        What is not tried without it.
    get : str
        How to get it: a command line, or words.
    here : bool
    excused : bool
        Where `CLOUDCOLL_NO_SKIP` forbids to skip tests, those that lack this may
        be: it can't be installed, has 200 MB, or is the machine's owner's to decide.
    """

    name: str
    covers: str
    get: str
    here: bool
    excused: bool = False

    @property
    def reason(self) -> str:
        """What the report of a skipped test says."""
        return f"needs {self.name}"

    @property
    def mark(self) -> pytest.MarkDecorator:
        """Skips a test where this is missing."""
        return self.unless(self.here)

    def unless(self, here: object) -> pytest.MarkDecorator:
        """Skip a test that can't do without a certain part of this."""
        return pytest.mark.skipif(not here, reason=self.reason)

    def skip(self) -> NoReturn:
        """Skip the test that is running."""
        pytest.skip(self.reason)


def program(*names: str) -> bool:
    """Whether all of these programs are installed."""
    return all(shutil.which(name, path=ADMINISTRATORS) for name in names)


def module(name: str) -> bool:
    """Whether Python can import it."""
    return importlib.util.find_spec(name) is not None


def apt(*packages: str) -> str:
    """Return the command that installs packages of Debian."""
    return f"apt-get install {' '.join(packages)}"


def pip(*requirements: str) -> str:
    """Return the command that installs packages from PyPI."""
    return f".venv/bin/pip install {shlex.join(requirements)}"


def _whole_history() -> bool:
    """Whether git knows all commits of this checkout."""
    asked = ("git", "rev-parse", "--is-shallow-repository")
    if not program("git"):
        return False
    done = subprocess.run(asked, cwd=ROOT_FOLDER, capture_output=True, check=False)
    return done.stdout == b"false\n"


SLURM_PROGRAMS = ("slurmctld", "slurmd", "srun", "salloc", "sinfo", "munged")

SLURM = Need(
    "Slurm",
    "jobs, probes and scripts in a real Slurm",
    apt("slurmctld", "slurmd", "slurm-client", "munge", "libpmix-dev"),
    program(*SLURM_PROGRAMS),
)
DEBIAN_OPEN_MPI = Need(
    "Debian's Open MPI",
    "Open MPI 4 and its Fortran",
    apt("openmpi-bin", "libopenmpi-dev"),
    program("mpirun.openmpi", "mpicc.openmpi"),
)
DEBIAN_MPICH = Need(
    "Debian's MPICH",
    "MPICH with UCX and its Fortran",
    apt("mpich", "libmpich-dev"),
    program("mpiexec.mpich", "mpicc.mpich"),
)
WHEELS = Need(
    "further MPIs from PyPI",
    "Open MPI 4.1, MPICH 4.3 and 5, Intel MPI",
    ".ci/mpis",
    len([*ROOT_FOLDER.glob(".mpi/*")]) >= 4,
)
FORTRAN = Need(
    "gfortran", "Fortran's three bindings", apt("gfortran"), program("gfortran")
)
TORCH = Need(
    "torch",
    "torchrun, Gloo's probes and benches, training",
    pip("torch==2.13.*"),
    module("torch"),
)
ACCELERATE = Need(
    "accelerate", "its launcher", pip("accelerate==1.*"), module("accelerate")
)
DEEPSPEED = Need(
    "DeepSpeed",
    "its launcher",
    pip("deepspeed==0.19.*"),
    module("deepspeed"),
)
PDSH = Need("pdsh", "DeepSpeed's launcher", apt("pdsh"), program("pdsh"))
XGBOOST = Need(
    "XGBoost",
    "its tracker, and training with it",
    ".venv/bin/pip install --no-deps 'xgboost==3.*'",
    module("xgboost"),
)
SSHD = Need(
    "OpenSSH's server",
    "a probe over a real sshd",
    apt("openssh-server"),
    program("sshd"),
)
OPENSSL = Need(
    "openssl",
    "the certificates of SECURITY.md",
    apt("openssl"),
    program("openssl"),
)
BROWSER = Need(
    "a browser",
    "how pages look",
    apt("chromium-headless-shell"),
    program("chromium-headless-shell"),
)
AXE = Need(
    "a browser with axe",
    "that pages can be used by all",
    f"{apt('chromium-headless-shell')} && .venv/bin/python -m pip install --no-deps "
    "'axe-playwright-python==0.1.*'",
    BROWSER.here and module("axe_playwright_python"),
)
SYSTEMD = Need(
    "systemd",
    "the units, read by systemd",
    apt("systemd"),
    program("systemd-analyze"),
)
CLOUD_INIT_SCHEMA = [
    path
    for base in (ROOT_FOLDER / ".cloud-init", Path("/"))
    if (
        path := base / "usr/lib/python3/dist-packages/cloudinit/config/schemas"
        "/schema-cloud-config-v1.json"
    ).is_file()
]
CLOUD_INIT = Need(
    "cloud-init",
    "the user data, by its schema",
    "apt-get download cloud-init && dpkg -x cloud-init_*.deb .cloud-init",
    bool(CLOUD_INIT_SCHEMA),
)
SIMGRID = Need(
    "SimGrid",
    "the scale study",
    apt("libsimgrid-dev", "g++"),
    program("smpirun", "g++"),
)
MUSL = Need("musl", "a program of another libc", apt("musl-tools"), program("musl-gcc"))
VALGRIND = Need(
    "valgrind", "memory of what NCCL loads", apt("valgrind"), program("valgrind")
)
GLIBC = Need(
    "glibc",
    "what goes back to the system",
    "on Debian or Ubuntu",
    platform.libc_ver()[0] == "glibc",
)
ROOT = Need(
    "root",
    "Slurm's daemons, which give up their groups, and what labs do as root",
    "sudo make test",
    os.geteuid() == 0 and Path("/proc/self/setgroups").read_text() == "allow\n",
    excused=True,
)
SETUID = Need(
    "programs that are setuid",
    "that the loader keeps libraries out of them",
    "as root, where the temporary folder is not mounted with nosuid",
    os.geteuid() == 0,
    excused=True,
)
HISTORY = Need(
    "this repository's history",
    "that figures are of commits which are part of it",
    "git clone, without --depth, as your own user",
    _whole_history(),
    excused=True,
)
QUIET = Need(
    "a quiet machine",
    "what measures",
    "again, while nothing else computes here",
    True,
)
GPU = Need(
    "a GPU",
    "NCCL on real GPUs",
    "on a machine with an NVIDIA GPU",
    Path("/dev/nvidiactl").exists(),
    excused=True,
)
CUDA = Need(
    "torch with CUDA and NCCL", "NCCL on real GPUs", pip("torch"), module("torch")
)
NCCL = Need(
    "NCCL",
    "the shim with NCCL's own library",
    pip("nvidia-nccl-cu12"),
    "CLOUDCOLL_NCCL" in os.environ or (module("nvidia") and module("nvidia.nccl")),
    excused=True,
)
WIRES = Need(
    "a kernel without netem",
    "the lab's own wires",
    "on such a kernel; with netem it delays packets itself",
    True,
)
IPV6 = Need(
    "IPv6",
    "sockets of mapped addresses",
    "on a kernel that has it",
    Path("/proc/net/tcp6").exists(),
)
CLONE = Need(
    "git's folder",
    "that figures are recorded with their commit",
    "in a clone",
    (ROOT_FOLDER / ".git").exists(),
)

NEEDS = {need.reason: need for need in [*globals().values()] if isinstance(need, Need)}


def need_of(report: str) -> Need | None:
    """Return the entry that the report of a skipped test names, if it names one."""
    return NEEDS.get(report.removeprefix("Skipped: "))


def summary(reports: Iterable[str]) -> list[str]:
    """Return what was not tried and how to get it, in plain words.

    Parameters
    ----------
    reports : iterable of str
        What the report of each skipped test says.
    """
    counts = Counter(need_of(report) for report in reports)
    if not counts:
        return ["No test was skipped."]
    lines = [f"Not tried here: {_tests(counts.total())}."]
    for need, count in counts.most_common():
        if need is not None:
            lines.append(f"  {need.name} ({_tests(count)}: {need.covers}): {need.get}")
    return [*lines, "All that can be installed comes with .ci/run."]


def _tests(count: int) -> str:
    return f"{count} test{'s' * (count != 1)}"
