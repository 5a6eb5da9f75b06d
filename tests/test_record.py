"""The record of figures: clean commits only, and what a command wrote there."""

from __future__ import annotations

import json
import math
import os
import re
import select
import shutil
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT))
    from benchmarks import record

FIGURE = {"what": "a gain", "value": 3.5, "low": 3.0, "high": 4.0, "unit": "x"}
WRITES = f"""
import json, sys
path = sys.argv[sys.argv.index("--json") + 1]
open(path, "w").write(json.dumps({FIGURE | {"interval": "95 %"}}))
"""


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *who, *words], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a commit of a script that writes a figure."""
    if not shutil.which("git"):
        pytest.skip("no git")
    git(tmp_path, "init", "--quiet")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "script.py").write_text(WRITES)
    (tmp_path / record.NAME).write_text("")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def take(root: Path, *words: str, minutes: float = 1.0) -> list[record.Entry]:
    return record.take(["python", "script.py", *words], minutes, root)


def test_a_figure_is_kept_with_all_that_it_came_of(repository: Path) -> None:
    """Tests value, unit, interval, commit, machine, time and the command typed."""
    take(repository, "--racks", "4,4", "a word")
    (entry,) = record.entries(repository)
    assert entry["command"] == "python script.py --racks 4,4 'a word'"
    assert git(repository, "rev-parse", "HEAD").startswith(entry["commit"])
    assert len(entry["commit"]) == 12
    assert entry["machine"]
    assert abs(time.time() - time.mktime(_when(entry))) < 86400
    assert {k: entry[k] for k in (*FIGURE, "interval")} == FIGURE | {"interval": "95 %"}
    # The record itself may differ: figures are taken one after the other.
    take(repository)
    assert len(record.entries(repository)) == 2


def _when(entry: record.Entry) -> time.struct_time:
    return time.strptime(entry["time"], "%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("name", ["script.py", "another.py"])
def test_a_dirty_tree_is_refused(repository: Path, name: str) -> None:
    """Tests that neither changed nor new files are measured."""
    with (repository / name).open("a") as file:
        file.write("# changed\n")
    with pytest.raises(record.NotRecordedError, match=name):
        take(repository)
    assert record.entries(repository) == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (WRITES + "sys.exit(3)\n", "exit code 3"),
        ("pass\n", "wrote no figures"),
        (WRITES + "open('left', 'w')\n", "left"),
        (
            WRITES + "import subprocess\n"
            "who = ['-c', 'user.name=a', '-c', 'user.email=a@example.org']\n"
            "git = ['git', *who, 'commit', '--allow-empty', '-qm', 'second']\n"
            "subprocess.run(git, check=True)\n",
            "another commit",
        ),
    ],
)
def test_nothing_is_kept_of_a_run_that_went_wrong(
    repository: Path, script: str, why: str
) -> None:
    """Tests failures, silence, and a tree or commit that changed meanwhile."""
    (repository / "script.py").write_text(script)
    git(repository, "commit", "--quiet", "--all", "--allow-empty", "--message", "own")
    with pytest.raises(record.NotRecordedError, match=why):
        take(repository)
    assert record.entries(repository) == []


def test_a_command_that_takes_too_long_is_stopped_with_what_it_started(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tests that it may clean up, and that none of its children is left."""
    pids = tmp_path_factory.mktemp("out") / "pids"
    (repository / "script.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '99'])\n"
        "try:\n"
        f"    open({str(pids)!r}, 'w').write(f'{{child.pid}} ')\n"
        "    time.sleep(99)\n"
        "finally:\n"
        f"    open({str(pids)!r}, 'a').write('cleaned up')\n"
    )
    git(repository, "commit", "--quiet", "--all", "--message", "slow")
    minutes = 0.02
    while not pids.exists():  # a busy machine takes longer to start it
        late = re.escape(f"more than {minutes} minutes")
        with pytest.raises(record.NotRecordedError, match=late):
            take(repository, minutes=minutes)
        minutes = round(2 * minutes, 2)
    child, _, after = pids.read_text().partition(" ")
    assert after == "cleaned up"
    assert is_gone(int(child))


def is_gone(pid: int) -> bool:
    """Return whether a process that was killed has ended, or does so soon."""
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([ended], [], [], 10.0)[0])
    finally:
        os.close(ended)


def test_what_is_terminated_stops_its_command(repository: Path) -> None:
    """Tests that nothing goes on measuring when nobody waits for its figures."""
    (repository / "script.py").write_text(
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '99'])\n"
        "try:\n"
        "    print(child.pid, flush=True)\n"
        "    time.sleep(99)\n"
        "finally:\n"
        "    print('cleaned up', flush=True)\n"
    )
    git(repository, "commit", "--quiet", "--all", "--message", "slow")
    code = "import pathlib, sys; from benchmarks.record import main; "
    code += "main(pathlib.Path(sys.argv.pop(1)))"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(repository), "python", "script.py"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.terminate()
        assert process.communicate(timeout=120)[0] == "cleaned up\n"
    assert process.returncode == 143
    assert is_gone(child)


def test_commits_that_are_no_part_of_the_history_are_named(repository: Path) -> None:
    """Tests a commit that never was, one of another branch, and one of a dirty tree."""
    take(repository)
    known = record.entries(repository)[0]["commit"]
    git(repository, "checkout", "--quiet", "-b", "other")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "elsewhere")
    elsewhere = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "--quiet", "-")
    stamp = {"time": "", "machine": "", "what": "", "value": 1.0}
    wrong = ["0" * 12, elsewhere, f"{known}+"]
    with (repository / record.NAME).open("a") as file:
        file.writelines(json.dumps({**stamp, "commit": one}) + "\n" for one in wrong)
    assert record.unknown_commits(repository) == wrong


def test_an_interval_says_what_it_is() -> None:
    """Tests that nobody can write ends without a name, or a name without ends."""
    for more in ({"low": 1.0, "high": 2.0}, {"interval": "95 %"}):
        with pytest.raises(ValueError, match="says what it is"):
            record.Figure("a", 1.0, **more)


@pytest.mark.parametrize(
    ("number", "low", "high", "kind"),
    [
        # By a table of the sign test's critical values, two-sided, 5 %.
        (5, 1, 5, "range of 5"),
        (6, 1, 6, "95 %"),
        (8, 1, 8, "95 %"),
        (9, 2, 8, "95 %"),
        (12, 3, 10, "95 %"),
        (20, 6, 15, "95 %"),
        (90, 36, 55, "95 %"),
    ],
)
def test_intervals_of_medians(number: int, low: int, high: int, kind: str) -> None:
    """Tests which of the sorted measurements are the ends, and how that is called."""
    figure = record.median_of("a", reversed(range(1, number + 1)), "s")
    assert (figure.low, figure.high, figure.interval) == (low, high, kind)
    assert figure.value == (number + 1) / 2


def test_an_interval_of_six_covers_the_median_as_often_as_it_says() -> None:
    """Tests all halves of six that may lie below the median, each as likely."""
    outside = sum(
        1
        for below in range(7)
        for _ in combinations(range(6), below)
        if below in (0, 6)
    )
    assert 1 - outside / 2**6 >= 0.95
    assert record.median_of("a", range(6), "").interval == "95 %"


def test_one_measurement_has_no_interval() -> None:
    """Tests that there is nothing in brackets then."""
    figure = record.median_of("a", [2.0], "s")
    assert math.isnan(figure.low)
    assert figure.interval == ""


def test_the_script_prints_the_record() -> None:
    """Tests that a figure is printed with its commit, from the record that is here."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.record"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    last = record.entries()[-1]
    assert f"{last['what']} [{last['machine']}]" in done.stdout
