"""Pages for ``man``: what is in them, and that troff reads it as it was meant."""

from __future__ import annotations

import re

import pytest

from cloudcoll.cli.commands import COMMANDS, SECTIONS
from cloudcoll.cli.completion import man_pages

MACROS = {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".RS", ".RE", ".nf", ".fi"}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """All pages."""
    return man_pages()


def test_every_command_has_a_page(pages: dict[str, str]) -> None:
    """Tests commands, and those below a command."""
    assert {f"cloudcoll-{name}.1" for name in COMMANDS} < set(pages)
    assert {"cloudcoll.1", "cloudcoll-lab-fault-slow.1"} < set(pages)


def test_a_page_says_what_the_help_says(pages: dict[str, str]) -> None:
    """Tests name, options, and examples with their lines kept."""
    page = pages["cloudcoll-solve.1"]
    head = r"cloudcoll\-solve \- find the order of hosts in which a collective runs"
    assert f"\n{head} fastest\n" in page
    assert "\n.B cloudcoll solve\n[OPTIONS] SNAP\n" in page
    option = r"\fB\-o, \-\-output PATH\fR"
    assert f"\n.TP\n{option}\nWrite the map.\n" in page
    kept = page[page.index(".nf\n") + 4 : page.index(".fi\n")].splitlines()
    assert len(kept) > 5
    assert all(line.startswith("cloudcoll solve cluster.snap") for line in kept)
    assert r"\-h, \-\-help" in page
    assert "\nPATH" not in pages["cloudcoll-show.1"].partition(".SH OPTIONS")[2]


def test_the_first_page_has_the_sections_of_the_help(pages: dict[str, str]) -> None:
    """Tests that it names each page, by what one is about to do."""
    page = pages["cloudcoll.1"]
    assert re.findall(r"^\.SS (.*)$", page, re.M) == list(SECTIONS)
    named = re.findall(r"^\\fBcloudcoll\\-(\w+)\\fR\(1\)$", page, re.M)
    assert sorted(named) == sorted(COMMANDS)


def test_no_text_is_taken_for_a_macro(pages: dict[str, str]) -> None:
    """Tests that what begins with a point is ours, and no mark of click's is left."""
    for name, page in pages.items():
        for line in page.splitlines():
            assert not line.startswith("'"), name
            assert not line.startswith(".") or line.split()[0] in MACROS, name
        assert "\b" not in page
        assert not re.search(r"(?<!\\)-(?!\d)", page.partition("\n")[2]), name
