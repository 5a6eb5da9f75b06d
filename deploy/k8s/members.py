"""Keep a host list of the nodes on which agents run: ``members.py FILE``.

Asks the API server of this pod's cluster every half minute. The daemon sees the
file change. Standard library only.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
AGENTS = "app.kubernetes.io/name%3Dcloudcoll-agent"
SECONDS = 30.0
TIMEOUT = 10.0
LARGEST = 64 << 20
"""Bytes of an answer: ten times what 1000 pods take."""


def ask(account: Path) -> dict[str, Any]:
    """Return the API server's list of the agents' pods."""
    host, port = (os.environ[f"KUBERNETES_SERVICE_{it}"] for it in ("HOST", "PORT"))
    server = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    space = (account / "namespace").read_text()
    request = urllib.request.Request(
        f"https://{server}/api/v1/namespaces/{space}/pods?labelSelector={AGENTS}",
        # Read anew each time: the token lives for an hour.
        headers={"Authorization": f"Bearer {(account / 'token').read_text()}"},
    )
    trust = ssl.create_default_context(cafile=str(account / "ca.crt"))
    with urllib.request.urlopen(request, timeout=TIMEOUT, context=trust) as answer:
        found: dict[str, Any] = json.loads(answer.read(LARGEST))
    return found


def hosts(pods: dict[str, Any]) -> list[str]:
    """Return the addresses of the nodes where an agent runs, sorted.

    Whether it is ready does not matter: a host that comes and goes is the
    probe's to report, and no other set of hosts.
    """
    running = [pod for pod in pods["items"] if pod["status"]["phase"] == "Running"]
    return sorted({pod["status"]["hostIP"] for pod in running})


def keep(path: Path, names: list[str]) -> None:
    """Write the list if it is another one; a reader sees the old or the new."""
    text = "".join(f"{name}\n" for name in names)
    if names and not (path.exists() and path.read_text() == text):
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)
        print(f"{len(names)} hosts", file=sys.stderr)


def main(path: Path) -> None:
    """Go on until the pod ends; what fails is said, and tried again."""
    while True:
        try:
            keep(path, hosts(ask(ACCOUNT)))
        except (OSError, ValueError, KeyError) as error:
            print(f"the list of hosts stays as it is: {error}", file=sys.stderr)
        time.sleep(SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
