"""The manifests, against the schemas of Kubernetes and of the kinds beyond it."""

from __future__ import annotations

import base64
import json
import os
import runpy
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cloudcoll.cli import main
from cloudcoll.daemon.responses import PAGES
from cloudcoll.tls import Credentials
from cloudcoll.tls.certs import issue, make_ca, write_all

FOLDER = Path(__file__).parents[2] / "deploy" / "k8s"
MONITOR = FOLDER / "examples" / "servicemonitor.yaml"
EXAMPLES = sorted({*(FOLDER / "examples").glob("*.yaml")} - {MONITOR})
VERSIONS = ("1.29", kubernetes_validate.latest_version())
"""From the first that has sidecars by default."""

Document = dict[str, Any]


def load(*paths: Path) -> list[Document]:
    return [one for path in paths for one in yaml.safe_load_all(path.read_text())]


KUSTOMIZATION = load(FOLDER / "kustomization.yaml")[0]
BASE = load(*(FOLDER / name for name in KUSTOMIZATION["resources"]))
MEMBERS = runpy.run_path(str(FOLDER / "members.py"))
KEYS = runpy.run_path(str(FOLDER / "keys.py"))
PODS = [one["spec"]["template"] for one in BASE if "template" in one.get("spec", {})]


def templates(value: object) -> Iterator[Document]:
    """Yield the pod templates anywhere inside a document."""
    if isinstance(value, dict):
        if "containers" in value.get("template", {}).get("spec", {}):
            yield value["template"]
        for inner in value.values():
            yield from templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner)


def containers(pod: Document) -> list[Document]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("one", BASE, ids=lambda one: f"{one['kind']}")
def test_kubernetes_knows_every_field(one: Document, version: str) -> None:
    """Tests the strict schema, which a misspelt field fails."""
    kubernetes_validate.validate(one, version, strict=True)
    wrong = {**one, "specs": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_pods_of_examples_are_pods(path: Path) -> None:
    """Tests each template of an example as Kubernetes' own PodTemplate."""
    found = list(templates(load(path)[0]))
    assert found
    for template in found:
        whole = {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": "one"},
            "template": template,
        }
        kubernetes_validate.validate(whole, VERSIONS[0], strict=True)


def test_the_jobset_is_one() -> None:
    """Tests the types that its API generates: a field they drop is none of its."""
    # Takes a second, and each process that runs tests imports each file of tests.
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import (
        JobsetV1alpha2JobSet,
    )

    document = load(FOLDER / "examples" / "jobset.yaml")[0]
    read = JobsetV1alpha2JobSet.from_dict(document)
    assert read is not None
    assert read.to_dict() == document


# Fields of kubeflow.org_pytorchjobs.yaml and kubeflow.org_mpijobs.yaml: nobody
# packages those schemas.
REPLICA = {"replicas", "restartPolicy", "template"}
POLICY = {"cleanPodPolicy", "backoffLimit", "ttlSecondsAfterFinished", "suspend"}


@pytest.mark.parametrize(
    ("name", "version", "replicas", "fields"),
    [
        (
            "pytorchjob",
            "kubeflow.org/v1",
            ("pytorchReplicaSpecs", {"Master", "Worker"}),
            {"nprocPerNode": str, "elasticPolicy": dict, "runPolicy": dict},
        ),
        (
            "mpijob",
            "kubeflow.org/v2beta1",
            ("mpiReplicaSpecs", {"Launcher", "Worker"}),
            {"slotsPerWorker": int, "sshAuthMountPath": str, "runPolicy": dict},
        ),
    ],
)
def test_the_jobs_of_kubeflow_are_jobs(
    name: str,
    version: str,
    replicas: tuple[str, set[str]],
    fields: dict[str, type],
) -> None:
    """Tests fields and types one by one."""
    document = load(FOLDER / "examples" / f"{name}.yaml")[0]
    assert document["apiVersion"] == version
    assert document["kind"].lower() == name
    spec = dict(document["spec"])
    specs = spec.pop(replicas[0])
    assert set(specs) == replicas[1]
    assert all(set(one) <= REPLICA for one in specs.values())
    assert all(isinstance(value, fields[key]) for key, value in spec.items())
    assert set(spec.get("runPolicy", {})) <= POLICY


def test_kustomize_finds_everything() -> None:
    """Tests that all files are listed, and that names lead to what is there."""
    listed = {*KUSTOMIZATION["resources"], "kustomization.yaml"}
    assert listed == {path.name for path in FOLDER.glob("*.yaml")}
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    assert all((FOLDER / name).is_file() for name in generated["files"])
    names = {(one["kind"], one["metadata"]["name"]) for one in BASE}
    names |= {("ConfigMap", generated["name"]), ("ConfigMap", "kube-root-ca.crt")}
    for pod in PODS:
        spec = pod["spec"]
        if account := spec.get("serviceAccountName"):
            assert ("ServiceAccount", account) in names
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for volume in volumes.values():
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in names
            if claim := volume.get("persistentVolumeClaim"):
                assert ("PersistentVolumeClaim", claim["claimName"]) in names
        for container in containers(pod):
            assert {mount["name"] for mount in container["volumeMounts"]} <= {*volumes}
            assert container["image"] == KUSTOMIZATION["images"][0]["name"]


def test_selectors_select() -> None:
    """Tests that workloads and policies name labels that pods have."""
    for one in BASE:
        spec = one.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector")
        if selector:
            # A Service has no more than labels.
            wanted = selector.get("matchLabels", selector).items()
            assert any(wanted <= pod["metadata"]["labels"].items() for pod in PODS)
    binding = next(one for one in BASE if one["kind"] == "RoleBinding")
    role = next(one for one in BASE if one["kind"] == "Role")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    ]


def one_of(kind: str) -> Document:
    (found,) = (one for one in BASE if one["kind"] == kind)
    return found


def test_readers_find_the_daemon() -> None:
    """Tests that Service, policy and Prometheus name the port it listens on."""
    spec = one_of("Deployment")["spec"]["template"]["spec"]
    (daemon,) = spec["containers"]
    (https,) = daemon["ports"]
    number = https["containerPort"]
    assert f"--https=:{number}" in daemon["args"]
    assert daemon["readinessProbe"]["tcpSocket"]["port"] == https["name"]
    service = one_of("Service")
    (port,) = service["spec"]["ports"]
    assert (port["targetPort"], port["port"]) == (https["name"], number)
    told = service["metadata"]["annotations"]
    assert told["prometheus.io/port"] == str(number)
    assert told["prometheus.io/path"] in PAGES
    (rule,) = one_of("NetworkPolicy")["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": number}]
    assert all(one["podSelector"]["matchLabels"] for one in rule["from"])


def test_prometheus_shows_the_readers_certificate(tmp_path: Path) -> None:
    """Tests the monitor against Service, document and the files that `certs` writes.

    Nobody packages the schema of monitoring.coreos.com.
    """
    monitor, service = load(MONITOR)[0], one_of("Service")
    assert monitor["metadata"]["namespace"] == KUSTOMIZATION["namespace"]
    labels = service["metadata"]["labels"].items()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels
    (end,) = monitor["spec"]["endpoints"]
    assert end["port"] == service["spec"]["ports"][0]["name"]
    assert end["path"] in PAGES
    name = f"{service['metadata']['name']}.{KUSTOMIZATION['namespace']}.svc"
    assert end["tlsConfig"]["serverName"] == name
    page = (FOLDER.parents[1] / "docs" / "kubernetes.md").read_text()
    assert f"--daemon {name} " in page
    assert "secret generic cloudcoll-reader --from-file=pki/reader" in page
    write_all((), tmp_path, 1.0, name)
    tls = end["tlsConfig"]
    for key in (tls["ca"]["secret"], tls["cert"]["secret"], tls["keySecret"]):
        assert key["name"] == "cloudcoll-reader"
        assert (tmp_path / "reader" / key["key"]).is_file()


def test_no_pod_may_more_than_it_must() -> None:
    """Tests what the restricted profile of Kubernetes asks of each container."""
    assert len(PODS) == 2
    for pod in PODS:
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]


def keys(pki: Path, *nodes: Document) -> subprocess.CompletedProcess[str]:
    """Return what `keys.py` prints for these nodes."""
    words = [str(FOLDER / "keys.py"), "registry.example/it:1", str(pki)]
    given = json.dumps({"items": nodes})
    return subprocess.run(
        [sys.executable, *words],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


def node(name: str, *addresses: str) -> Document:
    told = [{"type": "InternalIP", "address": one} for one in addresses]
    outside = {"type": "ExternalIP", "address": "192.0.2.1"}
    return {"metadata": {"name": name}, "status": {"addresses": [outside, *told]}}


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    """Return the certificates of two nodes."""
    (tmp_path / "hosts").write_text("10.0.0.9\n10.0.0.10\n")
    folder = tmp_path / "pki"
    where = ["--hosts", str(tmp_path / "hosts"), "-o", str(folder)]
    assert main(["agent", "certs", *where]) == 0
    return folder


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_gets_its_own_key_alone(pki: Path, version: str) -> None:
    """Tests that each Secret has one agent's files, and goes to that node's pod."""
    nodes = (node("one", "fd00::9", "10.0.0.9"), node("two", "10.0.0.10"))
    done = keys(pki, *nodes)
    assert (done.returncode, done.stderr) == (0, "")
    items = json.loads(done.stdout)["items"]
    for one in items:
        kubernetes_validate.validate(one, version, strict=True)
    places = {"one": "10.0.0.9", "two": "10.0.0.10"}
    secrets = {one["metadata"]["name"]: one for one in items if one["kind"] == "Secret"}
    pods = [one for one in items if one["kind"] == "Pod"]
    assert len(secrets) == len(pods) == 2
    for each in pods:
        folder = pki / "agents" / places[each["spec"]["nodeName"]]
        volumes = {one["name"]: one for one in each["spec"]["volumes"]}
        own = secrets[volumes["pki"]["secret"]["secretName"]]
        found = {name: base64.b64decode(text) for name, text in own["data"].items()}
        assert found == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_node_without_a_certificate_is_named(pki: Path) -> None:
    """Tests that others get theirs, and the exit code says that one is missing."""
    nodes = (node("one", "10.0.0.9"), node("new", "10.0.0.7"), node("odd", "fd00::1"))
    done = keys(pki, *nodes)
    assert done.returncode == 1
    assert done.stderr == (
        "new: no certificate of 10.0.0.7\nodd: no certificate of it\n"
    )
    assert len(json.loads(done.stdout)["items"]) == 2


def test_agents_read_what_was_copied_to_their_node(pki: Path, tmp_path: Path) -> None:
    """Tests the copying pod's command, and the agent's words, with real files."""
    done = keys(pki, node("one", "10.0.0.9"))
    _, copying = json.loads(done.stdout)["items"]
    (copy,) = copying["spec"]["containers"]
    place = tmp_path / "node"
    place.mkdir()
    shell, option, script = copy["command"]
    script = script.replace("/pki", str(pki / "agents" / "10.0.0.9"))
    script = script.replace("/node", str(place))
    script = script.replace("chgrp 10001", f"chgrp {os.getgid()}")
    subprocess.run([shell, option, script], check=True)
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o640}
    (agent,) = one_of("DaemonSet")["spec"]["template"]["spec"]["containers"]
    words = dict(word.lstrip("-").split("=") for word in agent["args"][1:])
    files = [place / Path(words[name]).name for name in ("cert", "key", "ca")]
    assert Credentials(*files).server()


def test_agents_mount_the_nodes_own_folder() -> None:
    """Tests that no Secret of several nodes is in reach of an agent's pod."""
    spec = one_of("DaemonSet")["spec"]["template"]["spec"]
    assert not any(
        "secret" in volume or "projected" in volume for volume in spec["volumes"]
    )
    (pki,) = (one for one in spec["volumes"] if one["name"] == "pki")
    assert pki["hostPath"] == {"path": KEYS["FOLDER"], "type": "Directory"}
    (mount,) = (
        one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "pki"
    )
    assert mount["readOnly"]
    assert spec["securityContext"]["runAsGroup"] == KEYS["GROUP"]
    page = (FOLDER.parents[1] / "docs" / "kubernetes.md").read_text()
    image = KUSTOMIZATION["images"][0]
    assert f"keys.py {image['newName']}:{image['newTag']} pki" in page


def pod(address: str, phase: str) -> Document:
    return {"status": {"phase": phase, "hostIP": address}}


def test_members_are_where_agents_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the list made of pods, and that it is written only when it changes."""
    pods = [pod("10.0.0.9", "Running"), pod("10.0.0.10", "Running")]
    pending = {"status": {"phase": "Pending"}}
    found = MEMBERS["hosts"]({"items": [*pods, pods[0], pending]})
    assert found == ["10.0.0.10", "10.0.0.9"]
    path, keep = tmp_path / "hosts", MEMBERS["keep"]
    keep(path, found)
    first = path.stat()
    keep(path, found)
    keep(path, [])
    assert path.stat() == first
    assert path.read_text() == "10.0.0.10\n10.0.0.9\n"
    keep(path, found[:1])
    assert path.read_text() == "10.0.0.10\n"
    assert capsys.readouterr().err == "2 hosts\n1 hosts\n"


class Api(BaseHTTPRequestHandler):
    """An API server that knows one list, and whom it may tell."""

    def do_GET(self) -> None:
        place = "/api/v1/namespaces/cloudcoll/pods"
        query = "labelSelector=app.kubernetes.io/name%3Dcloudcoll-agent"
        allowed = self.headers["Authorization"] == "Bearer secret"
        self.send_response(200 if allowed else 401)
        self.end_headers()
        if allowed and self.path == f"{place}?{query}":
            self.wfile.write(
                json.dumps({"items": [pod("10.0.0.9", "Running")]}).encode()
            )

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A service account's folder, and an API server that it is for."""
    ca = make_ca()
    served = issue(ca, "api", [], ["127.0.0.1"])
    for name, text in (
        ("ca.crt", ca.cert_pem),
        ("chain.pem", served.cert_pem + served.key_pem),
        ("token", b"secret"),
        ("namespace", b"cloudcoll"),
    ):
        (tmp_path / name).write_bytes(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "chain.pem")
    with HTTPServer(("127.0.0.1", 0), Api) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_port))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield tmp_path
        server.shutdown()
        thread.join(timeout=120)


def test_members_are_asked_for_with_the_pods_token(account: Path) -> None:
    """Tests a real HTTPS server: path, selector, token, and whose word counts."""
    ask, hosts = MEMBERS["ask"], MEMBERS["hosts"]
    assert hosts(ask(account)) == ["10.0.0.9"]
    (account / "token").write_text("stolen")
    with pytest.raises(OSError, match="401"):
        ask(account)
    (account / "ca.crt").write_bytes(make_ca().cert_pem)
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        ask(account)
