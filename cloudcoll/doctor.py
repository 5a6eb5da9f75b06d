"""What this machine has of all that CloudColl can use, and what is missing.

Nothing is imported to find that out, and every question has a deadline.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from cloudcoll.files import state_dir
from cloudcoll.launch import shim
from cloudcoll.launch.shim import environment
from cloudcoll.launch.survey import Found, package_version, survey_launchers

TRIAL_SECONDS = 2.0
"""A namespace has this long to come up."""

PROGRAMS = (
    ("ssh", "probe hosts", "apt install openssh-client"),
    ("bash", "hear from ranks where they started", "apt install bash"),
    ("cc", "build the search engine and the lab's wires", "apt install gcc"),
    ("ip", "the lab's networks", "apt install iproute2"),
    ("tc", "the lab's rates", "apt install iproute2"),
    ("nsenter", "the lab's hosts", "apt install util-linux"),
    ("unshare", "the lab's hosts", "apt install util-linux"),
)

PACKAGES = (
    (("numpy",), "NumPy", "solve", "pip install numpy"),
    (("scipy",), "SciPy", "solve", "pip install scipy"),
    (("mpi4py",), "mpi4py", "probe and bench through MPI", "pip install mpi4py"),
    (("jinja2",), "Jinja2", "report in HTML", "pip install jinja2"),
    (("matplotlib",), "Matplotlib", "report in HTML", "pip install matplotlib"),
    (("cryptography",), "cryptography", "agent certs", "pip install cryptography"),
    (("torch",), "torch", "probe --via torch", "pip install torch"),
    (
        ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"),
        *("NCCL", "probe --via torch --backend nccl"),
        "comes with torch for CUDA",
    ),
)

REINSTALL = "install cloudcoll again, with a C compiler"

SHIMS = (
    (shim.LIBRARY, "the shim for MPI", "run --inject shim, --profile"),
    (shim.NCCL, "the shim for NCCL", "run --library nccl --inject shim"),
    (environment.LIBRARY, "the shim for ranks", "export --format environment"),
)


@dataclass(frozen=True)
class Finding:
    """One thing that is here or missing.

    Attributes
    ----------
    name : str
    here : str
        Where it is or which version; empty if it is missing.
    use : str
        What it is for.
    remedy : str
        How to get it.
    """

    name: str
    here: str
    use: str
    remedy: str


@dataclass(frozen=True)
class Examination:
    """All that was found.

    Attributes
    ----------
    launchers : list of Found
    strangers : dict of str to str
        Programs with a launcher's name that are none that is known, and why.
    python : str
        Version of the running Python.
    packages, programs, shims, permissions : list of Finding
    """

    launchers: list[Found]
    strangers: dict[str, str]
    python: str
    packages: list[Finding]
    programs: list[Finding]
    shims: list[Finding]
    permissions: list[Finding]


def examine(env: Mapping[str, str]) -> Examination:
    """Look around on this machine.

    Parameters
    ----------
    env : mapping of str to str
        The environment; its ``PATH`` is searched.
    """
    path = env.get("PATH", os.defpath)
    launchers, strangers = survey_launchers(path)
    return Examination(
        launchers,
        strangers,
        platform.python_version(),
        packages=[
            Finding(name, next(filter(None, map(package_version, options)), ""), *rest)
            for options, name, *rest in PACKAGES
        ],
        programs=[
            Finding(name, shutil.which(name, path=path) or "", *rest)
            for name, *rest in PROGRAMS
        ],
        shims=[
            Finding(name, str(path) if path.is_file() else "", use, REINSTALL)
            for path, name, use in SHIMS
        ],
        permissions=[_state(), _namespaces(path)],
    )


def _state() -> Finding:
    """Return whether snapshots and maps can be kept."""
    folder = state_dir()
    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    may = os.access(nearest, os.W_OK | os.X_OK) and nearest.is_dir()
    remedy = "name another folder with CLOUDCOLL_HOME"
    return Finding("state folder", str(folder) if may else "", "keep results", remedy)


def _namespaces(path: str) -> Finding:
    """Return whether the lab may have networks of its own."""
    unshare = shutil.which("unshare", path=path)
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    allowed = ""
    if unshare:
        try:
            argv = [unshare, *user, "--net", "true"]
            tried = subprocess.run(argv, capture_output=True, timeout=TRIAL_SECONDS)
            allowed = "" if tried.returncode else "allowed"
        except (OSError, subprocess.TimeoutExpired):
            allowed = ""  # as good as forbidden
    remedy = (
        "run as root, or allow unprivileged user namespaces (sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0)"
    )
    return Finding("network namespaces", allowed, "the lab", remedy)
