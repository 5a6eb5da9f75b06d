"""A report as one HTML file that needs nothing else: no script, no network."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cloudcoll.errors import UsageError
from cloudcoll.plain import plain_line
from cloudcoll.report.document import Document

if TYPE_CHECKING:
    import jinja2


def to_html(document: Document) -> str:
    """Return the report as a page.

    Raises
    ------
    UsageError
        The packages that draw it are not installed.
    """
    for package in ("jinja2", "matplotlib"):
        if not find_spec(package):
            raise UsageError(
                f"a report in HTML needs {package}: pip install jinja2 matplotlib, "
                "or write it as .md or .txt"
            )
    return page_template("cloudcoll.report").render(document=document)


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
