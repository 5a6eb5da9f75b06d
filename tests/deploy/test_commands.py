"""Every command line of CloudColl in deploy/, read by its own parser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from command_lines import joined, parse

from cloudcoll.errors import UsageError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy"
Words = list[str]


def unfolded(path: Path) -> str:
    """Return a file's text with continued lines joined."""
    return joined(path.read_text())


def of_units() -> Iterator[Words]:
    for path in sorted((FOLDER / "systemd").glob("*.service")):
        (line,) = re.findall(r"^ExecStart=(.*)$", unfolded(path), re.MULTILINE)
        # Of several words or none, by default none.
        yield shlex.split(line.replace("$OPTIONS", ""))[1:]


def of_manifests() -> Iterator[Words]:
    """Yield what containers run, the image's entry point being `cloudcoll`."""

    def walk(value: Any) -> Iterator[Words]:
        if isinstance(value, dict):
            words = value.get("command", ["cloudcoll"]) + value.get("args", [])
            if "image" in value and words[0] == "cloudcoll" and len(words) > 1:
                yield words[1:]
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    for path in sorted((FOLDER / "k8s").rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield from walk(document)


def of_scripts() -> Iterator[Words]:
    """Yield what shell starts, its variables as cloudcoll.env has them."""
    settings = (FOLDER / "slurm" / "cloudcoll.env").read_text()
    (solve,) = re.findall(r'^SOLVE="(.*)"$', settings, re.MULTILINE)
    for path in sorted((FOLDER / "slurm").glob("*.sh")):
        for line in re.findall(r'bin/cloudcoll" ([^&>\n]*)', unfolded(path)):
            yield shlex.split(line.replace("$SOLVE", solve))


def of_words() -> Iterator[Words]:
    """Yield what is written for people: in backticks, blocks or comments."""
    texts = [
        path for path in FOLDER.rglob("*") if path.suffix in {".md", ".yaml", ".yml"}
    ]
    texts += [ROOT / "docs" / name for name in ("kubernetes.md", "slurm.md")]
    for path in sorted(texts):
        lines = re.findall(
            r"(?:`|^#? {2,4}|^)cloudcoll ([^`\n]*)", unfolded(path), re.M
        )
        # One word alone is a command's name.
        yield from (shlex.split(line) for line in lines if " " in line)


SOURCES = {
    "systemd": (of_units, 2),
    "k8s": (of_manifests, 6),
    "slurm": (of_scripts, 2),
    "words": (of_words, 5),
}
"""Where command lines are, and how many at least."""
LINES = [(name, words) for name, (find, _) in SOURCES.items() for words in find()]


@pytest.mark.parametrize(
    "words", [words for _, words in LINES], ids=[" ".join(words) for _, words in LINES]
)
def test_a_command_line_is_understood(words: Words) -> None:
    """Tests command, options and their values."""
    parse(words)


def test_all_places_were_searched() -> None:
    """Tests that no kind of file hides its command lines, and that errors show."""
    for name, (find, least) in SOURCES.items():
        assert len(list(find())) >= least, name
    for wrong in (
        ["probe", "--hostfil", "x"],
        ["daemon", "--every", "often"],
        ["none"],
    ):
        with pytest.raises((click.UsageError, UsageError)):
            parse(wrong)
