"""Which start of a host was measured: after another it may stand elsewhere.

A virtual machine that was stopped and started, or moved by its provider, comes up
with another boot id, and maybe in another rack. Hosts of which none is known, such
as those that an MPI job probed, are taken to be as they were.
"""

from __future__ import annotations

from pathlib import Path

from cloudcoll.measured.snapshot import NetworkSnapshot

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_ids(snapshot: NetworkSnapshot) -> dict[str, str]:
    """Return the boot id of each host that told it, by name."""
    facts = snapshot.metadata.get("agents", {})
    return {n: str(one["boot_id"]) for n, one in facts.items() if one.get("boot_id")}


def own_boot_id() -> str:
    """Return this machine's boot id, empty where the system has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def rebooted(
    before: NetworkSnapshot, after: NetworkSnapshot
) -> dict[str, tuple[str, str]]:
    """Return both boot ids of each host that was started anew between two snapshots."""
    ids, later = boot_ids(before), boot_ids(after)
    both = {name: (boot, later.get(name, boot)) for name, boot in ids.items()}
    return {name: (old, new) for name, (old, new) in both.items() if old != new}
