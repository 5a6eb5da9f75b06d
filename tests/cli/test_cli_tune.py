"""``cloudcoll tune`` on a planted snapshot, by the model alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudcoll.cli import main
from cloudcoll.libraries.tell import tell
from cloudcoll.measured import synth
from cloudcoll.rankmap import load_rankmap

pytestmark = pytest.mark.usefixtures("small_search")

LIBRARY = ("--library", "openmpi@5.0.11")


@pytest.fixture
def snap(tmp_path: Path) -> str:
    """A snapshot of uneven racks."""
    fabric = synth.racks((5, 3, 6, 2))
    path = tmp_path / "net.snap"
    synth.observe(fabric, samples=2).with_fabric(fabric).save(path)
    return str(path)


def test_what_can_not_be_written_is_not_sought(
    snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests a folder in place of the map's file, beside hosts that nobody has."""
    taken = ["-o", str(tmp_path), "-w", "nobody"]
    for command in ["tune", snap, *LIBRARY], ["solve", snap]:
        assert main([*command, *taken]) == 3
        assert f"cannot write {tmp_path}: it is a folder" in capsys.readouterr().err


def test_tune_writes_a_map_with_the_choice(
    snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the table, the gain, and the map that carries both."""
    path = tmp_path / "map.json"
    assert main(["tune", snap, *LIBRARY, "-o", str(path)]) == 0
    out, err = capsys.readouterr()
    rank_map = load_rankmap(path)
    assert rank_map.tuning is not None
    assert rank_map.tuning.at("allreduce", 8 << 20).algorithm == "ring"  # type: ignore[union-attr]
    assert rank_map.tuning.at("allreduce", 1024).is_own  # type: ignore[union-attr]
    assert rank_map.order[0] == "vm-01"
    table = [line for line in out.splitlines() if line.startswith("allreduce  ")]
    assert table[0].split()[1:3] == ["up", "to"]
    assert "its own" in table[0]
    assert "rabenseifner" in table[-1]
    assert "ring" in table[-1]
    assert table[-1].endswith("x predicted")
    assert "order alone" in out
    assert "order and algorithms" in out
    assert "predicting what each algorithm takes" in err


def test_tune_prints_json(snap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests what programs read, for one size of several collectives."""
    asked = ("--collective", "allreduce,allgather", "--bytes", "8M", "--json")
    assert main(["tune", snap, *LIBRARY, *asked]) == 0
    data = json.loads(capsys.readouterr().out)
    gains = data["gains"]
    assert gains["given"] > gains["ordered"] > gains["tuned"] > 0
    assert {one["collective"] for one in data["choices"]} == {"allreduce", "allgather"}
    assert data["tuning"]["library"] == "openmpi@5.0.11"
    assert any(one["algorithm"] == "ring" for one in data["choices"])


def test_tune_takes_a_workload(
    snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a workload's calls are weighed, those of some ranks included."""
    job = {
        "library": "openmpi",
        "ranks": 16,
        "operations": [
            {"collective": "bcast", "bytes": "4M", "calls": 10},
            {"collective": "allreduce", "bytes": "8", "calls": 1000},
        ],
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    assert main(["tune", snap, *LIBRARY, "--workload", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    choices = {(one["collective"], one["least"]): one for one in data["choices"]}
    assert choices["allreduce", 0]["algorithm"] is None
    sent = {(one["collective"], one["bytes"]) for one in data["schedule"]["operations"]}
    assert sent == {("bcast", 4 << 20), ("allreduce", 8)}


def test_nothing_is_tuned_that_is_forced_already(
    snap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that a user's own settings win, with one line."""
    monkeypatch.setenv("OMPI_MCA_coll_tuned_allreduce_algorithm", "3")
    argv = ["tune", snap, *LIBRARY, "--collective", "allreduce,bcast"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert "coll_tuned_allreduce_algorithm is set: allreduce stays" in err
    assert not any(line.startswith("allreduce  ") for line in out.splitlines())
    assert main([*argv[:-1], "allreduce"]) == 2
    assert "nothing is left to choose" in capsys.readouterr().err


OVER_A_RING = "what NCCL takes by itself is not known: gains are over a ring"


def test_nccl_is_tuned_by_the_model(
    snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a tree is taken of what is small, of a version that has a tuner."""
    path = tmp_path / "map.json"
    assert main(["tune", snap, "--library", "nccl@2.27.5", "-o", str(path)]) == 0
    said = capsys.readouterr().err
    assert OVER_A_RING in said
    assert "gives a tuner only" not in said
    tuning = load_rankmap(path).tuning
    assert tuning is not None
    assert tuning.library == "nccl@2.27.5"
    assert tuning.at("allreduce", 1024).algorithm == "nccl_tree"  # type: ignore[union-attr]
    assert tell(tuning, nodes=16).variables["CLOUDCOLL_NCCL_TABLE"]


def test_settings_of_nccl_win(
    snap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that nothing is tuned where the user has another tuner."""
    monkeypatch.setenv("NCCL_TUNER_PLUGIN", "ofi")
    assert main(["tune", snap, "--library", "nccl@2.27"]) == 2
    said = capsys.readouterr().err
    assert "NCCL_TUNER_PLUGIN is set: allreduce stays as that says" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "SNAP | LAUNCHER"),
        (["{snap}"], "whose algorithms? add --library"),
        (["{snap}", "--library", "gloo"], "known of: openmpi, mpich"),
        (["{snap}", *LIBRARY, "more"], "is a snapshot: leave out 'more'"),
        (["{snap}", *LIBRARY, "--collective", "alltoal"], "can't be told which"),
        (["{snap}", *LIBRARY, "--collective", "barrier"], "can't be told which"),
        (["{snap}", *LIBRARY, "-w", "vm-01"], "a single rank sends nothing"),
        (
            ["{snap}", *LIBRARY, "--workload", "fsdp", "--bytes", "1M"],
            "--collective and --bytes are for one collective",
        ),
        (["{snap}", "--library", "nccl", "--collective", "bcast"], "can't be told"),
        (["--hostfile", "x", "mpirun", "-np", "2", "./app"], "leave out --hostfile"),
        (["nothere.snap", *LIBRARY], "no snapshot at nothere.snap: make one"),
    ],
)
def test_what_can_not_be_tuned_is_said(
    words: list[str], said: str, snap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the words for each mistake, and the exit code of all of them."""
    assert main(["tune", *(word.format(snap=snap) for word in words)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_launcher_is_read_for_hosts_and_library(
    snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests a command line of Open MPI, whose program is left out."""
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"vm-{n:02d} slots=1\n" for n in range(1, 17)))
    mpirun = ("mpirun", "--hostfile", str(hosts), "-np", "16", "./app", "-x", "1")
    path = tmp_path / "map.json"
    argv = ["tune", "--snapshot", snap, "-o", str(path), *mpirun]
    assert main(argv) == 0
    capsys.readouterr()
    tuning = load_rankmap(path).tuning
    assert tuning is not None
    assert tuning.library.startswith("openmpi@5.0")
    assert main([*argv[:5], "--library", "nccl", *mpirun]) == 0
    said = capsys.readouterr().err
    assert OVER_A_RING in said
    assert "nccl: 'cloudcoll run' gives a tuner only to NCCL 2.22 to 2.30" in said
    tuning = load_rankmap(path).tuning
    assert tuning is not None
    assert tuning.library == "nccl"
    hosts.write_text(hosts.read_text().replace("slots=1", "slots=2"))
    dealt = ["tune", "--snapshot", snap, *mpirun[:3], "--map-by", "node", "./app"]
    assert main(dealt) != 0
    assert "ranks are dealt over the hosts in turn" in capsys.readouterr().err
