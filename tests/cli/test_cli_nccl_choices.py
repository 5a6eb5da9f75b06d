"""What NCCL was seen to take, in ``cloudcoll show`` and in predictions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudcoll.cli import main
from cloudcoll.libraries.nccl import CHOICES, HEAD


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log of a job of 8 ranks on 8 hosts, as the tuner plugin writes it."""
    lines = (
        *(HEAD, "8 8 allreduce 4 ring", "8 8 allreduce 1024 tree"),
        *(
            "8 8 allreduce 4 tree",
            "8 8 allreduce 1048576 ring",
            "2 2 broadcast 64 ring",
        ),
    )
    path = tmp_path / "choices"
    path.write_text("".join(line + "\n" for line in lines))
    return str(path)


def test_show(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests a line from each size on at which another algorithm is taken."""
    assert main(["show", log]) == 0
    head, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["ranks", "hosts", "collective", "from", "algorithm"]
    assert [row for row in rows if row[0].isdecimal()] == [
        ["2", "2", "bcast", "64", "B", "ring"],
        ["8", "8", "allreduce", "4", "B", "tree"],
        ["8", "8", "allreduce", "1", "MiB", "ring"],
    ]
    assert main(["show", log, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found] == ["ring", "tree", "tree", "ring"]
    assert found[1] == {
        "ranks": 8, "nodes": 8, "collective": "allreduce", "size": 4, "name": "tree"
    }  # fmt: skip


def test_predictions_follow_it(
    log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that no ring is assumed where the environment names the log."""
    argv = ["schedule", "--ranks", "8", "--bytes", "1K", "--library"]
    monkeypatch.setenv(CHOICES, log)
    assert main([*argv, "nccl@2.27", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["algorithm"] == "nccl_tree"
    assert "assumed" not in err
    monkeypatch.delenv(CHOICES)
    assert main([*argv, "nccl@2.27", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["algorithm"] == "nccl_ring"
    assert "a ring is assumed" in err
