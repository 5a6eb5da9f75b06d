from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cloudcoll.errors import UnusableError
from cloudcoll.hosts import Host
from cloudcoll.measured import merge
from cloudcoll.measured.merge import boot_ids, own_boot_id, rebooted
from cloudcoll.measured.snapshot import NetworkSnapshot, parse_snapshot


def told(facts: object) -> NetworkSnapshot:
    """Return a snapshot whose agents said this of their hosts."""
    return NetworkSnapshot((Host("a"), Host("b")), metadata={"agents": facts})


def test_whose_boot_is_known() -> None:
    """Tests that an agent that tells no boot id, or nothing, leaves it unknown."""
    facts = {"a": {"boot_id": "1"}, "b": {"boot_id": ""}, "c": {"load": 1.0}}
    assert boot_ids(told(facts)) == {"a": "1"}
    assert boot_ids(NetworkSnapshot((Host("a"),))) == {}


def test_what_is_kept_of_facts() -> None:
    """Tests that they come back from a file, and others than mappings are refused."""
    kept = parse_snapshot(told({"a": {"boot_id": "1"}}).to_bytes(), "x")
    assert boot_ids(kept) == {"a": "1"}
    for facts in (5, ["a"], {"a": 5}):
        with pytest.raises(UnusableError, match="not understood"):
            parse_snapshot(told(facts).to_bytes(), "x")


@pytest.mark.parametrize(
    ("later", "found"),
    [({"a": "1"}, {}), ({"a": "2"}, {"a": ("1", "2")}), ({"b": "2"}, {}), ({}, {})],
)
def test_who_was_rebooted(
    later: Mapping[str, str], found: Mapping[str, tuple[str, str]]
) -> None:
    """Tests that only a host of which both boots are known is told."""
    first, second = (
        told({name: {"boot_id": boot} for name, boot in ids.items()})
        for ids in ({"a": "1"}, later)
    )
    assert rebooted(first, second) == found


def test_own_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests this machine's, and a system that has none."""
    assert len(own_boot_id()) == 36
    monkeypatch.setattr(merge, "BOOT_ID", tmp_path / "none")
    assert own_boot_id() == ""
