from __future__ import annotations

import pytest

from cloudcoll.errors import known_names


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("rng", "(did you mean ring? known: ring, tree)"),
        ("zzz", "(known: ring, tree)"),
    ],
)
def test_a_name_that_is_nearly_right(wrong: str, words: str) -> None:
    """Tests that the nearest name comes first, and all names in any case."""
    assert known_names(wrong, ["ring", "tree"]) == words
