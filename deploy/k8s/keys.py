"""Bring each node its own agent's key: ``keys.py IMAGE PKI`` prints what to apply.

Standard input is ``kubectl get nodes -o json``, PKI what ``cloudcoll agent certs``
wrote. For each node: a Secret with its key, and a pod on that node which copies it to
/etc/cloudcoll. A kubelet may read only Secrets of pods on its node, so no node, and
no pod on it, ever has another node's key. Standard library only.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

NAMES = ("cert.pem", "key.pem", "ca.pem")
FOLDER = "/etc/cloudcoll"
"""On the node; agent.yaml mounts it."""
GROUP = 10001
"""The agents' group."""
COPY = (
    f"chgrp {GROUP} /node && chmod 0750 /node && "
    f"cd /pki && install -m 0640 {' '.join(NAMES)} /node"
)

Document = dict[str, Any]


def address_of(node: Document) -> str:
    """Return a node's internal IPv4 address, by which its agent is known."""
    for one in node["status"]["addresses"]:
        if one["type"] == "InternalIP" and ":" not in one["address"]:
            return str(one["address"])
    return ""


def meta(address: str) -> Document:
    """Return the metadata of what is there until a node has its key."""
    name = f"cloudcoll-key-{address.replace('.', '-')}"
    labels = {"cloudcoll-key": "true"}
    return {"name": name, "namespace": "cloudcoll", "labels": labels}


def secret(address: str, folder: Path) -> Document:
    """Return the Secret with the files of one agent."""
    files = {name: (folder / name).read_bytes() for name in NAMES}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": meta(address),
        "data": {name: base64.b64encode(text).decode() for name, text in files.items()},
    }


def pod(address: str, node: str, image: str) -> Document:
    """Return the pod that copies them, as root, for the agents' group to read."""
    tight = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    copy = {
        "name": "copy",
        "image": image,
        "command": ["sh", "-ec", COPY],
        "securityContext": tight,
        "resources": {"limits": {"memory": "64Mi"}},
        "volumeMounts": [
            {"name": "pki", "mountPath": "/pki", "readOnly": True},
            {"name": "node", "mountPath": "/node"},
        ],
    }
    volumes = [
        {"name": "pki", "secret": {"secretName": meta(address)["name"]}},
        {"name": "node", "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"}},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(address),
        "spec": {
            "nodeName": node,
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {
                "runAsUser": 0,
                "runAsGroup": GROUP,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [copy],
            "volumes": volumes,
        },
    }


def main(image: str, pki: Path) -> int:
    """Print the list; 1 if a node has no certificate, which is then left out."""
    items, missing = [], 0
    for node in json.load(sys.stdin)["items"]:
        name, address = node["metadata"]["name"], address_of(node)
        folder = pki / "agents" / address
        if not address or not folder.is_dir():
            print(f"{name}: no certificate of {address or 'it'}", file=sys.stderr)
            missing += 1
            continue
        items += [secret(address, folder), pod(address, name, image)]
    json.dump({"apiVersion": "v1", "kind": "List", "items": items}, sys.stdout)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
