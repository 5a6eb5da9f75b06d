from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.errors import UsageError
from cloudcoll.importers.reading import NO_SPEEDS
from cloudcoll.importers.trees import read_slurm

TREE = """# tree of three racks
SwitchName=s0 Nodes=dev[0-1] LinkSpeed=40
switchname = s1  nodes=dev[2-3] \\
    linkspeed=40   # continued
SwitchName=s2 Nodes=dev4
SwitchName=pod Switches=s[0-1] LinkSpeed=100
SwitchName=top Switches=pod,s2
"""
BLOCK = "BlockName=b1 Nodes=n[01-02]\nBlockName=b2 Nodes=n[03-04]\nBlockSizes=2,4\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "topology.conf"
    path.write_text(text)
    return path


def test_a_tree_is_read(tmp_path: Path) -> None:
    """Tests levels, continued lines, any case, and a switch of one node."""
    snapshot = read_slurm(write(tmp_path, TREE))
    assert snapshot.names == ("dev0", "dev1", "dev2", "dev3", "dev4")
    fabric = snapshot.fabric
    assert fabric is not None
    assert fabric.origin == "labels"
    assert fabric.warnings == (NO_SPEEDS,)
    levels = [[sorted(node.leaves()) for node in level] for level in fabric.groups()]
    assert levels[0] == [["dev0", "dev1"], ["dev2", "dev3"]]
    assert levels[1] == [["dev0", "dev1", "dev2", "dev3"]]


def test_speeds_count_only_in_a_unit(tmp_path: Path) -> None:
    """Tests that LinkSpeed becomes a capacity where its unit is said."""
    fabric = read_slurm(write(tmp_path, TREE), "Gbit/s").fabric
    assert fabric is not None
    assert fabric.origin == "imported"
    assert not fabric.warnings
    pod = next(child for child in fabric.root.children if child.name == "pod")
    assert pod.uplink_bytes_per_s == pod.downlink_bytes_per_s == 100e9 / 8
    assert [rack.uplink_bytes_per_s for rack in pod.children] == [5e9, 5e9]
    with pytest.raises(UsageError, match="unknown unit of bandwidth 'Gb'"):
        read_slurm(tmp_path / "topology.conf", "Gb")


def test_blocks_are_groups(tmp_path: Path) -> None:
    """Tests the block plug-in's lines."""
    fabric = read_slurm(write(tmp_path, BLOCK)).fabric
    assert fabric is not None
    assert [sorted(node.leaves()) for node in fabric.groups()[0]] == [
        ["n01", "n02"],
        ["n03", "n04"],
    ]


def test_a_lone_node_is_a_fabric(tmp_path: Path) -> None:
    """Tests that collapsing leaves one host on the core."""
    fabric = read_slurm(write(tmp_path, "SwitchName=a Nodes=n1")).fabric
    assert fabric is not None
    assert (fabric.root.name, fabric.hosts) == ("core", ("n1",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no nodes in it"),
        ("SwitchName=a\n", "no nodes in it"),
        ("topology: tree\n", ":1: 'topology: tree' is not a line"),
        ("\nNodes=n1\n", ":2: parameter 'Nodes' is not expected"),
        ("SwitchName=a Nodes=n1 Speed=1\n", ":1: parameter 'Speed' is not expected"),
        ("SwitchName=a Nodes=n1 Nodes=n2\n", ":1: parameter"),
        ("SwitchName=a Nodes=n[1-\n", ":1: cannot expand"),
        ("SwitchName=a Nodes=-n\n", ":1: '-n' is not a host name"),
        ("SwitchName=a Nodes=n LinkSpeed=fast\n", ":1: LinkSpeed='fast'"),
        (
            "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n",
            ":2: 'a' was defined before",
        ),
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n2\n", ":2: node 'n2' also"),
        ("SwitchName=a Nodes=n1,n1\n", ":1: node 'n1' also hangs on a"),
        (
            "SwitchName=a Switches=b\nSwitchName=c Nodes=n\n",
            ":1: switch 'b' is not def",
        ),
        (
            "SwitchName=a Nodes=n\nSwitchName=b Switches=a\nSwitchName=c Switches=a\n",
            ":3: switch 'a' hangs on another",
        ),
        (
            "SwitchName=a Switches=b Nodes=n\nSwitchName=b Switches=a\n",
            ":1: switch 'a' has itself",
        ),
        ("SwitchName=a Nodes=n1 \\", ":1: the last line is continued by nothing"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Tests that file and line of what is wrong are named."""
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_slurm(path)
    assert f"{path}{message if message[0] == ':' else ': ' + message}" in str(
        caught.value
    )
    assert len(str(caught.value).splitlines()) == 1


def test_a_deep_chain_is_refused(tmp_path: Path) -> None:
    """Tests that no file makes the reader recurse without end."""
    lines = ["SwitchName=s0 Nodes=n1"]
    lines += [f"SwitchName=s{i} Switches=s{i - 1}" for i in range(1, 2000)]
    with pytest.raises(UsageError, match="more than 30 switches"):
        read_slurm(write(tmp_path, "\n".join(lines)))
