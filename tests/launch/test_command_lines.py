"""Every launcher's commands, and those refused: tests/data/command_lines.txt."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from cloudcoll.errors import CloudcollError
from cloudcoll.launch import (
    HOST_LAUNCHERS,
    LAUNCHERS,
    LaunchPlan,
    host_launcher,
    parse_launch,
    plan_launch,
)
from cloudcoll.launch.own_host import OwnHost
from cloudcoll.launch.wrapper import Inbox
from cloudcoll.rankmap import RankMap

TABLE = Path(__file__).parents[1] / "data" / "command_lines.txt"
ORDER = RankMap(tuple("acb"), (2, 2, 2))
INBOX = Inbox(("10.0.0.1",), 99, "t")

SAYS = {
    "Open MPI 5": "mpirun (Open MPI) 5.0.11\n",
    "Open MPI 4.1": "mpirun (Open MPI) 4.1.8\n",
    "MPICH": "HYDRA build details:\n    Version:                 4.3.2\n",
    "Intel MPI": "Intel(R) MPI Library for Linux* OS, Version 2021.18.1\n",
    "Slurm": "slurm 24.05.1\n",
    "PALS": "mpiexec (PALS) 1.4.0\n",
}
"""What launchers that share a name, or are asked, print with ``--version``."""

FILES = {
    "hosts": "a slots=2\nb slots=2\nc slots=2\n",
    "machines": "a:2\nb:2\nc:2\n",
    "nodes": "a\na\nb\nb\nc\nc\n",
    "mlist": "a 1\na 2\nb 1\nb 2\nc 1\nc 2\n",
    "train.conf": "task = train\nnum_machines = 2\n",
    "flux": "#!/bin/sh\necho a,b,c\n",
}


class Row(NamedTuple):
    """A command of the table: what is started and written, or why it is refused."""

    title: str
    typed: str
    started: str = ""
    files: tuple[str, ...] = ()
    refused: str = ""


def rows() -> Iterator[Row]:
    text = re.sub(r"\n +", " ", TABLE.read_text())
    for paragraph in text.split("\n\n")[1:]:
        title, *commands = re.split(r"\n\$ ", paragraph.strip())
        for command in commands:
            typed, result, *files = command.split("\n")
            if result[:2] == "! ":
                yield Row(title, typed, refused=result[2:])
                assert not files, title
                continue
            assert result[:2] == "> ", title
            yield Row(title, typed, result[2:], tuple(files))


ROWS = list(rows())


def name_of(row: Row) -> str:
    """Return the name of a test: a title, and what is refused."""
    return f"{row.title}: {row.typed}" if row.refused else row.title


def planned(row: Row) -> LaunchPlan:
    """Return the plan for what is typed, the variables in front of it set."""
    words = shlex.split(row.typed)
    env = {}
    while "=" in words[0]:
        name, _, env[name] = words.pop(0).partition("=")
    if here := host_launcher(words):
        return here.plan(words, env, OwnHost(ORDER, Path("/map"), "c"))
    says = SAYS.get(row.title.partition(",")[0], "")
    request = replace(parse_launch(words, env, lambda: says), inbox=INBOX)
    return plan_launch(request, ORDER, directory=Path("/job"))


def spelled(word: str) -> tuple[str, ...]:
    """Return a word of the table as it is; of REPORT(RANK,HIDDEN,...) what it means."""
    found = re.fullmatch(r"REPORT\((.+)\)", word)
    if not found:
        return (word,)
    rank, *hidden = found[1].split(",")
    return INBOX.wrap((), rank, hidden)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_command_line(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that every word of the command, and every file, is what the table has."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "flux").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    if row.refused:
        with pytest.raises(CloudcollError, match=re.escape(row.refused)) as caught:
            planned(row)
        assert "\n" not in str(caught.value)
        return
    plan = planned(row)
    setting = [f"{name}={value}" for name, value in plan.env.items()]
    expected = [part for word in shlex.split(row.started) for part in spelled(word)]
    assert [*setting, *plan.argv] == expected
    written = (line.split(": ") for line in row.files)
    assert plan.files == {
        path: "".join(f"{line.strip()}\n" for line in text.split(";"))
        for path, text in written
    }


def test_every_launcher_is_in_the_table() -> None:
    """Tests that no launcher comes without what it starts, and what it refuses."""
    titles = {row.title for row in ROWS}
    for entry in (*LAUNCHERS, *HOST_LAUNCHERS):
        title = entry.load().title.partition(" (")[0].partition(" launch")[0]
        kinds = ("minimal", "maximal", "refused")
        assert {f"{title}, {kind}" for kind in kinds} <= titles
