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
``/``              the status page
=================  ==========================================================
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cloudcoll.daemon.metrics import metrics_text
from cloudcoll.daemon.page import render
from cloudcoll.daemon.view import View
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import read_stored
from cloudcoll.plain import plain_line


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
    plain: dict[str, Any] = _without_nan(fields)
    return plain


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
LONGEST_PATH = 1024
"""Characters of a request's path; a longer one is refused."""


@dataclass(frozen=True)
class Answer:
    """What goes back.

    Attributes
    ----------
    status : int
        Of HTTP.
    type : str
        MIME type of `body`.
    body : bytes
    """

    status: int
    type: str
    body: bytes


def answer(path: str, view: View) -> Answer:
    """Return the answer to ``GET path``.

    Parameters
    ----------
    path : str
        With its query, as in the request line.
    view : View
    """
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


def _map(query: dict[str, str], view: View) -> Answer:
    if stale := _stale(view):
        return stale
    wanted = query.get("question")
    for one in view.maps:
        if wanted in (None, one.question):
            return Answer(200, JSON, one.rank_map.to_json().encode())
    # Whoever solves it on its own can use the snapshot, or what it made of it.
    return _refusal(404, "no map to that question", snapshot=view.digest, key=view.key)


def _snapshot(query: dict[str, str], view: View) -> Answer:
    if stale := _stale(view):
        return stale
    if query.get("hosts", view.key) != view.key:
        return _refusal(404, "the snapshot is of other hosts")
    assert view.snapshot, "what is not there is stale"
    try:
        data = read_stored(view.snapshot, view.digest)
    except UnusableError as error:
        return _refusal(503, str(error))
    return Answer(200, "application/octet-stream", data)


def _stale(view: View) -> Answer | None:
    if not view.snapshot:
        return _refusal(503, view.trouble or "nothing measured yet: ask again later")
    if not view.fresh:
        return _refusal(503, view.trouble or "not confirmed for long: probe again")
    return None


def _status(query: dict[str, str], view: View) -> Answer:
    return Answer(200, JSON, _json(status_json(view)))


def _health(query: dict[str, str], view: View) -> Answer:
    if view.fresh:
        return Answer(200, TEXT, b"ok\n")
    words = plain_line(view.trouble or "nothing confirmed")
    return Answer(503, TEXT, f"{words}\n".encode())


def _metrics(query: dict[str, str], view: View) -> Answer:
    return Answer(200, METRICS, metrics_text(view).encode())


def _page(query: dict[str, str], view: View) -> Answer:
    try:
        return Answer(200, "text/html; charset=utf-8", render(view).encode())
    except UsageError as error:
        return _refusal(501, str(error))


def _refusal(status: int, reason: str, **more: str) -> Answer:
    return Answer(status, JSON, _json({"error": reason, **more}))


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"


PAGES: dict[str, Callable[[dict[str, str], View], Answer]] = {
    "/": _page,
    "/healthz": _health,
    "/metrics": _metrics,
    "/v1/map": _map,
    "/v1/snapshot": _snapshot,
    "/v1/status": _status,
}
"""Path -> who answers."""
