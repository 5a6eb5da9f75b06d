"""`make docs`: pages that are whole, work from a folder and send nobody anywhere."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import browser
import pytest
from needs import AXE, BROWSER

import cloudcoll
from cloudcoll import lab as labs
from cloudcoll.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REQUEST = re.compile(
    r"<(?:script|img|iframe|source)[^>]+src=\"?(https?:[^\"> ]+)"
    r"|<link[^>]+(?:stylesheet|icon|preload|preconnect)[^>]+href=\"?(https?:[^\"> ]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the pages as `make docs` does: a broken link or anchor is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_references_are_whole(site: Path) -> None:
    """Tests that each command and each public name has its place."""
    commands = (site / "commands.html").read_text()
    for name in COMMANDS:
        assert f'id="cloudcoll-{name}"' in commands
    names = (site / "api.html").read_text()
    for name in cloudcoll.__all__:
        assert f'id="cloudcoll.{cloudcoll._HOMES[name]}.{name}"' in names


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """Tests scripts, styles, pictures and fonts of every page."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        assert not REQUEST.findall(page.read_text()), page


def test_pictures_say_what_they_show(site: Path) -> None:
    """Tests the alternative text of all that is drawn."""
    for page in site.rglob("*.html"):
        for picture in re.findall(r"<img[^>]*>", page.read_text()):
            assert re.search(r'alt="[^"]{20,}"', picture), (page, picture)


@BROWSER.mark
def test_the_search_works_from_a_folder(site: Path) -> None:
    """Tests that a browser finds a word without a server."""
    done = subprocess.run(
        [
            shutil.which("chromium-headless-shell") or "",
            "--no-sandbox",
            "--virtual-time-budget=20000",
            "--dump-dom",
            f"{(site / 'glossary.html').as_uri()}?q=statistics",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.findall(r'href="(\S+)"[^>]*md-search-result__link', done.stdout)
    assert "data.html" in [Path(link.partition("?")[0]).name for link in found]


@pytest.mark.slow
@pytest.mark.system
@AXE.mark
def test_everybody_can_use_them(site: Path) -> None:
    """Tests rules of accessibility and requests: text, drawings, tables, reference."""
    with browser.opened() as shown:
        for name in ("index", "how-it-works", "jobs"):
            page = site / f"{name}.html"
            assert browser.faults(shown, page, browser.VIEWS[::3]) == []


def drawings() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "drawings", DOCS / "site" / "drawings.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_drawings_are_those_of_the_script() -> None:
    """Tests that nobody changed one without the other, and what is counted in them."""
    made = {name: draw() for name, draw in drawings().DRAWINGS.items()}
    stored = {path.name: path.read_text() for path in (DOCS / "drawings").iterdir()}
    assert stored == made
    assert "7 of 9 messages" in made["ring.svg"]
    assert "3 of 9 messages" in made["ring.svg"]
    # In Bruck's last step all eight ranks send four blocks each.
    assert "52 blocks leave" in made["bruck.svg"]
    assert "24 blocks leave" in made["bruck.svg"]


def test_messages_are_those_that_are_printed() -> None:
    """Tests each message of the page against the strings in the sources."""
    sources = "\n".join(path.read_text() for path in (ROOT / "cloudcoll").rglob("*.py"))
    sources = re.sub(r'"\s*\n\s*f?"', "", sources)
    page = (DOCS / "troubleshooting.md").read_text()
    messages = [
        message
        for entry in re.findall(r"^\* (`.*?`):", page, re.M)
        for message in re.findall(r"`([^`]+)`", entry)
    ]
    assert len(messages) > 20
    foreign = {"Permission denied", "Host key verification failed"}
    for message in set(messages) - foreign:
        # Without what is filled in: numbers, names, paths.
        parts = re.split(
            r"\.\.\.|[\d.]+%?\S*(?: h\b)?|vm-\d+|'default'|PATH\S*|\bN\b", message
        )
        for part in parts:
            words = part.strip(" ,:;()=")
            assert words in sources, (message, words)


@pytest.mark.lab
@pytest.mark.alone
@pytest.mark.slow
def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests it from the first line to the plots: the order that gains is measured."""
    monkeypatch.setenv("CLOUDCOLL_HOME", str(tmp_path / "state"))
    spec = labs.quick((3, 2, 3), nic=50e6, uplink=50e6, rtt=500e-6, preset="tuned")
    lab = labs.up(spec, "tutorial")
    try:
        argv, env = labs.exec_argv(
            lab,
            labs.HEAD,
            [sys.executable, str(DOCS / "tutorial.py"), str(lab.hostfile)],
        )
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        done = subprocess.run(
            argv,
            env=env,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
        )
    finally:
        labs.down("tutorial")
    assert done.returncode == 0, done.stderr
    (measured,) = re.findall(r"takes ([\d.]+) times as long", done.stdout)
    assert float(measured) > 1.2
    assert len(re.findall(r"^\d: .*uplink \d+ Mbit/s$", done.stdout, re.M)) == 3
    assert (tmp_path / "tutorial.png").read_bytes().startswith(b"\x89PNG")
    assert "vm-08" in (tmp_path / "tutorial.svg").read_text()
