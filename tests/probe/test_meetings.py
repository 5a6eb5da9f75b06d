from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.probe.results import Meeting, Meetings

HOSTS = 5
hosts = st.integers(0, HOSTS - 1)
planned = st.dictionaries(
    st.tuples(st.sampled_from(["rtt", "flow"]), st.integers(0, 1 << 32), hosts), hosts
)


@given(planned, planned)
def test_meetings_are_as_a_dictionary_has_them(
    some: dict[Meeting, int], more: dict[Meeting, int]
) -> None:
    """Tests places, peers and samples, whatever the order of plans and reports."""
    met = Meetings(HOSTS)
    met.add(some.items())
    met.add(more.items())
    peers = {**more, **some}
    order = list(dict.fromkeys((*some, *more)))
    assert [met.find(meeting) for meeting in order] == list(range(len(met)))
    assert met.peer.tolist() == [peers[meeting] for meeting in order]
    assert met.slot.tolist() == [slot for _, slot, _ in order]
    assert met.host.tolist() == [host for _, _, host in order]
    assert met.is_rtt.tolist() == [kind == "rtt" for kind, _, _ in order]
    # Every other one is reported, the last first, with up to two samples.
    told = range(len(met))[::-2]
    reports = {place: [place * 7, place * 7 + 1][place % 3 :] for place in told}
    for place, values in reports.items():
        assert met.take(place, values, place)
        assert not met.take(place, [1 << 50], 9)
    assert met.reported == len(told)
    places = np.flatnonzero(~met.missing)
    assert places.tolist() == sorted(told)
    joined = [value for place in sorted(told) for value in reports[place]]
    assert met.samples(places).tolist() == joined
    assert met.sent[places].tolist() == sorted(told)


@given(planned, st.sets(st.integers(0, 2 * HOSTS)))
def test_meetings_among_hosts(some: dict[Meeting, int], chosen: set[int]) -> None:
    """Tests that both hosts have to be among them; hosts of no plan are none."""
    met = Meetings(HOSTS)
    met.add(some.items())
    expected = [{host, peer} <= chosen for (_, _, host), peer in some.items()]
    assert met.among(chosen).tolist() == expected


def test_hosts_beyond_the_probe_met_nobody() -> None:
    """Tests that a position from a damaged file is never taken for another's."""
    met = Meetings(HOSTS)
    met.add([(("rtt", 0, 1), 2), (("rtt", 1, 0), 2)])
    for host in (-1, HOSTS, 1 << 17, (1 << 17) + 1):
        assert met.find(("rtt", 0, host)) == -1
