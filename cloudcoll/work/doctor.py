"""What this machine has of all that CloudColl can use, and what is missing.

Nothing is imported to find that out, and every question has a deadline.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.files import state_dir
from cloudcoll.lab.state import ROOT_FOLDERS
from cloudcoll.launch import (
    ALL_LAUNCHERS,
    INTERPRETERS,
    LAUNCHERS,
    LauncherEntry,
    launcher_version,
    shim,
)
from cloudcoll.libraries.question import dotted
from cloudcoll.libraries.torch import READ, WAYS, way_of

ANSWER_SECONDS = 2.0
"""A launcher has this long to say its version; all are asked at once."""

Version = Callable[[str], str]


@dataclass(frozen=True)
class FoundLauncher:
    """One launcher, as it is here.

    Attributes
    ----------
    program : str
        Path of the first of its programs on the PATH; empty if it is not here.
    version : str
        Empty where it does not say, or is not here.
    mechanism : str
        How it is given an order, and how that is read back.
    source : str
        Where it can be had.
    """

    title: str
    program: str
    version: str
    mechanism: str
    source: str


def survey_launchers(
    path: str, version: Version | None = None
) -> tuple[list[FoundLauncher], dict[str, str]]:
    """Look for every launcher on a ``PATH``.

    Return one `FoundLauncher` for each that is known, whether here or not, and the
    programs with a launcher's name that are none of those, and why. `version` returns
    what a program answers to ``--version``.
    """
    ask = version or functools.partial(launcher_version, seconds=ANSWER_SECONDS)
    programs = {entry: list(_programs(entry, path)) for entry in ALL_LAUNCHERS}
    asked = [entry for entry in LAUNCHERS if not entry.load().package]
    answers, strangers = _answers((p for e in asked for p in programs[e]), ask)
    found = []
    for entry in ALL_LAUNCHERS:
        launcher = entry.load()
        own = programs[entry]
        if entry in asked:
            own = [p for p in own if p in answers and _is(entry, p, answers[p])]
            said = _number(answers[own[0]]) if own else ""
        else:
            said = package_version(launcher.package) if own else ""
        facts = (launcher.mechanism, launcher.source)
        found.append(FoundLauncher(launcher.title, own[0] if own else "", said, *facts))
    known = {program for entry in asked for program in programs[entry]}
    for program in sorted(known & answers.keys()):
        if not any(_is(e, program, answers[program]) for e in asked):
            first = answers[program].strip().partition("\n")[0]
            strangers[program] = f"says {first or 'nothing'!r} to --version"
    return found, strangers


def package_version(name: str) -> str:
    """Return the version of a Python package without importing it, "" if none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _programs(entry: LauncherEntry, path: str) -> Iterator[str]:
    """Yield the paths of what can be it, mpirun.openmpi after mpirun."""
    for name in entry.programs.split():
        if name not in INTERPRETERS:  # they tell nothing of what they run
            if found := shutil.which(name, path=path):
                yield found
            for folder in path.split(os.pathsep):
                yield from sorted(map(str, Path(folder or ".").glob(f"{name}.*")))


def _answers(
    programs: Iterable[str], ask: Version
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what programs say of their version, and who does not answer."""
    each = list(dict.fromkeys(programs))

    def one(program: str) -> tuple[str, str]:
        try:
            return ask(program), ""
        except LaunchError as error:
            return "", str(error)

    with ThreadPoolExecutor(max(1, len(each))) as pool:
        results = dict(zip(each, pool.map(one, each), strict=True))
    answers = {program: text for program, (text, error) in results.items() if not error}
    return answers, {program: error for program, (_, error) in results.items() if error}


def _is(entry: LauncherEntry, program: str, answer: str) -> bool:
    """Return whether a program is this launcher; only the MPIs share names."""
    if not entry.may_be(program):
        return False
    shared = sum(entry.programs == other.programs for other in LAUNCHERS) > 1
    return not shared or entry.load().recognises((program,), lambda: answer)


def _number(text: str) -> str:
    """Return the first version number in a text."""
    found = re.search(r"\d+(?:\.\d+)+\w*", text)
    return found[0] if found else ""


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
    (shim.RANKS, "the shim for ranks", "export --format environment"),
)


@dataclass(frozen=True)
class Finding:
    """One thing that is here or missing.

    Attributes
    ----------
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
    strangers : dict of str to str
        Programs with a launcher's name that are none that is known, and why.
    python : str
        Version of the running Python.
    """

    launchers: list[FoundLauncher]
    strangers: dict[str, str]
    python: str
    packages: list[Finding]
    programs: list[Finding]
    shims: list[Finding]
    permissions: list[Finding]


def examine(env: Mapping[str, str]) -> Examination:
    """Look around on this machine, by the ``PATH`` of an environment."""
    path = env.get("PATH", os.defpath)
    launchers, strangers = survey_launchers(path)
    return Examination(
        launchers,
        strangers,
        platform.python_version(),
        packages=[
            *(
                Finding(
                    name, next(filter(None, map(package_version, options)), ""), *rest
                )
                for options, name, *rest in PACKAGES
            ),
            torch_groups(package_version("torch")),
        ],
        programs=[
            Finding(name, shutil.which(name, path=folders) or "", *rest)
            for name, *rest in PROGRAMS
            for folders in [f"{path}:{ROOT_FOLDERS}" if name == "tc" else path]
        ],
        shims=[
            Finding(name, str(path) if path.is_file() else "", use, REINSTALL)
            for path, name, use in SHIMS
        ],
        permissions=[_state(), _namespaces(path)],
    )


def torch_groups(version: str) -> Finding:
    """Return in which order a version of torch has its groups; "" is no torch."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    way = way_of(numbers)
    after = f"; {dotted(READ)} was read" if numbers > READ else ""
    (first,) = (dotted(one.since) for one in WAYS if one.groups)
    remedy = f"pip install 'torch>={first}'"
    if version and not way.groups:
        remedy += f" (here {version}: {way.words})"
    here = f"{way.words}{after}" if way.groups else ""
    return Finding("torch's groups", here, "cloudcoll.torch", remedy)


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
