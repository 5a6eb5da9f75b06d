"""SECURITY.md and the fault table name tests and scripts: they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["SECURITY.md", "docs/fault-table.md"])
def test_every_claim_has_its_test(name: str) -> None:
    """Tests that each test that a text names is in one of the files it names."""
    text = (ROOT / name).read_text()
    names = set(re.findall(r"`(test_\w+)`", text))
    files = [ROOT / "tests" / name for name in re.findall(r"`([\w/]+\.py)[ `]", text)]
    folders = (ROOT / "benchmarks", ROOT / "tests" / "soak")
    scripts = {path.name for folder in folders for path in folder.glob("*.py")}
    found = [path for path in files if path.name not in scripts]
    code = "\n".join(path.read_text() for path in found)
    assert len(names) > 10
    assert {name for name in names if f"def {name}(" not in code} == set()
