"""The status page: one HTML file without script or network."""

from __future__ import annotations

import html
import json
from typing import Any


def status_page(status: dict[str, Any]) -> str:
    """Return the page.

    Parameters
    ----------
    status : dict
        See `cloudcoll.daemon.status.status_json`.
    """
    text = html.escape(json.dumps(status, indent=1))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>CloudColl</title><pre>{text}</pre></html>\n"
    )
