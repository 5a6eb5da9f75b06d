"""The role, by ansible-lint at its strictest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "ansible"
ROLE = FOLDER / "roles" / "cloudcoll"


def ansible(*words: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run one of Ansible's programs, which find each other by the PATH."""
    programs = str(Path(sys.executable).parent)
    return subprocess.run(
        words,
        cwd=FOLDER,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(home),
            "ANSIBLE_HOME": str(home),
            "ANSIBLE_ROLES_PATH": str(FOLDER / "roles"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "LC_ALL": "C.UTF-8",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.slow
def test_ansible_lint_finds_nothing(tmp_path: Path) -> None:
    """Tests the profile that asks for most, without the network."""
    done = ansible(
        *("ansible-lint", "--offline", "--profile=production", "--nocolor"),
        *("--project-dir", ".", "playbook.yml", "roles"),
        home=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Profile 'production' was required, and it passed" in done.stderr


def test_the_playbook_parses(tmp_path: Path) -> None:
    """Tests what Ansible itself makes of it."""
    inventory = tmp_path / "inventory"
    inventory.write_text("[cloudcoll]\na\nb\n[cloudcoll_daemon]\na\n")
    words = ("ansible-playbook", "-i", inventory, "playbook.yml", "--list-tasks")
    done = ansible(*words, home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cloudcoll : Install CloudColl" in done.stdout


def test_files_are_where_the_role_looks() -> None:
    """Tests that the units that the role installs are in deploy/."""
    tasks = yaml.safe_load((ROLE / "tasks" / "daemon.yml").read_text())
    names = {item["name"] for item in tasks[0]["loop"]}
    assert {*names, "cloudcoll-agent.service"} == {
        path.name for path in (FOLDER.parent / "systemd").iterdir()
    }
