from __future__ import annotations

import pytest

from cloudcoll.report.document import Document, Figure, Section, Table


def never() -> str:
    raise AssertionError("text draws nothing")


@pytest.fixture
def document() -> Document:
    """A report with one of everything."""
    table = Table(("order", "time"), (("given", "3 s"), ("a|b", "1 s")))
    section = Section(
        "Times", ("Half of *it*.",), (Figure("bars", never),), table, ("├─ a  b",)
    )
    return Document("Title", ("It is faster.",), ("It is old.",), (section,))


def test_markdown_has_tables_and_code(document: Document) -> None:
    """Tests headings, a table whose words are escaped, and lines kept as they are."""
    blocks = document.to_markdown().split("\n\n")
    assert blocks[:4] == ["# Title", "It is faster.", "## Warnings", "* It is old."]
    assert "Half of \\*it\\*." in blocks
    assert "| order | time |\n| --- | --- |\n| given | 3 s |\n| a\\|b | 1 s |" in blocks
    assert blocks[-1] == "```\n├─ a  b\n```\n"


def test_text_has_columns(document: Document) -> None:
    """Tests that the summary comes first, and columns line up."""
    lines = document.to_text().splitlines()
    assert lines[:4] == ["Title", "=====", "", "It is faster."]
    assert lines[-4:] == ["order  time", "given  3 s", "a|b    1 s", "├─ a  b"]


def test_what_needs_its_figures_is_left_out() -> None:
    """Tests that a section of figures alone is in neither text nor Markdown."""
    maps = Section("Maps", ("Rows send.",), (Figure("map", never),))
    document = Document("Title", ("Fast.",), sections=(maps, Section("Rest", ("x",))))
    for text in (document.to_text(), document.to_markdown()):
        assert "Rest" in text
        assert "Maps" not in text
        assert "Rows" not in text


def test_text_fits_a_terminal() -> None:
    """Tests that paragraphs are wrapped."""
    text = Document("Title", ("word " * 100,)).to_text()
    assert max(map(len, text.splitlines())) <= 80
