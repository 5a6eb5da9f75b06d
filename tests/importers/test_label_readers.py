from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cloudcoll.errors import UsageError
from cloudcoll.importers.labels import read_labels, read_names, renamed, with_labels
from cloudcoll.importers.reading import NO_SPEEDS
from cloudcoll.importers.trees import read_topograph
from cloudcoll.infer.prior import GROUP
from cloudcoll.measured import synth
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot
from cloudcoll.network.tree import Fabric


def write(folder: Path, value: Any, name: str = "labels") -> Path:
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def groups(fabric: Fabric | None) -> list[list[list[str]]]:
    assert fabric is not None
    return [[sorted(node.leaves()) for node in level] for level in fabric.groups()]


def amazon(*places: str) -> dict[str, Any]:
    """Return describe-instance-topology's answer; a place is ``nn-1/nn-2/nn-3``."""
    return {
        "Instances": [
            {
                "InstanceId": f"i-{number}",
                "InstanceType": "p5.48xlarge",
                "NetworkNodes": place.split("/"),
                "AvailabilityZone": "us-west-2a",
                "ZoneId": "usw2-az2",
            }
            for number, place in enumerate(places, start=1)
        ]
    }


def kubernetes(**labels: dict[str, str]) -> dict[str, Any]:
    items = [
        {"kind": "Node", "metadata": {"name": name, "labels": said}}
        for name, said in labels.items()
    ]
    return {"kind": "List", "items": items}


def test_amazon_names_layers_from_the_top(tmp_path: Path) -> None:
    """Tests three layers of network nodes, of which two tell hosts apart."""
    path = write(tmp_path, amazon("a/b/x", "a/b/y", "a/b/x", "a/c/z"))
    snapshot = read_labels(path)
    assert snapshot.names == ("i-1", "i-2", "i-3", "i-4")
    assert groups(snapshot.fabric)[:2] == [[["i-1", "i-3"]], [["i-1", "i-2", "i-3"]]]
    assert snapshot.hosts[0].labels["InstanceType"] == "p5.48xlarge"
    assert snapshot.fabric is not None
    assert snapshot.fabric.origin == "labels"
    assert snapshot.fabric.warnings == (NO_SPEEDS,)


def test_labels_come_through_a_pipe() -> None:
    """Tests ``import labels <(kubectl get nodes -o json)``: read once."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as pipe:
        json.dump(amazon("a", "b"), pipe)
    try:
        assert read_labels(f"/dev/fd/{reader}").names == ("i-1", "i-2")
    finally:
        os.close(reader)


def test_google_names_blocks(tmp_path: Path) -> None:
    """Tests both forms of the API, and a zone given by its address."""

    def vm(name: str, **status: Any) -> dict[str, Any]:
        zone = "https://www.googleapis.com/compute/v1/projects/p/zones/us-east1-b"
        return {"name": name, "zone": zone, "resourceStatus": status}

    topology = {"cluster": "c", "block": "b1", "subblock": "s1", "host": "h1"}
    instances = [
        vm("vm-1", physicalHost="/b1/s1/h1"),
        vm("vm-2", physicalHost="/b1/s2/h2"),
        vm("vm-3", physicalHost="/b2/s3/h3"),
    ]
    snapshot = read_labels(write(tmp_path, instances))
    assert groups(snapshot.fabric)[0] == [["vm-1", "vm-2"]]
    assert snapshot.hosts[0].labels["zone"] == "us-east1-b"
    detailed = [
        vm("vm-1", physicalHostTopology=topology),
        vm("vm-2", physicalHostTopology=topology | {"host": "h2"}),
        vm("vm-3", physicalHostTopology=topology | {"block": "b2"}),
    ]
    snapshot = read_labels(write(tmp_path, detailed))
    assert groups(snapshot.fabric)[0] == [["vm-1", "vm-2"]]


def test_lines_of_physical_hosts_are_read(tmp_path: Path) -> None:
    """Tests what gcloud prints as CSV, its header included."""
    text = (
        "name,physical_host\nvm-1,/b1/s1/h1\nvm-2 b1/s1/h2  # same rack\nvm-3,/b2/s/h\n"
    )
    snapshot = read_labels(write(tmp_path, text))
    assert groups(snapshot.fabric)[0] == [["vm-1", "vm-2"]]
    with pytest.raises(UsageError, match=":2: 'vm-2' is not understood"):
        read_labels(write(tmp_path, "vm-1 /a/b\nvm-2\n"))


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("topology.kubernetes.io/region", "topology.kubernetes.io/zone"),
        ("topology.kubernetes.io/zone", "cloud.google.com/gce-topology-block"),
        (
            "cloud.google.com/gce-topology-block",
            "cloud.google.com/gce-topology-subblock",
        ),
        (
            "topology.k8s.aws/network-node-layer-1",
            "topology.k8s.aws/network-node-layer-3",
        ),
        ("network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"),
        ("network.topology.nvidia.com/datacenter", "network.topology.nvidia.com/block"),
        ("fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0"),
    ],
)
def test_node_labels_nest(tmp_path: Path, outer: str, inner: str) -> None:
    """Tests the order of each family of Kubernetes labels."""
    # The same inner name under two outer ones: two groups.
    path = write(
        tmp_path,
        kubernetes(
            n1={outer: "A", inner: "x", "kubernetes.io/os": "linux"},
            n2={outer: "A", inner: "x"},
            n3={outer: "B", inner: "x"},
            n4={outer: "A", inner: "y"},
            n5={},
        ),
    )
    snapshot = read_labels(path)
    assert groups(snapshot.fabric)[:2] == [[["n1", "n2"]], [["n1", "n2", "n4"]]]
    assert snapshot.hosts[0].labels["kubernetes.io/os"] == "linux"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "none of its 0 hosts says"),
        ("{", r": not JSON \(.* line 1 "),
        ({"Reservations": []}, "no list of hosts in it"),
        ({"Instances": []}, "no list of hosts in it"),
        ({"items": [7]}, "host 1: 7 is not an object"),
        ({"items": [{"metadata": {"labels": {}}}]}, "host 1: None is not a host name"),
        (kubernetes(n1={}), "none of its 1 hosts says where it stands"),
        (amazon("a", "b")["Instances"], "host 1: None is not a host name"),
        (
            {"Instances": amazon("a")["Instances"] * 2},
            "host 2: 'i-1' was listed before",
        ),
        (amazon("a", "/".join("abcdefgh" * 5)), "stands below 41 groups"),
        (amazon("a", "b\n"), r"host 2 \(i-2\): 'b\\n' is not a group's name"),
    ],
)
def test_bad_labels_are_refused(tmp_path: Path, value: Any, message: str) -> None:
    """Tests that file and host of what is wrong are named."""
    path = write(tmp_path, value)
    with pytest.raises(UsageError, match=message) as caught:
        read_labels(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value).splitlines()) == 1


def test_topograph_names_the_nearest_switch_first(tmp_path: Path) -> None:
    """Tests the graph engine's JSON of two versions."""
    graph = {
        "instances": [
            {
                "id": "I21",
                "type": "H100",
                "network_layers": ["leaf-a", "spine-a"],
                "attributes": {"nvlink": "nvl-1", "count": 8},
            },
            {"id": "I22", "network_layers": ["leaf-a", "spine-a"]},
            {
                "id": "I23",
                "network_layers": ["leaf-b", "spine-a"],
                "labels": {"accelerator.topograph.run/domain": "nvl-2"},
            },
            {"id": "I24", "network_layers": ["leaf-c", "spine-b"]},
            {"id": "I25"},
        ]
    }
    snapshot = read_topograph(write(tmp_path, graph))
    assert groups(snapshot.fabric)[:2] == [[["I21", "I22"]], [["I21", "I22", "I23"]]]
    assert snapshot.hosts[0].labels == {"type": "H100", "nvlink": "nvl-1"}
    assert snapshot.hosts[2].labels == {"accelerator.topograph.run/domain": "nvl-2"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "no 'instances' in it"),
        ({"instances": {}}, "no 'instances' in it"),
        ({"instances": [1]}, "instance 0: 1 is not an object"),
        ({"instances": [{"id": "a b"}]}, "instance 0: 'a b' is not a host name"),
        ({"instances": [{"id": "a"}] * 2}, "instance 1: 'a' was listed before"),
        ({"instances": [{"id": "a", "network_layers": "x"}]}, "is not a list"),
        ({"instances": [{"id": "a", "network_layers": [3]}]}, "3 is not a group's"),
    ],
)
def test_a_bad_graph_is_refused(tmp_path: Path, value: Any, message: str) -> None:
    """Tests that file and instance of what is wrong are named."""
    with pytest.raises(UsageError, match=message):
        read_topograph(write(tmp_path, value))


def test_hosts_get_the_launcher_s_names(tmp_path: Path) -> None:
    """Tests that ids become names, in the tree and in the list."""
    labels = read_labels(write(tmp_path, amazon("a", "b", "a")))
    names = read_names(write(tmp_path, "i-1 n1\ni-2,n2\n\ni-3 n3 # spare\n", "names"))
    snapshot = renamed(labels, names)
    assert snapshot.names == ("n1", "n2", "n3")
    assert snapshot.hosts[0].address == "n1"
    assert snapshot.hosts[0].labels["InstanceId"] == "i-1"
    assert groups(snapshot.fabric)[0] == [["n1", "n3"]]
    with pytest.raises(UsageError, match="host 'i-3' has no line"):
        renamed(labels, {"i-1": "n1", "i-2": "n2"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i-1\n", ":1: 'i-1' is not 'ID HOST'"),
        ("i-1 n1\ni-2 n1\n", ":2: 'i-2 n1': one of the two came before"),
        ("i-1 n1\ni-1 n2\n", ":2: 'i-1 n2': one of the two came before"),
        ("i-1 -n\n", ":1: '-n' is not a host name"),
    ],
)
def test_bad_names_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """Tests that the line of what is wrong is named."""
    with pytest.raises(UsageError, match=message):
        read_names(write(tmp_path, text))


@pytest.fixture
def measured() -> NetworkSnapshot:
    """Racks of three and two hosts, measured; vm-1 to vm-5 in this order."""
    fabric = synth.racks((3, 2), seed=4)
    return synth.observe(fabric).with_fabric(fabric)


def labelled(tmp_path: Path, said: dict[str, str]) -> NetworkSnapshot:
    key = "topology.kubernetes.io/zone"
    nodes = kubernetes(**{name: {key: zone} for name, zone in said.items()})
    return read_labels(write(tmp_path, nodes))


def test_labels_that_agree_are_kept_quietly(
    tmp_path: Path, measured: NetworkSnapshot
) -> None:
    """Tests that hosts get labels, and that finer and coarser groups agree."""
    assert measured.fabric is not None
    racks = [list(node.leaves()) for node in measured.fabric.root.children]
    said = {name: f"zone-{rack}" for rack, names in enumerate(racks) for name in names}
    # Half a rack is a group inside it: no contradiction.
    said[racks[0][0]] = said[racks[0][1]] = "zone-x"
    path = tmp_path / "both.snap"
    with_labels(measured, labelled(tmp_path, said)).save(path)
    both = load_snapshot(path)
    assert both.fabric == measured.fabric
    assert both.created == measured.created
    assert [host.labels["topology.kubernetes.io/zone"] for host in both.hosts] == [
        said[name] for name in measured.names
    ]


def test_a_measurement_overrules_labels(
    tmp_path: Path, measured: NetworkSnapshot
) -> None:
    """Tests that hosts which do not stand where labels say are named."""
    assert measured.fabric is not None
    (a, b, _), (d, e) = (list(n.leaves()) for n in measured.fabric.root.children)
    said = {a: "left", d: "left", b: "right", e: "right", "spare": "right"}
    both = with_labels(measured, labelled(tmp_path, said))
    assert both.fabric is not None
    assert both.fabric.root == measured.fabric.root
    stands = {a: ("rack-1", b), b: ("rack-1", a), d: ("rack-2", e), e: ("rack-2", d)}
    expected = [
        f"labels put {host} in {label}, measured it stands in group {stands[host][0]} "
        f"with {stands[host][1]}: the measurement is kept"
        for label, hosts in (("left", (a, d)), ("right", (b, e)))
        for host in sorted(hosts)
    ]
    assert set(both.fabric.warnings) == {
        *expected[:3],
        "1 more hosts disagree: probe without labels",
        "the labels leave out 1 of the measured hosts",
    }
    assert {host.labels.get(GROUP) for host in both.hosts} == {"left", "right", ""}
    with pytest.raises(UsageError, match="of other hosts"):
        with_labels(measured, labelled(tmp_path, {"x": "left", "y": "left"}))
