from __future__ import annotations

import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import browser
import needs
import numpy as np
import pytest
from matplotlib.image import imread

from cloudcoll.arrays import Floats
from cloudcoll.daemon.page import (
    HEIGHT,
    MAX_CELLS,
    WIDTH,
    drift_of,
    network_of,
    render,
)
from cloudcoll.daemon.view import HostView, MapView, Point, Publication, View, clock
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.rankmap import RankMap

BROWSER = shutil.which("chromium-headless-shell") or ""
NOW = 1_800_000_000.0


def planted(*sizes: int) -> NetworkSnapshot:
    """Return a snapshot of racks, five times as far apart as they are wide."""
    fabric = racks(sizes)
    return replace(observe(fabric), fabric=fabric, created=NOW - 300.0)


@pytest.fixture
def view(tmp_path: Path) -> View:
    """A view with one of everything; an order of hosts that is too long to name."""
    snapshot = planted(5, 3, 2)
    digest = snapshot.save(tmp_path / "a.snap").digest
    names = snapshot.names
    schedule = {"collective": "allreduce", "algorithm": "ring", "size": 1 << 24}
    predicted = {"cloudcoll": 0.8, "given": 3.0}
    ranks = RankMap(names, (1,) * len(names), schedule, predicted)
    return View(
        version="1",
        now=NOW,
        started=0.0,
        phase="calm",
        hosts=(*map(HostView, names[1:]), HostView(names[0], failed="is <gone>")),
        snapshot=tmp_path / "a.snap",
        digest=digest,
        confirmed=NOW - 300.0,
        maps=(MapView("q", ranks, 1.25),),
        counts={"probes": 1234},
        history=tuple(Point(NOW - 60.0 * i, "up rack-1", 0.5) for i in (9, 5, 0)),
        published=(
            Publication(NOW - 400.0, kept=False, gain=0.54, reason="up <1>"),
            Publication(NOW - 200.0, kept=True, gain=0.0, reason="figures are old"),
        ),
        trouble="disk full",
    )


def test_the_page_says_it_all(view: View) -> None:
    """Tests the words, the tree and the map; text of others is no markup."""
    page = render(view)
    assert "10 hosts, calm, confirmed 5 min ago" in page
    assert "probes: 1,234" in page
    assert "<li>disk full</li>" in page
    assert f"<li>{view.hosts[-1].name} failed: is &lt;gone&gt;</li>" in page
    assert "group rack-2: 3 hosts" in page
    assert '<polyline class="up"' in page
    row = re.findall("<td>(.*)</td>", page)[0].split("</td><td>")
    assert row[0].startswith("allreduce ring of 16 MiB, 10 ranks")
    assert row[1:4] == ["800 ms", "3 s", "1.25x"]
    assert row[4].endswith("and 2 more")
    rows = re.findall("<td>(.*)</td>", page)[1:]
    when, *words = rows[1].split("</td><td>")
    assert when == clock(NOW - 400.0)
    assert words == ["new order", "54%", "up &lt;1&gt;"]
    assert rows[0].split("</td><td>")[1:] == ["figures", "0%", "figures are old"]


def test_the_page_is_alone_and_renews_itself(view: View) -> None:
    """Tests that there is no script, nothing to fetch, and a time to ask again."""
    page = render(view)
    assert '<meta http-equiv="refresh" content="30">' in page
    assert not re.search(r"<script|https?://|url\(|@import|<img", page)


def test_a_daemon_that_has_just_begun_has_a_page() -> None:
    """Tests that nothing measured draws nothing."""
    page = render(View(version="1", now=NOW, started=NOW))
    assert "0 hosts, empty." in page
    for mark in ("<rect", "<polyline", "<table", "<li>"):
        assert mark not in page


def test_a_snapshot_that_cannot_be_read_is_said(view: View) -> None:
    """Tests that the rest of the page is there all the same."""
    assert view.snapshot
    whole = view.snapshot.read_bytes()
    for left, why in (
        (whole[:-1], "the daemon&#39;s snapshot is truncated or damaged"),
        (planted(3, 3).to_bytes(), "another probe has replaced"),
    ):
        view.snapshot.write_bytes(left)
        page = render(view)
        assert why in page
        assert "<table" in page
        assert "<rect" not in page


def test_hosts_of_a_group_stand_side_by_side() -> None:
    """Tests that near pairs, and they alone, lie in the outlines."""
    heat = network_of(planted(5, 3, 2))
    assert [(round(start), round(size)) for start, size in heat.groups] == [
        (0, 5),
        (5, 3),
        (8, 2),
    ]
    rack = np.repeat([0, 1, 2], [5, 3, 2])
    assert len(heat.cells) == 90
    for cell in heat.cells:
        assert (cell.shade == 0) == (rack[cell.x] == rack[cell.y])
    assert len(heat.legend) == 4


def test_many_hosts_share_cells() -> None:
    """Tests that a large matrix stays small, and its last block is named."""
    snapshot = planted(*[10] * 12)
    heat = network_of(snapshot)
    assert heat.size == 40 <= MAX_CELLS
    assert heat.groups[-1] == pytest.approx((110 / 3, 10 / 3))
    assert snapshot.fabric is not None
    hosts = snapshot.fabric.hosts
    assert heat.cells[-1].title.startswith(f"{hosts[-3]} ... {hosts[-1]} to ")


def test_nothing_measured_has_no_legend() -> None:
    """Tests a snapshot of hosts that did not answer."""
    heat = network_of(NetworkSnapshot(planted(2, 2).hosts))
    assert (heat.size, heat.cells, heat.legend) == (4, (), ())


def test_drift_is_drawn_by_ratio() -> None:
    """Tests that twice and half are as far from the middle, and what is no ratio."""
    times = (100.0, 103.0, 106.0)
    values = {"rtt 1": (1.0, 4.0, 0.25), "up 1": (math.nan, 0.0, 1.0)}
    drift = drift_of(
        [
            Point(at, name, v)
            for name, vs in values.items()
            for at, v in zip(times, vs, strict=True)
        ],
        [
            Publication(when, kept, 0.1, "up 1")
            for when, kept in ((99.0, False), (103.0, False), (104.0, True))
        ],
    )
    assert drift is not None
    assert (drift.begin, drift.end, drift.factor) == (100.0, 106.0, 4.0)
    assert drift.marks == (WIDTH / 2,)
    middle = f"{HEIGHT / 2:.1f}"
    assert drift.lines == {
        "rtt 1": f"0.0,{middle} {WIDTH / 2:.1f},0.0 {WIDTH:.1f},{HEIGHT:.1f}",
        "up 1": f"{WIDTH:.1f},{middle}",
    }


def test_one_point_is_no_line() -> None:
    """Tests that nothing is drawn before two figures of a series are known."""
    assert drift_of([]) is None
    assert drift_of([Point(0.0, "up 1", 1.0), Point(0.0, "up 2", 1.0)]) is None


def screenshot(page: Path, scheme: int) -> Floats:
    """Return what a browser draws, RGB; scheme 0 is dark and 1 is light."""
    image = page.with_suffix(f".{scheme}.png")
    options = ["--no-sandbox", "--hide-scrollbars", "--window-size=900,2400"]
    colours = f"--blink-settings=preferredColorScheme={scheme}"
    done = subprocess.run(
        [BROWSER, *options, colours, f"--screenshot={image}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert image.exists(), done.stderr
    assert "CONSOLE" not in done.stderr
    pixels: Floats = (imread(image)[..., :3] * 255).round()
    return pixels


@pytest.mark.many
@pytest.mark.system
@needs.BROWSER.mark
@pytest.mark.parametrize(
    ("scheme", "page", "near", "far"),
    [(1, "ffffff", "e3eef9", "1d4f8c"), (0, "14181c", "1c3044", "a8d0f7")],
)
def test_a_browser_draws_it(
    view: View, tmp_path: Path, scheme: int, page: str, near: str, far: str
) -> None:
    """Tests the colours that appear in light and in dark, the heat map's most."""
    file = tmp_path / "page.html"
    file.write_text(render(view))
    pixels = screenshot(file, scheme)

    def share(colour: str) -> float:
        return float((pixels == list(bytes.fromhex(colour))).all(axis=2).mean())

    assert (pixels[-1, -1] == list(bytes.fromhex(page))).all()
    # 62 pairs of hosts apart, 28 near: racks of 5, 3 and 2.
    assert share(far) == pytest.approx(share(near) * 62 / 28, rel=0.1)
    assert share(far) > 0.05


@pytest.mark.system
@needs.AXE.mark
def test_everybody_can_use_it(view: View, tmp_path: Path) -> None:
    """Tests rules of accessibility, cut words and requests; who wants holds it still.

    The page that reloads itself breaks the one rule against that, as it must: the link
    to the other one is on it.
    """
    still, renewed = tmp_path / "still.html", tmp_path / "renewed.html"
    still.write_text(render(view, renews=False))
    renewed.write_text(render(view))
    with browser.opened() as shown:
        assert browser.faults(shown, still) == []
        shown.show(renewed, "light", 400)
        assert [rule for rule, *_ in shown.violations()] == ["meta-refresh"]
    assert '<a href="?still=1">' in renewed.read_text()


def test_rows_are_named_where_there_is_room() -> None:
    """Tests the names beside the heat map, without their domains."""
    heat = network_of(planted(2, 3))
    assert len(heat.names) == heat.size == 5
    assert network_of(planted(10, 15)).names == ()
