from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import browser
import needs
import pytest

from cloudcoll.bench.result import BenchRun
from cloudcoll.errors import UsageError
from cloudcoll.measured import synth
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.report.bench import median_error
from cloudcoll.report.document import Document, to_html
from cloudcoll.report.story import tell

MIB = 1 << 20
VOID = {"br", "link", "meta"}
BROWSER = shutil.which("chromium-headless-shell") or ""
LOOK = """<script>addEventListener("load", () => {
  const box = text => text.getBoundingClientRect();
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  const found = [...document.querySelectorAll("svg")].map(svg =>
    [...svg.querySelectorAll("text")].filter(text => text.textContent.trim()));
  document.title = JSON.stringify({
    texts: found.flat().length,
    wide: document.documentElement.scrollWidth > innerWidth,
    overlaps: found.flatMap(all => all.filter((one, i) => all.slice(i + 1).some(
      other => over(box(one), box(other))))).map(text => text.textContent)});
})</script>"""


def make_run(given: float, ours: float, hosts: int = 4, repeats: int = 6) -> BenchRun:
    """Return a bench of two orders, microseconds given, at two sizes."""
    names = tuple(f"vm-{number}" for number in range(1, hosts + 1))
    rows = [
        {
            "op": "allreduce",
            "bytes": size,
            "order": order,
            "repeat": repeat,
            "time_us": time * size / MIB,
            "wrong": 0,
        }
        for size in (MIB, 4 * MIB)
        for order, time in (("given", given), ("cloudcoll", ours))
        for repeat in range(repeats)
    ]
    return BenchRun(
        metadata={
            "collective": "allreduce",
            "algorithm": "ring",
            "library": "Open MPI v5.0.11",
            "ranks": hosts,
            "hosts": list(names),
            "args": ["mpirun", "--hostfile", "<my hosts>"],
        },
        orders={"given": names, "cloudcoll": names[::-1]},
        same_as={"sorted": "given"},
        rows=tuple(rows),
        predicted={str(MIB): {"given": given * 1e-6, "cloudcoll": ours * 1.1e-6}},
    )


@pytest.fixture(scope="module")
def snapshot() -> NetworkSnapshot:
    """Two racks of two hosts, with their fabric."""
    fabric = synth.racks((2, 2), seed=3)
    return synth.observe(fabric, rounds=3).with_fabric(fabric)


@pytest.fixture(scope="module")
def page(snapshot: NetworkSnapshot) -> str:
    """A page with all there is, drawn once."""
    return to_html(tell([make_run(3000.0, 1000.0)], snapshot))


def warned(document: Document, words: str) -> bool:
    return any(words in warning for warning in document.warnings)


def test_the_first_sentence_is_the_gain() -> None:
    """Tests both times, the ratio with its interval, and what to do next."""
    document = tell([make_run(3000.0, 1000.0)], None)
    assert document.summary[0].startswith(
        "allreduce (ring) of 4 MiB takes 12 ms in the order you have and 4 ms in "
        "CloudColl's: 3.00x faster (95 % interval 3.00 to 3.00)."
    )
    assert "3.00x sorted" in document.summary[0]
    assert "cloudcoll run" in document.summary[-1]
    assert document.warnings == ()


def test_no_gain_is_an_answer() -> None:
    """Tests that equal orders lead to keeping the one that is there."""
    document = tell([make_run(1000.0, 1000.0)], None)
    assert "CloudColl would keep it" in document.summary[0]
    assert "keep the order you have" in document.summary[-1]


def test_one_measurement_has_no_interval() -> None:
    """Tests that what was measured once is not called certain."""
    document = tell([make_run(3000.0, 1000.0, repeats=1)], None)
    assert "3.00x faster (measured too seldom for an interval)" in document.summary[0]
    assert warned(document, "only 1 measurements")
    assert "measured too seldom" in to_html(document)


def test_a_loss_is_not_called_a_gain() -> None:
    """Tests an order that turned out slower than the one given."""
    document = tell([make_run(900.0, 1000.0)], None)
    assert "no gain (0.90x" in document.summary[0]
    assert "keep the order you have" in document.summary[-1]


def test_what_is_wrong_stands_in_front() -> None:
    """Tests wrong results and a job that died: named, and no advice to use them."""
    run = make_run(3000.0, 1000.0)
    rows = ({**run.rows[0], "wrong": 7}, *run.rows[1:-3])
    metadata = {**run.metadata, "failure": "mpirun ended with exit code 137"}
    document = tell([dataclasses.replace(run, rows=rows, metadata=metadata)], None)
    assert warned(document, "WRONG RESULTS, 7 elements, in order given")
    assert warned(document, "mpirun ended with exit code 137")
    assert warned(document, "only 3 measurements")
    assert "7 elements were WRONG" in document.summary[1]
    assert "measure again" in document.summary[-1]


def test_a_model_that_misses_is_doubted() -> None:
    """Tests the median error, and its warning."""
    run = make_run(3000.0, 1000.0)
    assert median_error([run]) == pytest.approx(0.05)
    far = {str(MIB): {"given": 9e-3, "cloudcoll": 3e-3}}
    assert warned(tell([dataclasses.replace(run, predicted=far)], None), "off by 200%")


def test_runs_that_cannot_be_compared_are_refused() -> None:
    """Tests that the difference is named."""
    with pytest.raises(UsageError, match="differ in their hosts"):
        tell([make_run(2.0, 1.0), make_run(2.0, 1.0, hosts=5)], None)


def test_what_readers_must_not_compare_is_marked() -> None:
    """Tests one collective with two libraries, or at other sizes; others are fine."""
    one = make_run(3000.0, 1000.0)
    mpich = dataclasses.replace(one, metadata={**one.metadata, "library": "MPICH 4"})
    document = tell([one, mpich], None)
    assert warned(document, "with Open MPI v5.0.11 and with MPICH 4")
    small = dataclasses.replace(
        one, rows=tuple(row for row in one.rows if row["bytes"] == MIB)
    )
    assert warned(tell([one, small], None), "at 1 MiB, 4 MiB; and at 1 MiB")
    other = {**mpich.metadata, "collective": "bcast"}
    assert not tell([one, dataclasses.replace(mpich, metadata=other)], None).warnings


def test_a_left_out_order_stands_in_front() -> None:
    """Tests that it is named with its reason, and the others are told of."""
    run = make_run(3000.0, 1000.0)
    metadata = {**run.metadata, "left_out": {"grouped = sorted": "no route"}}
    document = tell([dataclasses.replace(run, metadata=metadata)], None)
    assert warned(document, "ORDER grouped = sorted LEFT OUT")
    assert "3.00x faster" in document.summary[0]


class Page(HTMLParser):
    """Checks that elements nest, and collects what a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        found = dict(attrs)
        for key in ("src", "href", "xlink:href"):
            self.loads.append(found.get(key) or "#")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()


def test_a_page_needs_nothing_else(page: str) -> None:
    """Tests that a page has its drawings inside, no script, and loads nothing."""
    read = Page()
    read.feed(page)
    assert read.open == []
    assert read.tags.count("figure") == 5
    assert "script" not in read.tags
    assert all(load.startswith(("#", "data:")) for load in read.loads)
    assert "@import" not in page
    assert "&lt;my hosts&gt;" in page


def test_a_page_is_the_same_again(snapshot: NetworkSnapshot, page: str) -> None:
    """Tests that nothing random or of the clock is in a page."""
    document = tell([make_run(3000.0, 1000.0)], snapshot)
    drawn: list[tuple[float, float]] = []
    assert page == to_html(document, lambda *told: drawn.append(told))
    # What a bar shows meanwhile.
    assert drawn == [(done, 5) for done in range(5)]


@pytest.mark.system
@needs.BROWSER.mark
@pytest.mark.parametrize("width", [1100, 600])
def test_no_text_lies_over_another(page: str, tmp_path: Path, width: int) -> None:
    """Tests what a browser lays out: nothing overlaps or sticks out, no complaint."""
    path = tmp_path / "page.html"
    path.write_text(page + LOOK)
    options = ("--no-sandbox", f"--window-size={width},900")
    done = subprocess.run(
        [BROWSER, *options, "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    title = re.search("<title>(.*)</title>", done.stdout)
    assert title
    seen = json.loads(title[1])
    assert seen["texts"] > 40
    assert (seen["wide"], seen["overlaps"]) == (False, [])
    assert "CONSOLE" not in done.stderr


def test_many_hosts_share_cells() -> None:
    """Tests that a page of 300 hosts stays small, whatever was measured of pairs."""
    fabric = synth.racks((100, 200), seed=3)
    snapshot = synth.observe(fabric, samples=1, rounds=1).with_fabric(fabric)
    run = make_run(3000.0, 1000.0, hosts=300)
    names = {"given": snapshot.names, "cloudcoll": fabric.hosts}
    metadata = {**run.metadata, "hosts": list(snapshot.names)}
    run = dataclasses.replace(run, orders=names, metadata=metadata)
    text = to_html(tell([run], snapshot))
    assert "300 hosts, 3 in a cell" in text
    assert len(text) < 1_000_000


def test_without_a_snapshot_the_network_is_left_out() -> None:
    """Tests that the report says so."""
    sections = {one.title: one for one in tell([make_run(2.0, 1.0)], None).sections}
    assert "Groups and links" not in sections
    table = sections["Where this comes from"].table
    assert table is not None
    assert any("give --snapshot" in row[1] for row in table.rows)


@pytest.mark.slow
@pytest.mark.system
@needs.AXE.mark
def test_everybody_can_read_it(snapshot: NetworkSnapshot, tmp_path: Path) -> None:
    """Tests rules of accessibility, cut words and requests of each kind of report."""
    run = make_run(3000.0, 1000.0)
    seldom = make_run(3000.0, 1000.0, repeats=1)
    pages = {"whole": ([run, seldom], snapshot), "bare": ([run], None)}
    with browser.opened() as shown:
        for name, (runs, of) in pages.items():
            page = tmp_path / f"{name}.html"
            page.write_text(to_html(tell(runs, of)))
            assert browser.faults(shown, page, browser.VIEWS[::3]) == []


def test_what_was_not_measured_is_said(snapshot: NetworkSnapshot, page: str) -> None:
    """Tests that no bar of no length stands for what a job had no time for."""
    run = make_run(3000.0, 1000.0)
    assert "not measured" not in page
    kept = [row for row in run.rows if (row["bytes"], row["order"]) != (MIB, "given")]
    text = to_html(tell([dataclasses.replace(run, rows=tuple(kept))], snapshot))
    # The orders given and sorted, which are one, at one of two sizes.
    assert text.count("not measured") == 2


def test_drawings_say_what_they_show(page: str) -> None:
    """Tests that each has words for who can't see it."""
    drawings = re.findall(r"<svg[^>]*>", page)
    assert len(drawings) == 8
    assert all(re.search('role="img" aria-label="[^"]{20,}"', one) for one in drawings)
