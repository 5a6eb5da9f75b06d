"""``cloudcoll import`` and what reads its snapshots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudcoll.cli import main
from cloudcoll.measured.snapshot import load_snapshot
from cloudcoll.rankmap import load_rankmap

TREE = {
    "name": "core",
    "children": [
        {
            "name": rack,
            "uplink_bytes_per_s": 1e8,
            "children": [{"name": f"vm-{n}", "uplink_bytes_per_s": 1e8} for n in hosts],
        }
        for rack, hosts in (("left", (1, 3, 5)), ("right", (2, 4)))
    ],
}
ZONES = "vm-1 /z/left\nvm-3 /z/left\nvm-2 /z/right\nvm-4 /z/right\nvm-5 /z/right\n"


def written(path: Path, value: Any) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def test_an_imported_fabric_orders_a_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the way from a JSON tree over show and solve to a launch."""
    tree, snap = written(tmp_path / "t.json", TREE), str(tmp_path / "t.snap")
    assert main(["import", "fabric", tree, "-o", snap]) == 0
    out = capsys.readouterr().out
    assert f"fabric imported from {tree}" in out
    assert "group left: 3 hosts  up 800 Mbit/s" in out
    assert "warning" not in out
    assert main(["show", snap, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert sorted(map(len, shown["levels"][0]["groups"])) == [2, 3]
    hosts = written(
        tmp_path / "hosts", "".join(f"vm-{n} slots=1\n" for n in range(1, 6))
    )
    rank_map = str(tmp_path / "map.json")
    argv = ["solve", snap, "--hostfile", hosts, "--algorithm", "ring", "-o", rank_map]
    assert main(argv) == 0
    order = load_rankmap(rank_map).order
    assert {*order[:3]} == {"vm-1", "vm-3", "vm-5"}
    predicted = load_rankmap(rank_map).predicted
    assert predicted["given"] == pytest.approx(2 * predicted["cloudcoll"])


def test_run_takes_an_imported_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a launch is planned from a tree, in the order of its groups."""
    launcher = tmp_path / "mpirun"
    launcher.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n")
    launcher.chmod(0o755)
    tree, snap = written(tmp_path / "t.json", TREE), str(tmp_path / "t.snap")
    hosts = written(
        tmp_path / "hosts", "".join(f"vm-{n} slots=1\n" for n in range(1, 6))
    )
    assert main(["import", "fabric", tree, "-o", snap]) == 0
    argv = [str(launcher), "--hostfile", hosts, "./app"]
    options = ["--algorithm", "ring", "--snapshot", snap, "--dry-run"]
    assert main(["run", *options, *argv]) == 0
    assert "# order: vm-1 vm-3 vm-5" in capsys.readouterr().out


def test_labels_and_a_measurement_disagree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that the warning is printed and stays in the snapshot."""
    tree, snap = written(tmp_path / "t.json", TREE), str(tmp_path / "t.snap")
    assert main(["import", "fabric", tree, "-o", snap]) == 0
    labels, both = written(tmp_path / "zones", ZONES), str(tmp_path / "both.snap")
    assert main(["import", "labels", labels, "--with", snap, "-o", both]) == 0
    warning = "labels put vm-5 in right, measured it stands in group left with vm-1"
    assert warning in " ".join(capsys.readouterr().out.split())
    assert main(["show", both]) == 0
    assert warning in " ".join(capsys.readouterr().out.split())
    labelled = load_snapshot(both).hosts
    assert {host.name: host.labels["physicalHost"] for host in labelled} == {
        line.split()[0]: line.split()[1] for line in ZONES.splitlines()
    }


def test_other_formats_make_snapshots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests options of each format and --json."""
    conf = written(tmp_path / "topology.conf", "SwitchName=a Nodes=n[1-2] LinkSpeed=9")
    graph = {"instances": [{"id": "i-1", "network_layers": ["x"]}, {"id": "i-2"}]}
    rtt = written(tmp_path / "rtt.csv", "0,0.1\n0.1,0\n")
    bw = written(tmp_path / "bw.csv", "0,9\n9,0\n")
    hosts = written(tmp_path / "hosts", "n1 slots=4\nn2 slots=2\n")
    for argv in (
        ["slurm", conf, "--unit", "Gbit/s"],
        [
            *("topograph", written(tmp_path / "g.json", graph)),
            *("--names", written(tmp_path / "names", "i-1 n1\ni-2 n2\n")),
        ],
        [
            *("matrix", "--latency", rtt, "--unit", "ms", "--bandwidth", bw),
            *("--unit", "GB/s", "--hosts", hosts),
        ],
    ):
        snap = str(tmp_path / "x.snap")
        assert main(["import", *argv, "-o", snap, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["hosts"] == ["n1", "n2"]
        assert load_snapshot(snap).metadata["format"] == argv[0]
    assert [host.slots for host in load_snapshot(snap).hosts] == [4, 2]
    assert load_snapshot(snap).latency.values[0, 1] == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["fabric", "FILE"], 2, "Missing option '-o'"),
        (["fabric", "/none", "-o", "SNAP"], 2, "cannot read /none: No such file"),
        (["slurm", "FILE", "-o", "SNAP"], 2, "is not a line of topology.conf"),
        (["topograph", "FILE", "-o", "SNAP"], 2, "no 'instances' in it"),
        (["labels", "FILE", "-o", "SNAP"], 2, "no list of hosts in it"),
        (["matrix", "-o", "SNAP"], 2, "no matrix: name one"),
        (["matrix", "--latency", "FILE", "--unit", "h", "-o", "SNAP"], 2, "unit 'h'"),
        (["fabric", "FILE", "-o", "/proc/no/snap"], 3, "cannot write /proc/no/snap"),
        (["labels", "LINES", "--with", "FILE", "-o", "SNAP"], 3, "not a snapshot"),
    ],
)
def test_bad_input_to_import_is_named(
    tmp_path: Path,
    argv: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests message and exit code of wrong input, and that nothing is written."""
    files = {
        "FILE": written(tmp_path / "tree.json", TREE),
        "LINES": written(tmp_path / "zones", ZONES),
        "SNAP": str(tmp_path / "out.snap"),
    }
    assert main(["import", *(files.get(word, word) for word in argv)]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert not (tmp_path / "out.snap").exists()
