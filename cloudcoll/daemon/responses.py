"""What the daemon answers to a request: from a path and a `View` alone.

The Unix socket and the HTTPS front both ask here.

=================  ==========================================================
``/v1/map``        the rank map (JSON) of the daemon's own question, or of
                   ``?question=KEY``
``/v1/snapshot``   the snapshot file in force; ``?hosts=KEY``: of this host
                   set or none
``/v1/status``     all of the view but the snapshot (JSON)
``/healthz``       200 while the snapshot is confirmed, else 503
``/metrics``       Prometheus' text format, at most 5 series a host
``/``              the status page; ``?still=1``: it does not reload itself
=================  ==========================================================
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cloudcoll.daemon.page import render
from cloudcoll.daemon.view import View
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import read_stored
from cloudcoll.plain import plain_line, plain_text
from cloudcoll.units import json_ready

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
    known = [(labels, value) for labels, value in rows if not math.isnan(value)]
    if known:
        yield f"# HELP {name} {words}"
        yield f"# TYPE {name} {kind}"
    for labels, value in known:
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


def status_json(view: View) -> dict[str, Any]:
    """Return the fields of `View` as JSON values, without the snapshot itself.

    Of each map stands the order beside its question; NaN is None.
    """
    fields = asdict(view)
    del fields["snapshot"]
    fields["fresh"] = view.fresh
    if view.trust:
        fields["trust"]["words"] = view.trust.words
    fields["maps"] = [
        {
            "question": one.question,
            "drift": one.drift,
            **json.loads(one.rank_map.to_json()),
        }
        for one in view.maps
    ]
    plain: dict[str, Any] = json_ready(fields)
    return plain


JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
LONGEST_PATH = 1024
"""Characters of a request's path; a longer one is refused."""


@dataclass(frozen=True)
class Response:
    """What goes back.

    Attributes
    ----------
    status : int
        Of HTTP.
    type : str
        MIME type of `body`.
    """

    status: int
    type: str
    body: bytes


def answer(path: str, view: View) -> Response:
    """Return the answer to ``GET path``, a path with its query."""
    if len(path) > LONGEST_PATH:
        return _refusal(414, f"a path of {len(path)} characters")
    try:
        parts = urlsplit(path)
        query = dict(parse_qsl(parts.query, max_num_fields=8))
    except ValueError:
        return _refusal(400, "the path does not parse")
    if parts.path not in PAGES:
        return _refusal(404, f"nothing there (known: {', '.join(PAGES)})")
    return PAGES[parts.path](query, view)


def _map(query: dict[str, str], view: View) -> Response:
    if stale := _stale(view):
        return stale
    wanted = query.get("question")
    for one in view.maps:
        if wanted in (None, one.question):
            return Response(200, JSON, one.rank_map.to_json().encode())
    # Whoever solves it on its own can use the snapshot, or what it made of it.
    return _refusal(404, "no map to that question", snapshot=view.digest, key=view.key)


def _snapshot(query: dict[str, str], view: View) -> Response:
    if stale := _stale(view):
        return stale
    if query.get("hosts", view.key) != view.key:
        return _refusal(404, "the snapshot is of other hosts")
    assert view.snapshot, "what is not there is stale"
    try:
        data = read_stored(view.snapshot, view.digest)
    except UnusableError as error:
        return _refusal(503, str(error))
    return Response(200, "application/octet-stream", data)


def _stale(view: View) -> Response | None:
    if not view.snapshot:
        return _refusal(503, view.trouble or "nothing measured yet: ask again later")
    if not view.fresh:
        return _refusal(503, view.trouble or "not confirmed for long: probe again")
    return None


def _status(query: dict[str, str], view: View) -> Response:
    return Response(200, JSON, _json(status_json(view)))


def _health(query: dict[str, str], view: View) -> Response:
    if view.fresh:
        return Response(200, TEXT, b"ok\n")
    words = plain_line(view.trouble or "nothing confirmed")
    return Response(503, TEXT, f"{words}\n".encode())


def _metrics(query: dict[str, str], view: View) -> Response:
    return Response(200, METRICS, metrics_text(view).encode())


def _page(query: dict[str, str], view: View) -> Response:
    try:
        page = render(view, renews="still" not in query)
        return Response(200, "text/html; charset=utf-8", page.encode())
    except UsageError as error:
        return _refusal(501, str(error))


def _refusal(status: int, reason: str, **more: str) -> Response:
    return Response(status, JSON, _json({"error": reason, **more}))


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"


PAGES: dict[str, Callable[[dict[str, str], View], Response]] = {
    "/": _page,
    "/healthz": _health,
    "/metrics": _metrics,
    "/v1/map": _map,
    "/v1/snapshot": _snapshot,
    "/v1/status": _status,
}
"""Path -> who answers."""
