"""The shim for ranks in the environment (C; README.md is its contract)."""

from __future__ import annotations

from pathlib import Path

LIBRARY = Path(__file__).with_name("preload")
"""Built from the C files beside it when the package is installed."""

TABLE = "CLOUDCOLL_RANKS"
"""The variable with the path of the table."""
