from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.cli import main
from cloudcoll.fabric.tree import Fabric, Node
from cloudcoll.hosts import Host
from cloudcoll.snapshot import NetworkSnapshot


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
