from __future__ import annotations

from pathlib import Path

import networkx
import pytest

from cloudcoll.cli import main
from cloudcoll.hosts import Host
from cloudcoll.launch import own_host
from cloudcoll.measured import synth
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.rankmap import RankMap, load_rankmap
from cloudcoll.tuning import TunedRange, Tuning


def test_groups_go_to_slurm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests the one format that is of a snapshot; without groups, one switch."""
    hosts = (Host("a"), Host("b"))
    pair = Node("core", (Node("pair", (Node("a"), Node("b"))),))
    for fabric, lines in (
        (Fabric(pair), "SwitchName=pair Nodes=a,b\nSwitchName=core Switches=pair\n"),
        (None, "SwitchName=core Nodes=a,b\n"),
    ):
        NetworkSnapshot(hosts, fabric=fabric).save(tmp_path / "a.snap")
        assert main(["export", str(tmp_path / "a.snap"), "--format", "topology"]) == 0
        assert capsys.readouterr().out == lines


def test_an_unknown_format_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that the message lists what there is."""
    assert main(["export", str(tmp_path / "map"), "--format", "sequence"]) == 2
    assert "unknown format 'sequence' (known: ompi-rankfile, seq," in (
        capsys.readouterr().err
    )


def test_lightgbm_gets_the_snapshots_addresses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the way from a snapshot of names, or a list of addresses, to machines."""
    names = ("b", "a", "c")
    hosts = tuple(Host(n, f"10.0.0.{ord(n)}") for n in names)
    snapshot, ranks = str(tmp_path / "a.snap"), str(tmp_path / "map.json")
    NetworkSnapshot(hosts).save(snapshot)
    assert main(["solve", snapshot, "-o", ranks]) == 0
    capsys.readouterr()
    assert main(["export", ranks, "--format", "lightgbm"]) == 0
    machines = capsys.readouterr().out
    assert machines == "10.0.0.98 12400\n10.0.0.97 12400\n10.0.0.99 12400\n"
    listed = tmp_path / "hosts"
    listed.write_text("10.0.0.99\n10.0.0.98\n")
    assert main(["solve", snapshot, "--hostfile", str(listed), "-o", ranks]) == 0
    assert load_rankmap(ranks).order == ("c", "b")


def test_lightgbm_looks_names_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a name's loopback address, which no other host reaches, is none."""
    known = {"a": {"10.0.0.1", "127.0.1.1"}, "b": {"127.0.1.1"}}
    monkeypatch.setattr(own_host, "addresses_of", lambda name, _: known[name])
    path = tmp_path / "map.json"
    RankMap(("a",), (1,)).save(path)
    assert main(["export", str(path), "--format", "lightgbm"]) == 0
    assert capsys.readouterr().out == "10.0.0.1 12400\n"
    RankMap(("a", "b"), (1, 1)).save(path)
    assert main(["export", str(path), "--format", "lightgbm"]) == 2
    assert "add it to /etc/hosts, or name the hosts" in capsys.readouterr().err


def test_a_network_is_taken_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that others read a snapshot's network as a graph."""
    fabric = synth.racks((3, 2), seed=1)
    path = tmp_path / "a.snap"
    synth.observe(fabric).with_fabric(fabric).save(path)
    assert main(["export", str(path), "--format", "graphml"]) == 0
    graph = networkx.parse_graphml(capsys.readouterr().out)
    whole = fabric.to_networkx()
    assert (dict(graph.nodes), dict(graph.adj)) == (dict(whole.nodes), dict(whole.adj))


def test_algorithms_go_to_their_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests a file that knows its own place, and what is said beside one that can't."""
    path, rules = tmp_path / "map.json", tmp_path / "rules"
    ring = (TunedRange("bcast", 0, "pipeline"),)
    RankMap(("a", "b"), (1, 1), tuning=Tuning("openmpi@4.1.8", 2, 1, ring)).save(path)
    asked = ["export", str(path), "--format", "tuning"]
    assert main([*asked, "-o", str(rules)]) == 0
    assert f" --mca coll_tuned_dynamic_rules_filename {rules} ..." in rules.read_text()
    assert capsys.readouterr() == ("", "")
    chosen = (TunedRange("allreduce", 0, "ring"),)
    RankMap(("a", "b"), (1, 1), tuning=Tuning("mpich@5.0.2", 2, 1, chosen)).save(path)
    assert main(asked) == 0
    out, err = capsys.readouterr()
    assert out.startswith('{"collective=')
    assert "-genv MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE FILE ..." in err


@pytest.mark.parametrize(
    ("tuning", "said"),
    [
        (
            None,
            " has no algorithms: run 'cloudcoll tune ... -o MAP' for a map that has",
        ),
        (
            Tuning("gloo", 2),
            "nothing to write: Gloo (torch) can't be told an algorithm: run 'cloudcoll "
            "tune' for a library that can (openmpi, mpich)",
        ),
    ],
)
def test_a_map_without_algorithms_is_refused(
    tuning: Tuning | None,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests that one line says what to do, and that no file is left."""
    path, output = tmp_path / "map.json", tmp_path / "rules"
    RankMap(("a", "b"), (1, 1), tuning=tuning).save(path)
    argv = ["export", str(path), "--format", "tuning", "-o", str(output)]
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert not out
    assert len(err.splitlines()) == 1
    assert said in err
    assert not output.exists()
