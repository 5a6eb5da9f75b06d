"""The command blocks of docs/: run as they stand, or read by our own parser.

A block in bash is run, all of a page in order, unless a comment above it says what it
needs: ``<!-- needs: Slurm -->``. Then its lines of CloudColl are parsed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from command_lines import joined, parse
from mpis import patient, piped

from cloudcoll import lab as labs
from cloudcoll.errors import UsageError

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"(<!-- needs: [^\n]+ -->\n)?```bash\n(.*?)^```$", re.M | re.S)
IN_LAB = ("vms", "slurm", "torch", "boosting", "own-line", "jobs", "costs")
"""Pages for a host from which jobs are started, beginning with the one that probes."""
WORD = re.compile(r"(?:\w+=\S+ )*cloudcoll ")


def blocks(page: str, *, marked: bool) -> list[str]:
    """Return the blocks of a page that need something, or those that do not."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return [code for mark, code in BLOCK.findall(text) if bool(mark) is marked]


def lines(code: str) -> Iterator[list[str]]:
    """Yield what follows the name of CloudColl in each of its commands."""
    for line in joined(code).splitlines():
        words = shlex.split(line, comments=True)
        text = shlex.join(words)
        if match := WORD.match(text):
            yield shlex.split(text[match.end() :])
        # What another program is to start.
        yield from map(shlex.split, re.findall(r"'cloudcoll ([^']+)'", line))


MARKED = [
    (page.stem, words)
    for page in PAGES
    for code in blocks(page.stem, marked=True)
    for words in lines(code)
]


@pytest.mark.parametrize(
    "words", [words for _, words in MARKED], ids=[" ".join(w) for _, w in MARKED]
)
def test_what_needs_a_cluster_is_understood(words: list[str]) -> None:
    """Tests command, options and their values."""
    parse(words)


def test_no_block_is_left_out() -> None:
    """Tests that each page is one whose blocks run, and that no command hides."""
    assert len(MARKED) > 30
    for page in PAGES:
        ours = page.stem in (*IN_LAB, "start")
        assert ours or not blocks(page.stem, marked=False), page
        rest = BLOCK.sub("", page.read_text())
        assert not re.findall(r"^(?: {4}|\$ )cloudcoll ", rest, re.M), page
    for wrong in (["probe", "--hostfil", "x"], ["daemon", "--every", "often"]):
        with pytest.raises((click.UsageError, UsageError)):
            parse(wrong)


Shell = Callable[..., str]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Run a page's blocks as one script, stopping at the first that fails."""
    folder = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDCOLL_HOME", str(folder / "state"))
        patch.setenv("COLUMNS", "80")
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")

        def run(page: str, lab: labs.Lab | None = None) -> str:
            code = joined("\n".join(blocks(page, marked=False)))
            # 1: some pairs gave no result, as may be on a busy machine.
            code = re.sub(
                r"^(.*cloudcoll probe .*)$", r"\1 || [ $? = 1 ]", code, flags=re.M
            )
            argv, env = ["bash", "-euxc", code], None
            if lab is not None:
                shutil.copy(lab.hostfile, folder / "hosts")
                argv, env = labs.exec_argv(lab, labs.HEAD, argv)
            started = piped(argv, env=env, cwd=folder)
            exit_code, said, errors = patient(started, 200)
            assert exit_code == 0, errors[-3000:]
            return said

        yield run


@pytest.mark.lab
@pytest.mark.alone
@pytest.mark.slow
def test_the_start_page(shell: Shell) -> None:
    """Tests that what a newcomer types ends in a measured gain."""
    said = shell("start")
    (gain,) = re.findall(r"([\d.]+) times as fast", said)
    assert float(gain) > 1.2
    (placed,) = re.findall(r"ranks 0 to 7 run on (.*)", said)
    assert sorted(placed.split()) == [f"vm-{number:02}" for number in range(1, 9)]
    assert placed.split() != sorted(placed.split())


@pytest.mark.lab
@pytest.mark.slow
def test_pages_for_those_who_start_jobs(shell: Shell) -> None:
    """Tests all pages whose commands are typed where jobs are started."""
    spec = labs.quick((3, 2, 3), nic=50e6, uplink=50e6, rtt=500e-6, preset="tuned")
    lab = labs.up(spec, "docs")
    try:
        for page in IN_LAB:
            shell(page, lab)
    finally:
        labs.down("docs")
