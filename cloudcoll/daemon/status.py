"""A view as JSON: what ``daemon status`` prints and the status page shows."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from cloudcoll.daemon.view import View


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
