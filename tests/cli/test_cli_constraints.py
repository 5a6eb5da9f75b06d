"""``--pin``, ``--take``, ``--same-rack``, ``--keep-below`` of ``cloudcoll solve``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudcoll.cli import main
from cloudcoll.hosts import Host
from cloudcoll.measured import synth
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric
from cloudcoll.rankmap import load_rankmap

FABRIC = synth.racks((4, 4), seed=3)
TOWERS = "towers:tower=4"


@pytest.fixture
def snap(tmp_path: Path) -> str:
    """A snapshot of two racks of four hosts, names dealt at random."""
    path = tmp_path / "net.snap"
    synth.observe(FABRIC).with_fabric(FABRIC).save(path)
    return str(path)


def sharing(fabric: Fabric, *names: str) -> bool:
    """Whether all of these hosts are in one rack."""
    return any(set(names) <= set(node.leaves()) for node in fabric.root.children)


def test_the_map_and_the_words_hold_what_was_asked(
    snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests pins and hosts to take, then and when the map is shown later."""
    path = tmp_path / "map.json"
    argv = ["solve", snap, "--take", "5", "--pin", "4=vm-8", "--algorithm", "ring"]
    assert main([*argv, "-o", str(path)]) == 0
    solved = capsys.readouterr().out
    found = load_rankmap(path)
    assert (found.order[0], found.order[4], len(found.order)) == ("vm-1", "vm-8", 5)
    assert found.constraints == {"pin": {"4": "vm-8"}, "take": 5}
    assert f"left out: {' '.join(found.dropped)}" in solved
    lines = {line.split()[0]: line for line in solved.splitlines() if "x " in line}
    assert lines["given"].endswith("predicted, breaks the constraints")
    assert lines["cloudcoll"].endswith("predicted")
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().out == solved


@pytest.mark.parametrize(
    ("argv", "groups"),
    [
        (["--parallel", "tp=2,dp=4", "--same-rack", "tp"], ["01", "23", "45", "67"]),
        (["--parallel", "tp=2,dp=4", "--same-rack", "dp"], ["0246", "1357"]),
        (
            ["--workload", TOWERS, "--same-rack", "towers of 4"],
            ["0123", "4567"],
        ),
        (["--same-rack", "0,2-3", "--same-rack", "7,6"], ["023", "67"]),
    ],
)
def test_groups_share_a_rack(
    snap: str, argv: list[str], groups: list[str], tmp_path: Path
) -> None:
    """Tests names of groups, of a split and of a workload, and ranks spelled out."""
    path = tmp_path / "map.json"
    assert main(["solve", snap, *argv, "-o", str(path)]) == 0
    order = load_rankmap(path).order
    for group in groups:
        assert sharing(FABRIC, *(order[int(rank)] for rank in group))


def test_a_small_gain_keeps_the_order(
    snap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that the answer says why it is the order given."""
    argv = ["solve", snap, "--algorithm", "ring", "--json"]
    assert main(argv) == 0
    free = json.loads(capsys.readouterr().out)
    assert free["predicted"]["cloudcoll"] < 0.9 * free["predicted"]["given"]
    assert main([*argv, "--keep-below", "95%"]) == 0
    kept = json.loads(capsys.readouterr().out)
    assert kept["order"] == [f"vm-{number}" for number in range(1, 9)]
    assert (kept["origin"], kept["reason"]) == ("given", "less than 95% to gain")
    assert main([*argv[:-1], "--keep-below", "95"]) == 0
    assert "less than 95% to gain: order kept" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--pin", "vm-1"], "'vm-1' is not RANK=HOST such as 0=vm-3"),
        (["--pin", "-1=vm-1"], "'-1=vm-1' is not RANK=HOST"),
        (["--pin", "1=vm-9"], "--pin 1=vm-9: no such host (there are vm-1, vm-2,"),
        (["--pin", "8=vm-2"], "--pin: no rank 8, they are 0 to 7"),
        (["--pin", "1=vm-2", "--pin", "1=vm-3"], "rank 1 on both vm-2 and vm-3"),
        (["--pin", "1=vm-2", "--pin", "2=vm-2"], "this host has another place"),
        (["--pin", "1=vm-1"], "let it go with --free-rank0"),
        (["--take", "9"], "--take 9: there are 8 hosts to take from"),
        (["--take", "0"], "0 is not in the range x>=1"),
        (["--keep-below", "-3%"], "'-3%' is not per cent such as 3%, below 100"),
        (["--keep-below", "100"], "is not per cent"),
        (["--same-rack", "tp"], "names of groups come with --workload or --parallel"),
        (["--same-rack", "0-8"], "--same-rack: no rank 8, they are 0 to 7"),
        (["--same-rack", "3-1"], "'3-1' is not ranks such as 0-7"),
        (["--same-rack", "0-99999"], "'0-99999' is not ranks"),
        (["--same-rack", "0-4"], "need 5 hosts of one rack, the largest has 4"),
        (
            ["--parallel", "dp=8", "--same-rack", "rows"],
            "megatron has no groups of that name (known: ",
        ),
        (["--seed", "-1"], "seed -1: give 0 or more"),
    ],
)
def test_what_contradicts_itself_is_named(
    snap: str, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests exit code 2 and one line of what was asked and what there is."""
    assert main(["solve", snap, *argv]) == 2
    assert message in capsys.readouterr().err


def test_slots_of_a_hostfile(
    snap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a rank pins its host's place, and uneven slots what they can't."""
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"vm-{n} slots=2\n" for n in range(1, 6)))
    path = tmp_path / "map.json"
    argv = ["solve", snap, "--hostfile", str(hosts), "-o", str(path)]
    assert main([*argv, "--take", "3", "--pin", "5=vm-5"]) == 0
    found = load_rankmap(path)
    assert (found.order[2], found.slots) == ("vm-5", (2, 2, 2))
    hosts.write_text("vm-1 slots=2\nvm-2 slots=1\nvm-3 slots=2\nvm-4 slots=1\n")
    assert main([*argv, "--pin", "0=vm-3"]) == 0
    assert load_rankmap(path).order[0] == "vm-3"
    capsys.readouterr()
    assert main([*argv, "--pin", "3=vm-3"]) == 2
    assert "--pin 3=vm-3 needs the same slots on every host" in capsys.readouterr().err


def test_hosts_of_which_nothing_was_measured_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a host that never answered is said to be taken on trust."""
    seen = synth.observe(FABRIC)
    hosts = (*seen.hosts, Host("vm-9"))
    snapshot = NetworkSnapshot(hosts, rtt=seen.rtt, flows=seen.flows)
    path = tmp_path / "silent.snap"
    snapshot.save(path)
    assert main(["solve", str(path), "--algorithm", "ring"]) == 0
    said = capsys.readouterr().err
    assert "nothing was measured of vm-9" in said
    assert "'cloudcoll probe'" in said
    assert "links have no rate (the first: " in said
    assert main(["solve", str(path), "--take", "8", "--algorithm", "ring"]) == 0
    out, err = capsys.readouterr()
    assert "left out: vm-9" in out
    assert "vm-9" not in err
