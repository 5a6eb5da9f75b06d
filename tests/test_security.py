"""SECURITY.md names tests and scripts: they exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text()


def test_every_claim_has_its_test() -> None:
    """Tests that each test that SECURITY.md names is in one of the files it names."""
    names = set(re.findall(r"`(test_\w+)`", TEXT))
    files = [ROOT / "tests" / name for name in re.findall(r"`([\w/]+\.py)`", TEXT)]
    scripts = {path.name for path in (ROOT / "benchmarks").glob("*.py")}
    found = [path for path in files if path.name not in scripts]
    code = "\n".join(path.read_text() for path in found)
    assert len(names) > 10
    assert {name for name in names if f"def {name}(" not in code} == set()
