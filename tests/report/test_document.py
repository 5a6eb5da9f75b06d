from __future__ import annotations

from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

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


class Tags(HTMLParser):
    """Collects the tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def rendered(text: str) -> Tags:
    """Return what a reader of Markdown makes of a report with a text everywhere."""
    table = Table((text, "b"), ((text, text),))
    section = Section(text, (text,), (), table, (text,))
    value = Document(text, (text,), (text,), (section,))
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return Tags(reader.render(value.to_markdown()))


@pytest.mark.parametrize(
    "text",
    [
        *("# head", "> said", "- item", "+ item", "1. item", "2) item", "---", "==="),
        *("    code", "<script>x</script>", "<b>", "[x](http://y)", "![x](y)", "~~x~~"),
        *(
            "`x`",
            "```",
            "``````\nx",
            "*x*",
            "__x__",
            "a | b",
            "\\",
            "&lt;",
            "<http://x>",
        ),
        *("[x]: http://y", "x\n\n# head", "x\n===", "\\# x", "\ttab"),
    ],
)
def test_markup_of_others(text: str) -> None:
    """Tests that a text of somebody else's is text in Markdown, wherever it stands."""
    found, plain = rendered(text), rendered("words")
    assert found.tags == plain.tags
    assert text.split("\n")[0].strip() in found.text
