"""What an order takes on trust is named, with the command that measures it."""

from __future__ import annotations

import dataclasses

from cloudcoll.hosts import Host
from cloudcoll.infer import infer_fabric
from cloudcoll.measured.samples import RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.report.checks import missing_line

FABRIC = racks((4, 4), seed=3)


def seen(*, rounds: int, kept: slice = slice(None), mode: str = "") -> NetworkSnapshot:
    """Return what a probe saw: some of the pairs, some loaded rounds."""
    snapshot = observe(FABRIC, samples=1, rounds=rounds)
    rtt = snapshot.rtt
    some = RttSamples(
        rtt.src[kept],
        rtt.dst[kept],
        rtt.sent[kept],
        rtt.ends[: len(rtt.src[kept])],
        rtt.seconds[kept],
    )
    metadata = {**snapshot.metadata, **({"mode": mode} if mode else {})}
    snapshot = dataclasses.replace(snapshot, rtt=some, metadata=metadata)
    return snapshot.with_fabric(infer_fabric(snapshot))


def test_nothing_is_missing() -> None:
    """Tests that all pairs and links measured are no reason for a word."""
    snapshot = seen(rounds=40)
    assert missing_line(snapshot.with_fabric(FABRIC), snapshot.names) == ""


def test_pairs_without_a_figure_are_counted() -> None:
    """Tests the number, the first one, and that other hosts do not count."""
    snapshot = seen(rounds=0, kept=slice(2, None), mode="full")
    assert missing_line(snapshot, snapshot.names) == (
        "2 of 28 pairs were not measured (the first: vm-1 and vm-2): "
        "a full probe could not, its warnings say why"
    )
    assert missing_line(snapshot, snapshot.names[1:]) == ""


def test_links_without_a_rate_are_counted() -> None:
    """Tests round trips alone, and the next mode of a probe."""
    snapshot = seen(rounds=0, mode="standard")
    assert missing_line(snapshot, snapshot.names) == (
        "10 of 10 links have no rate (the first: group 1): "
        "'cloudcoll probe --full' measures more"
    )
    quick = seen(rounds=0, mode="quick")
    assert "--standard" in missing_line(quick, quick.names)


def test_a_silent_host_is_told_of_elsewhere() -> None:
    """Tests that neither its pairs nor its card are counted, nor labels alone."""
    snapshot = seen(rounds=40).with_fabric(FABRIC)
    hosts = (*snapshot.hosts, Host("vm-9"))
    fabric = infer_fabric(dataclasses.replace(snapshot, hosts=hosts, fabric=None))
    more = dataclasses.replace(snapshot, hosts=hosts, fabric=fabric)
    assert missing_line(more, more.names) == missing_line(
        snapshot.with_fabric(infer_fabric(snapshot)), snapshot.names
    )
    assert missing_line(NetworkSnapshot(hosts, fabric=FABRIC), ["vm-1", "vm-9"]) == ""
