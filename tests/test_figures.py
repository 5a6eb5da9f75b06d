"""The ratios that README.md and docs/figures.md quote, and the record."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RATIO = re.compile(r"\d+\.\d+x(?: \([\d.]+ to [\d.]+\))?")


@pytest.fixture(scope="module")
def recorded() -> set[str]:
    """The last entry of each figure, with its interval and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT), *sys.path])
        from benchmarks.record import HISTORY, quote, series
    last = [all_[-1] for name, all_ in series(HISTORY).items() if " over " in name]
    return {
        words for entry in last for words in (quote(entry), quote(entry).split()[0])
    }


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("README.md", "What it gains"),
        ("docs/figures.md", "Gains"),
        ("docs/figures.md", "Real training"),
    ],
)
def test_quoted_ratios_are_the_last_recorded(
    recorded: set[str], page: str, title: str
) -> None:
    """Tests that nobody writes down what no script put into the record."""
    _, _, rest = (ROOT / page).read_text().partition(f"\n## {title}\n")
    quoted = RATIO.findall(rest.partition("\n## ")[0])
    assert len(quoted) > 4
    assert [words for words in quoted if words not in recorded] == []
