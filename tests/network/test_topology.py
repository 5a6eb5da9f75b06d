from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from strategies import fabrics

from cloudcoll.importers.trees import read_slurm
from cloudcoll.network.forms import topology_conf
from cloudcoll.network.tree import Fabric, Node, flat


def inner(node: Node) -> Iterator[Node]:
    """Yield the groups below a node."""
    for child in node.children:
        if child.children:
            yield child
            yield from inner(child)


def teams(root: Node) -> set[frozenset[str]]:
    """Return the hosts of each group that says something: several, but not all."""
    found = {frozenset(group.leaves()) for group in inner(root)}
    return {hosts for hosts in found if 1 < len(hosts) < len(list(root.leaves()))}


def lone(node: Node) -> Iterator[frozenset[str]]:
    """Yield the hosts that stand beside groups."""
    hosts = frozenset(child.name for child in node.children if not child.children)
    if hosts and len(hosts) < len(node.children):
        yield hosts
    for child in node.children:
        yield from lone(child)


@given(fabric=fabrics())
def test_groups_come_back(fabric: Fabric) -> None:
    """Tests that `import slurm` reads the same hosts in the same groups.

    Hosts beside groups share a switch in between: a switch has one kind of
    children.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "topology.conf")
        path.write_text(topology_conf(fabric))
        again = read_slurm(path, "Mbit/s").fabric
    assert again is not None
    assert set(again.hosts) == set(fabric.hosts)
    added = {hosts for hosts in lone(fabric.root) if len(hosts) > 1}
    assert teams(again.root) == teams(fabric.root) | added


def test_lines_are_slurms() -> None:
    """Tests children first, whole rates, and names that Slurm would not take."""
    pair = Node("rack a", (Node("n1"), Node("n2")), 100e9, 25e6)
    twin = Node("switch.2", (Node("n3"), Node("n4")), 1e3)
    fabric = Fabric(Node("core", (pair, twin, Node("n5"))))
    assert topology_conf(fabric).splitlines() == [
        "SwitchName=switch.1 Nodes=n1,n2 LinkSpeed=800000",
        "SwitchName=switch.2 Nodes=n3,n4 LinkSpeed=1",
        "SwitchName=switch.3 Nodes=n5",
        "SwitchName=core Switches=switch.1,switch.2,switch.3",
    ]
    assert topology_conf(flat(("n1",))) == "SwitchName=core Nodes=n1\n"
