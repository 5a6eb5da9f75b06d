"""Other people's measurements and labels, read into snapshots.

What the formats share is in `reading`: how a file is read, and how hosts and groups
become a tree.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cloudcoll.importers.labels import read_labels
from cloudcoll.importers.matrix import read_matrices
from cloudcoll.importers.trees import read_slurm, read_topograph, read_tree
from cloudcoll.measured.snapshot import NetworkSnapshot

__all__ = ["READERS", "read_matrices"]

READERS: dict[str, Callable[[Path], NetworkSnapshot]] = {
    "fabric": read_tree,
    "labels": read_labels,
    "slurm": read_slurm,
    "topograph": read_topograph,
}
"""Format -> reader of one file that describes a tree; matrices, which come in
pairs and units, have `read_matrices`."""
