"""What a search says while it goes on, and how it is ended."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from cloudcoll import work
from cloudcoll.arrays import Ints
from cloudcoll.cli import main, output
from cloudcoll.measured import synth
from cloudcoll.model.cost import Cost, CostModel
from cloudcoll.solve import SOLVERS, Watch
from cloudcoll.solve.rules import Rules


@pytest.fixture
def snap(tmp_path: Path) -> str:
    """A snapshot of three uneven racks, too many hosts for the exact solver."""
    fabric = synth.racks((5, 4, 2), seed=4)
    path = tmp_path / "net.snap"
    synth.observe(fabric).with_fabric(fabric).save(path)
    return str(path)


def test_a_short_search_says_nothing(
    snap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that patience comes first."""
    monkeypatch.setattr(work, "PATIENCE_S", 1e9)
    assert main(["solve", snap, "--algorithm", "ring"]) == 0
    assert capsys.readouterr().err == ""


def test_a_long_search_says_one_line(
    snap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that nobody who only reads a log gets a bar, and stdout stays clean."""
    monkeypatch.setattr(work, "PATIENCE_S", 0.0)
    assert main(["solve", snap, "--algorithm", "ring"]) == 0
    said = capsys.readouterr()
    assert said.err == "cloudcoll: searching orders of 11 hosts\n"
    assert said.out.startswith("rank map for")


def test_who_watches_sees_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a terminal gets a bar on stderr, which goes away at the end."""
    monkeypatch.setattr(work, "PATIENCE_S", 0.0)
    monkeypatch.setattr(output, "progress_wanted", lambda: True)
    with output.TERMINAL.searching(11) as tell:
        tell(1, 8)
        tell(8, 8)
    said = capsys.readouterr()
    assert said.out == ""
    assert "cloudcoll:" not in said.err


def test_a_bench_says_at_once_how_long_it_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests that a log has a line before minutes of silence, and one alone."""
    with output.TERMINAL.measuring(140.0) as on_row:
        assert (
            capsys.readouterr().err == "cloudcoll: measuring, at most about 2.33 min\n"
        )
        on_row({}, 70.0)
    with output.TERMINAL.measuring():
        pass
    assert capsys.readouterr().err == ""


def test_who_watches_sees_how_long_other_work_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a bar comes when patience is over, goes at the end, and only once."""
    shown, bars = threading.Event(), []
    real = output._bar

    def bar(*given: Any) -> Any:
        made = real(*given)
        bars.append((made, made.live.is_started))
        shown.set()
        return made

    monkeypatch.setattr(output, "_bar", bar)
    monkeypatch.setattr(work, "PATIENCE_S", 0.0)
    with output.TERMINAL.waiting("building a lab"):
        pass
    assert not shown.is_set()
    monkeypatch.setattr(output, "progress_wanted", lambda: True)
    with output.TERMINAL.waiting("building a lab"):
        assert shown.wait(60)
    assert not any(isinstance(it, threading.Timer) for it in threading.enumerate())
    ((made, was_shown),) = bars
    assert was_shown
    assert not made.live.is_started
    shown.clear()
    capsys.readouterr()
    monkeypatch.setattr(work, "PATIENCE_S", 1e6)
    with output.TERMINAL.waiting("building a lab"):
        pass
    assert not shown.is_set()
    assert capsys.readouterr().err == ""


def test_time_is_a_cap(snap: str, caplog: pytest.LogCaptureFixture) -> None:
    """Tests that a search cut short answers all the same, and says what that means."""
    assert main(["solve", snap, "--algorithm", "ring", "--time", "1e-9"]) == 0
    assert "may differ on another machine" in caplog.text
    assert main(["solve", snap, "--time", "0"]) == 2


def test_ctrl_c_leaves_no_map(
    snap: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that an order that depends on when it was interrupted is never kept."""
    local = SOLVERS["local"]

    def interrupted(
        model: CostModel, starts: list[Ints], rules: Rules, seed: int, watch: Watch
    ) -> tuple[Ints, Cost]:
        def tell(done: int, planned: int) -> None:
            signal.raise_signal(signal.SIGINT)

        return local(model, starts, rules, seed, Watch(tell=tell))

    monkeypatch.setitem(SOLVERS, "local", interrupted)
    path = tmp_path / "map.json"
    assert main(["solve", snap, "--algorithm", "ring", "-o", str(path)]) == 130
    assert not path.exists()
    assert capsys.readouterr().err == "cloudcoll: interrupted\n"
