"""Open MPI's file of rules, and what is taken by it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from newfiles import write_new

from cloudcoll.errors import UsageError
from cloudcoll.libraries import Selection, select
from cloudcoll.libraries.open_mpi_rules import FileRule, file_rule

RULES = """\
2          # collectives: allreduce and bcast
2          # allreduce
2          # world sizes
8          # from 8 ranks
2
0 3 0 0
65536 4 0 0
16
1
0 5 0 1024
7          # bcast
1
4
3
0 6 0 0
1024 2 3 512 # a chain
4096 0 0 0   # as without the file
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A file of the form of 4.1 and 5.0."""
    path = tmp_path / "rules"
    path.write_text(RULES)
    return path


def taken(path: Path, collective: str, ranks: int, size: int, **told: str) -> Selection:
    """Return what Open MPI takes with a file of rules."""
    settings = {
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_dynamic_rules_filename": str(path),
        **told,
    }
    return select("openmpi@5.0.11", collective, ranks, size, settings=settings)


@pytest.mark.parametrize(
    ("collective", "ranks", "size", "rule"),
    [
        ("allreduce", 8, 65535, FileRule(3, 0, 0)),
        ("allreduce", 15, 65536, FileRule(4, 0, 0)),
        ("allreduce", 16, 1, FileRule(5, 0, 1024)),
        # Smaller worlds than the first take it too.
        ("allreduce", 4, 1, FileRule(3, 0, 0)),
        ("bcast", 64, 2000, FileRule(2, 3, 512)),
        ("reduce", 64, 2000, None),
    ],
)
def test_the_last_rule_that_is_not_above(
    rules: Path, collective: str, ranks: int, size: int, rule: FileRule | None
) -> None:
    """Tests thresholds of ranks and bytes."""
    assert file_rule(rules, collective, ranks, size) == rule


def test_what_is_taken(rules: Path) -> None:
    """Tests algorithm, segment and fan-out, and what overrules and follows the file."""
    ring = taken(rules, "allreduce", 16, 1 << 20)
    assert (ring.algorithm, dict(ring.parameters)) == (
        "segmented_ring",
        {"segment": 1024},
    )
    assert ring.rule == f"Open MPI 5.0.11: rule 5 of {rules}"
    assert taken(rules, "bcast", 16, 2000).parameters == {"segment": 512, "fanout": 3}
    forced = taken(rules, "bcast", 16, 2000, coll_tuned_bcast_algorithm="6")
    assert forced.algorithm == "binomial"
    for left in (taken(rules, "bcast", 16, 4096), taken(rules, "reduce", 16, 4096)):
        assert left.rule.startswith("Open MPI 5.0.11: coll/tuned")
        assert not left.assumption


def test_without_the_switch_it_is_not_looked_at(rules: Path) -> None:
    """Tests that tuned needs coll_tuned_use_dynamic_rules."""
    chosen = taken(rules, "allreduce", 16, 1 << 20, coll_tuned_use_dynamic_rules="0")
    assert chosen.algorithm == "rabenseifner"
    assert not chosen.assumption


def test_version_two_may_have_a_fifth_number(tmp_path: Path) -> None:
    """Tests that the most requests of a rule are left out, on its own line only."""
    path = tmp_path / "rules"
    path.write_text("rule-file-version-2\n1 3 1 2\n2\n0 1 0 0 8\n512 2 0 0\n")
    assert file_rule(path, "alltoall", 8, 0) == FileRule(1, 0, 0)
    assert file_rule(path, "alltoall", 8, 512) == FileRule(2, 0, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 2 1 8", "the rules end too early"),
        ("", "the rules end too early"),
        ("1 2 1 8 1 64 3 0 0", "the first rule of a world size has to be from 0"),
        ("1 2 1 8 1 0 -3 0 0", "-3 in the rules is negative"),
        ('{"rule": 3}', "rules in JSON are not read"),
    ],
)
def test_a_file_that_is_not_understood_is_said(
    tmp_path: Path, text: str, said: str
) -> None:
    """Tests that tuned's own rules are taken, as the library does, with a word."""
    path = tmp_path / "rules"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        file_rule(path, "allreduce", 8, 1)
    chosen = taken(path, "allreduce", 16, 1 << 20)
    assert chosen.algorithm == "rabenseifner"
    assert said in chosen.assumption


def test_an_algorithm_that_is_not_known_is_said(tmp_path: Path) -> None:
    """Tests a number above the library's."""
    path = tmp_path / "rules"
    path.write_text("1 2 1 2 1 0 99 0 0")
    assert "an algorithm 99 that is not known" in (
        taken(path, "allreduce", 16, 1 << 20).assumption
    )


@given(text=st.text(alphabet="0123456789 \n#-rule{}", max_size=60))
def test_any_text_is_rules_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    """Tests that nothing but a UsageError leaves the reader."""
    path = tmp_path_factory.getbasetemp() / "any-rules"
    write_new(path, text.encode())
    with contextlib.suppress(UsageError):
        rule = file_rule(path, "allreduce", 8, 4096)
        assert rule is None or min(rule) >= 0
