"""A view in Prometheus' text format (exposition format 0.0.4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cloudcoll.daemon.view import View
from cloudcoll.plain import plain_text

Rows = Sequence[tuple[dict[str, str], float]]
"""Labels and value of each series of a family."""

Family = tuple[str, str, str, Rows]
"""Name, type, what it is, series."""


def metrics_text(view: View) -> str:
    """Return the metrics page: at most five series a host, what is NaN left out.

    Two for each host, three for each group of two or more, six in all for the
    daemon itself.
    """
    families = (*_of_daemon(view), *_of_hosts(view), *_of_groups(view))
    return "".join(f"{line}\n" for family in families for line in _lines(*family))


def _of_daemon(view: View) -> Iterator[Family]:
    counts = view.counts
    by_result = {"ok": "probes", "failed": "failures"}
    yield (
        *("probes_total", "counter", "Probes done, by whether they measured."),
        [({"result": word}, counts.get(key, 0)) for word, key in by_result.items()],
    )
    sent, found = counts.get("bytes", 0), counts.get("maps", 0)
    for name, kind, words, value in (
        ("probed_bytes_total", "counter", "Payload that probes sent.", sent),
        ("maps_published_total", "counter", "Better orders found.", found),
        ("confirmed_timestamp_seconds", "gauge", "Of the snapshot.", view.confirmed),
    ):
        yield name, kind, words, [({}, value)]
    words = "Predicted time of the first map now, over that when it was made."
    yield "map_drift_ratio", "gauge", words, [({}, one.drift) for one in view.maps[:1]]


def _of_hosts(view: View) -> Iterator[Family]:
    answers = [({"host": host.name}, float(not host.failed)) for host in view.hosts]
    yield "host_up", "gauge", "Whether the host answers.", answers
    trips = [({"host": host.name}, host.rtt_s) for host in view.hosts]
    yield "host_rtt_seconds", "gauge", "Median round trip to whom it met last.", trips


def _of_groups(view: View) -> Iterator[Family]:
    groups = [group for group in view.groups if len(group.hosts) > 1]
    for field, words in (
        ("rtt", "Round trips out of the group"),
        ("up", "Rate out of the group"),
        ("down", "Rate into the group"),
    ):
        rows = [({"group": group.name}, getattr(group, field)) for group in groups]
        yield f"group_{field}_ratio", "gauge", f"{words}, over the snapshot's.", rows


def _lines(name: str, kind: str, words: str, rows: Rows) -> Iterator[str]:
    name = f"cloudcoll_{name}"
    told = [(labels, value) for labels, value in rows if not math.isnan(value)]
    if told:
        yield f"# HELP {name} {words}"
        yield f"# TYPE {name} {kind}"
    for labels, value in told:
        yield f"{name}{_labels(labels)} {value:.12g}"


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    plain = {
        name: plain_text(value).translate(escapes) for name, value in labels.items()
    }
    pairs = (f'{name}="{value}"' for name, value in plain.items())
    return f"{{{','.join(pairs)}}}"
