"""A report as a value: as Markdown, plain text, or one HTML file.

The HTML needs nothing else: no script, no network.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cloudcoll.errors import UsageError
from cloudcoll.plain import columns, plain_line

if TYPE_CHECKING:
    import jinja2


def _no_one(done: float, planned: float) -> None:
    """Nobody wants to know how far it is."""


def to_html(document: Document, tell: Callable[[float, float], None] = _no_one) -> str:
    """Return the report as a page, if the packages that draw it are installed.

    `tell` is called with how many figures are drawn, and of how many.
    """
    for package in ("jinja2", "matplotlib"):
        if not find_spec(package):
            raise UsageError(
                f"a report in HTML needs {package}: pip install jinja2 matplotlib, "
                "or write it as .md or .txt"
            )
    count = sum(len(section.figures) for section in document.sections)
    drawn = 0

    def draw(figure: Figure) -> str:
        nonlocal drawn
        tell(drawn, count)
        drawn += 1
        return figure.draw()

    return page_template("cloudcoll.report").render(document=document, draw=draw)


def page_template(package: str) -> jinja2.Template:
    """Return the template ``page.html`` of a package; jinja2 has to be there."""
    import jinja2

    source = files(package).joinpath("page.html").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.from_string(source)


def _plain(value: object) -> object:
    """Return what stands in braces as it can be shown; drawings are so already."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return plain_line(value)
    return value


WIDTH = 80


@dataclass(frozen=True)
class Figure:
    """A drawing; text leaves it out.

    Attributes
    ----------
    draw : callable
        Returns SVG. Drawing takes a while, and text needs none.
    """

    caption: str
    draw: Callable[[], str]


@dataclass(frozen=True)
class Table:
    """Rows of words under a head."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> list[str]:
        """Return the table in columns, as wide as their widest word."""
        return columns([self.head, *self.rows])


@dataclass(frozen=True)
class Section:
    """A part with a title; what is empty is left out.

    Attributes
    ----------
    text : tuple of str
        Paragraphs.
    lines : tuple of str
        Whose spaces count: a tree, a command line.
    """

    title: str
    text: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    table: Table | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """A report.

    Attributes
    ----------
    summary : tuple of str
        What is gained, whether to trust it, what to do next.
    warnings : tuple of str
        Why not to trust it.
    """

    title: str
    summary: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    sections: tuple[Section, ...] = field(default=())

    @property
    def _worded(self) -> list[Section]:
        """The sections that say something without their figures."""
        return [
            section
            for section in self.sections
            if section.table or section.lines or not section.figures
        ]

    def to_markdown(self) -> str:
        """Return the report in Markdown, with tables as GitHub has them."""
        blocks = [f"# {_escaped(self.title)}", *map(_escaped, self.summary)]
        if self.warnings:
            blocks += ["## Warnings", _bullets(self.warnings)]
        for section in self._worded:
            blocks += [f"## {_escaped(section.title)}", *map(_escaped, section.text)]
            if section.table:
                blocks.append(_markdown_table(section.table))
            if section.lines:
                blocks.append(_fenced(section.lines))
        return "\n\n".join(blocks) + "\n"

    def to_text(self) -> str:
        """Return the report in plain text; paragraphs have 80 columns."""
        return "\n".join(map(plain_line, self._text_lines())) + "\n"

    def _text_lines(self) -> Iterator[str]:
        yield from (self.title, "=" * len(self.title))
        yield from _paragraphs(self.summary)
        if self.warnings:
            yield from _heading("Warnings")
            yield from _paragraphs(self.warnings)
        for section in self._worded:
            yield from _heading(section.title)
            yield from _paragraphs(section.text)
            lines = [*(section.table.lines() if section.table else ()), *section.lines]
            yield from ["", *lines] if lines else []


def _heading(title: str) -> list[str]:
    return ["", title, "-" * len(title)]


def _paragraphs(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        # Before it is wrapped: newlines would become spaces, words of others lines.
        lines = textwrap.wrap(plain_line(text), WIDTH, break_on_hyphens=False)
        yield from ["", *lines]


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"* {_escaped(text)}" for text in texts)


def _markdown_table(table: Table) -> str:
    head, *rows = (
        [_escaped(word).replace("|", "\\|") for word in row]
        for row in (table.head, *table.rows)
    )
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _fenced(lines: Sequence[str]) -> str:
    """Return lines as they are, between fences that none of them can close."""
    plain = [plain_line(line) for line in lines]
    fence = "`" * max(3, *(line.count("`") + 1 for line in plain))
    return "\n".join([fence, *plain, fence])


def _escaped(text: str) -> str:
    """Return text that Markdown takes for nothing else."""
    text = re.sub(r"([\\`*_<[&~])", r"\\\1", plain_line(text).strip())
    # What is markup only at the beginning: headings, quotes, rules, lists.
    return re.sub(r"^([#>+=-]|\d+(?=[.)]( |$)))", _marked, text)


def _marked(found: re.Match[str]) -> str:
    mark = found[1]
    return f"{mark}\\" if mark.isdecimal() else f"\\{mark}"
