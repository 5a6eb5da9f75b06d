"""What `make docs` adds to the pages: files from elsewhere, and references.

A hook of MkDocs. Links are those that work in a checkout. Here they are turned to the
page that a file became; a file that became none is named, without a link.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

import cloudcoll
from cloudcoll.cli.commands import cloudcoll as commands

ROOT = Path(__file__).parents[2]
PROJECT = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "deploy/README.md",
    "probes/README.md",
)
"""Pages that are kept beside what they are about."""
LINK = re.compile(r"(?<!!)\[([^]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
CELL = re.compile(r"^# %%(?: \[markdown\])?.*$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    made = {f"project/{name}": (ROOT / name).read_text() for name in PROJECT}
    made["commands.md"] = "\n".join(_commands())
    made["api.md"] = "\n".join(_names())
    made["tutorial.md"] = _tutorial((ROOT / "docs" / "tutorial.py").read_text())
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links to files of the checkout to pages."""
    path = page.file.src_uri
    outside = path.startswith("project/")
    source = ROOT / (path.removeprefix("project/") if outside else f"docs/{path}")
    here = os.path.dirname(path)

    def turned(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        file = os.path.relpath(os.path.normpath(source.parent / target), ROOT)
        if file in PROJECT:
            place = f"project/{file}"
        elif file.startswith("docs/") and file.endswith((".md", ".svg")):
            place = file.removeprefix("docs/")
        elif (ROOT / file).exists():
            return text if file in text else f"{text} (`{file}`)"
        else:
            return match[0]
        return f"[{text}]({os.path.relpath(place, here or '.')}{anchor})"

    return LINK.sub(turned, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Mend what the theme leaves out for keyboards and screen readers."""
    output = output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
    return output.replace("<th></th>", "<td></td>")


def on_post_build(config: Any, **_: Any) -> None:
    """Leave out the page for servers that have not found one: a folder has none."""
    Path(config.site_dir, "404.html").unlink()


def _commands() -> Iterator[str]:
    """Yield the page that has each command's own help."""
    yield "# Commands\n\nWhat `--help` prints.\n"
    context = _context(commands, "cloudcoll")
    yield from _help(commands, context, 1)


def _context(
    command: click.Command, name: str, parent: click.Context | None = None
) -> click.Context:
    settings = {**command.context_settings, "terminal_width": 80}
    return click.Context(command, parent, name, **settings)


def _help(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    if context.parent is not None:
        yield f"\n{'#' * level} {context.command_path}\n"
    yield f"```text\n{command.get_help(context)}\n```"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            below = _context(inner, name, context)
            yield from _help(inner, below, level + 1)


def _names() -> Iterator[str]:
    """Yield the page of all public names, functions first."""
    yield "# From Python\n\n::: cloudcoll\n    options:\n      members: false"
    yield "      show_root_heading: false\n      show_root_toc_entry: false\n"
    for name in sorted(cloudcoll.__all__, key=lambda one: (one[0].isupper(), one)):
        yield f"::: cloudcoll.{cloudcoll._HOMES[name]}.{name}\n    options:"
        yield f"      heading: cloudcoll.{name}\n      toc_label: {name}\n"


def _tutorial(text: str) -> str:
    """Return a page of cells: what is marked as Markdown, and code."""
    parts = []
    marks = list(CELL.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=True):
        body = text[mark.end() : end].strip()
        if "[markdown]" in mark[0]:
            parts.append(re.sub(r"^# ?", "", body, flags=re.MULTILINE))
        else:
            parts.append(f"```python\n{body}\n```")
    return "\n\n".join(parts) + "\n"
