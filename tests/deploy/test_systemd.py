"""The units, read by systemd itself; needs the package systemd, not its daemon."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from needs import SYSTEMD

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
EXPOSURE = 3.0
"""At most, of 10, by systemd's own count."""

pytestmark = [
    pytest.mark.system,
    SYSTEMD.mark,
]


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_hardened(unit: Path) -> None:
    """Tests that systemd finds little that a service could do to its host."""
    done = analyze(
        "security", "--offline=true", f"--threshold={EXPOSURE * 10:.0f}", unit
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found
    assert float(found[1]) <= EXPOSURE


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_has_no_mistakes(unit: Path, tmp_path: Path) -> None:
    """Tests that systemd knows every setting; the program alone is another one."""
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/cloudcoll/bin/cloudcoll", "/bin/sh"))
    done = analyze("verify", "--man=no", copy)
    assert done.returncode == 0, done.stderr
    assert unit.name not in done.stderr
    copy.write_text(copy.read_text().replace("MemoryMax=", "MemoryMost="))
    assert "'MemoryMost'" in analyze("verify", "--man=no", copy).stderr


def test_the_user_is_one_that_systemd_makes(tmp_path: Path) -> None:
    """Tests the line for systemd-sysusers on an empty root."""
    (tmp_path / "etc").mkdir()
    file = FOLDER / "cloudcoll.sysusers.conf"
    done = subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}", file],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    row = (tmp_path / "etc" / "passwd").read_text()
    assert re.fullmatch(
        r"cloudcoll:x:\d+:\d+:CloudColl daemon:/var/lib/cloudcoll:.*\n", row
    )
