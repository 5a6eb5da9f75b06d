"""Which launchers this machine has, and what each would do with an order."""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.launch import HOST_LAUNCHERS, LAUNCHERS, Entry, launcher_version

ANSWER_SECONDS = 2.0
"""A launcher has this long to say its version; all are asked at once."""

INTERPRETERS = frozenset({"python", "pypy"})
"""Programs that can be a launcher and tell nothing of whether they are."""

Version = Callable[[str], str]


@dataclass(frozen=True)
class Found:
    """One launcher, as it is here.

    Attributes
    ----------
    title : str
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
) -> tuple[list[Found], dict[str, str]]:
    """Look for every launcher on a ``PATH``.

    Parameters
    ----------
    path : str
        Folders, as in the variable ``PATH``.
    version : callable, optional
        Returns what a program answers to ``--version``; runs it by default.

    Returns
    -------
    found : list of Found
        One for each launcher that is known, whether here or not.
    strangers : dict of str to str
        Programs with a launcher's name that are none of those, and why.
    """
    ask = version or functools.partial(launcher_version, seconds=ANSWER_SECONDS)
    programs = {entry: list(_programs(entry, path)) for entry in _entries()}
    asked = [entry for entry in LAUNCHERS if not entry.load().package]
    answers, strangers = _answers((p for e in asked for p in programs[e]), ask)
    found = []
    for entry in _entries():
        launcher = entry.load()
        own = programs[entry]
        if entry in asked:
            own = [p for p in own if p in answers and _is(entry, p, answers[p])]
            said = _number(answers[own[0]]) if own else ""
        else:
            said = package_version(launcher.package) if own else ""
        facts = (launcher.mechanism, launcher.source)
        found.append(Found(launcher.title, own[0] if own else "", said, *facts))
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


def _entries() -> tuple[Entry, ...]:
    return (*LAUNCHERS, *HOST_LAUNCHERS)


def _programs(entry: Entry, path: str) -> Iterator[str]:
    """Yield the paths of what can be it, mpirun.openmpi after mpirun."""
    for name in entry.programs.split():
        if name not in INTERPRETERS:
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
        told = dict(zip(each, pool.map(one, each), strict=True))
    answers = {program: text for program, (text, error) in told.items() if not error}
    return answers, {program: error for program, (_, error) in told.items() if error}


def _is(entry: Entry, program: str, answer: str) -> bool:
    """Return whether a program is this launcher; only the MPIs share names."""
    letters = re.match("[a-z_]*", os.path.basename(program))
    if letters is None or letters[0] not in entry.programs.split():
        return False
    shared = sum(entry.programs == other.programs for other in LAUNCHERS) > 1
    return not shared or entry.load().recognises((program,), lambda: answer)


def _number(text: str) -> str:
    """Return the first version number in a text."""
    found = re.search(r"\d+(?:\.\d+)+\w*", text)
    return found[0] if found else ""
