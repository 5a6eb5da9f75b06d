from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.daemon.responses import PAGES, answer
from cloudcoll.daemon.view import GroupView, HostView, MapView, View
from cloudcoll.rankmap import RankMap

MAP = RankMap(("a", "b"), (1, 1), predicted={"cloudcoll": 1.0})
FILE = b"cloudcoll-snapshot 1 " + b"d" * 64 + b" 4\nsnap"
VIEW = View(
    version="1",
    now=1000.0,
    started=0.0,
    phase="calm",
    key="k",
    hosts=(HostView("a", 1e-4), HostView("b", failed="gone")),
    groups=(GroupView("1", ("a", "b"), up=0.5),),
    snapshot=Path("a.snap"),
    digest="d" * 64,
    confirmed=990.0,
    stale_after=60.0,
    maps=(MapView("q", MAP, 1.25),),
    counts={"probes": 3},
)


def test_the_map_of_a_question() -> None:
    """Tests that a known question gets its map, an unknown one the digest."""
    for path in ("/v1/map", "/v1/map?question=q"):
        told = answer(path, VIEW)
        assert told.status == 200
        assert RankMap.from_json(told.body.decode()) == MAP
    other = answer("/v1/map?question=r", VIEW)
    assert other.status == 404
    assert json.loads(other.body)["snapshot"] == VIEW.digest


def test_the_snapshot_of_these_hosts_only(tmp_path: Path) -> None:
    """Tests that a snapshot goes to those who ask for its hosts."""
    path = tmp_path / "a.snap"
    path.write_bytes(FILE)
    view = replace(VIEW, snapshot=path)
    assert answer("/v1/snapshot", view).body == FILE
    assert answer("/v1/snapshot?hosts=k", view).body == FILE
    assert answer("/v1/snapshot?hosts=other", view).status == 404


def test_a_snapshot_that_is_no_longer_there(tmp_path: Path) -> None:
    """Tests that a file that is gone, or is another's, is not given to anyone."""
    path = tmp_path / "a.snap"
    view = replace(VIEW, snapshot=path)
    told = answer("/v1/snapshot", view)
    assert (told.status, b"No such file" in told.body) == (503, True)
    path.write_bytes(FILE.replace(b"d", b"e"))
    told = answer("/v1/snapshot", view)
    assert (told.status, b"another probe" in told.body) == (503, True)


@pytest.mark.parametrize(
    "view",
    [
        replace(VIEW, confirmed=900.0),
        replace(VIEW, confirmed=math.nan),
        replace(VIEW, confirmed=2000.0),
        replace(VIEW, snapshot=None, confirmed=math.nan),
    ],
    ids=["stale", "never", "the clock went back", "empty"],
)
def test_what_is_not_confirmed_is_not_given(view: View) -> None:
    """Tests that old, never confirmed and missing figures are all refused."""
    for path in ("/v1/map", "/v1/snapshot", "/healthz"):
        assert answer(path, view).status == 503
    assert answer("/healthz", VIEW).status == 200


def test_status_is_strict_json() -> None:
    """Tests that NaN, which JSON has not, becomes null, and bytes stay out."""
    status = json.loads(answer("/v1/status", VIEW).body)
    assert status["hosts"][1] == {"name": "b", "rtt_s": None, "failed": "gone"}
    assert status["maps"][0]["order"] == ["a", "b"]
    assert "snapshot" not in status


@pytest.mark.parametrize("hosts", [2, 3, 4, 5, 16, 1000])
def test_metrics_have_few_series(hosts: int) -> None:
    """Tests that no network makes more than 5 series a host."""
    names = [f"vm-{i}" for i in range(hosts)]
    pairs = [tuple(names[i : i + 2]) for i in range(0, hosts, 2)]
    view = replace(
        VIEW,
        hosts=tuple(HostView(name, 1e-4) for name in names),
        groups=tuple(
            GroupView(str(i), group, 1.0, 1.0, 1.0) for i, group in enumerate(pairs)
        )
        if hosts > 2
        else (),
    )
    text = answer("/metrics", view).body.decode()
    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(series) <= 5 * hosts
    assert len({line.rsplit(" ", 1)[0] for line in series}) == len(series)
    assert f'cloudcoll_host_up{{host="vm-{hosts - 1}"}} 1' in series


def test_metrics_escape_what_prometheus_would_read() -> None:
    """Tests that a quote, a backslash or a line's end in a name breaks no line."""
    view = replace(VIEW, hosts=(HostView('a"\\\nb', 1e-4),))
    assert 'host="a\\"\\\\\\nb"' in answer("/metrics", view).body.decode()


def test_no_text_of_others_is_raw() -> None:
    """Tests that names and troubles move no cursor and are always UTF-8."""
    odd = "x\x1b]0;\x07\r\n\u202e\udc80\u2028"
    view = replace(VIEW, snapshot=None, trouble=odd, hosts=(HostView(odd, failed=odd),))
    for path in PAGES:
        text = answer(path, view).body.decode()
        assert {c for c in text if not c.isprintable()} <= {"\n"}
    told = answer("/healthz", replace(view, confirmed=0.0))
    assert told.body == rb"x\x1b]0;\x07\r\n\u202e\udc80\u2028" + b"\n"


def test_the_page_runs_nothing_of_what_it_shows() -> None:
    """Tests that a host's name is text on the page."""
    view = replace(VIEW, hosts=(HostView("<script>"),))
    page = answer("/", view)
    assert page.type.startswith("text/html")
    assert b"<script>" not in page.body


@given(st.text(max_size=2000))
def test_any_path_is_answered(path: str) -> None:
    """Tests that no path, sensible or not, raises."""
    told = answer(path, VIEW)
    assert told.status in (200, 400, 404, 414)
    assert told.status != 200 or path.partition("?")[0].partition("#")[0] in PAGES
