"""A workload as people and programs write it: JSON, read with every value checked.

{"parallel": "tp=4,dp=4", "library": "nccl",
"groups": {"towers": [[0, 1, 2, 3], [4, 5, 6, 7]]},
"operations": [{"collective": "allreduce", "groups": "dp", "bytes": "64M",
"calls": 8}]}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives.groups import (
    AXES,
    MOST_RANKS,
    WORLD,
    Parallel,
    is_implied,
    parse_parallel,
)
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.errors import UsageError
from cloudcoll.files import parse_json
from cloudcoll.libraries import OF_TRAINING, large_vector_algorithm
from cloudcoll.units import parse_size

KEYS = ("workload", "ranks", "parallel", "library", "groups", "operations")
OPERATION_KEYS = (
    *("collective", "algorithm", "library", "groups"),
    *("bytes", "calls", "parameters"),
)

MOST = 1 << 60
"""The largest number taken: bytes and calls are multiplied as floats."""


def read_workload(
    text: str,
    source: str,
    ranks: int | None = None,
    parallel: str | None = None,
) -> Workload:
    """Read a workload file.

    Parameters
    ----------
    text : str
        JSON; `Workload.describe` returns the same form.
    source : str
        What the text is called in errors, and the workload if it has no name.
    ranks : int, optional
        The job's world size; else the file's, or that of its split.
    parallel : str, optional
        How the ranks are split, where the file does not say.

    Raises
    ------
    UsageError
        Not JSON, an unknown key, a wrong value, or groups that do not fit the
        job; the message names the file and the operation.
    """
    data = parse_json(text, source)
    try:
        return _workload(data, source, ranks, parallel)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None


def split_of(parallel: str | None, ranks: int | None) -> Parallel:
    """Return how a job's ranks are split; all of them data parallel by default.

    Raises
    ------
    UsageError
        The split does not fit the ranks, or neither is known.
    """
    if parallel is not None:
        return parse_parallel(parallel, ranks)
    if ranks is None:
        raise UsageError("how many ranks? add --ranks N, or --snapshot SNAP")
    if ranks < 2:
        raise UsageError(f"a workload is of 2 ranks or more, not {ranks}")
    return Parallel(dp=ranks)


def _workload(
    data: object, source: str, ranks: int | None, parallel: str | None
) -> Workload:
    fields = _object(data, "a workload", KEYS)
    own = None
    if "ranks" in fields:
        own = _number(fields, "ranks", least=2, most=MOST_RANKS)
    if own is not None and ranks not in (None, own):
        raise UsageError(f"it is for {own} ranks, the job has {ranks}")
    if "parallel" in fields:
        if parallel is not None:
            raise UsageError("it says itself how ranks are split: leave out --parallel")
        parallel = _text(fields, "parallel")
    split = split_of(parallel, own if ranks is None else ranks)
    spelled = _object(fields.get("groups", {}), "'groups'")
    named = {name: _groups(name, spelled[name], split.ranks) for name in spelled}
    operations = fields.get("operations")
    if not isinstance(operations, list) or not operations:
        raise UsageError("'operations' must be a list of at least one")
    library = _text(fields, "library", "")
    read = []
    for number, operation in enumerate(operations, 1):
        try:
            read.append(_operation(operation, split, named, library))
        except UsageError as error:
            raise UsageError(f"operation {number}: {error}") from None
    name = _text(fields, "workload", source)
    return Workload(name, split.ranks, tuple(read), str(split) if parallel else "")


def _operation(
    data: object, split: Parallel, named: Mapping[str, list[Ints]], library: str
) -> Operation:
    fields = _object(data, "an operation", OPERATION_KEYS)
    collective = _text(fields, "collective")
    library = _text(fields, "library", library)
    algorithm = (
        _text(fields, "algorithm")
        if "algorithm" in fields
        else large_vector_algorithm(library or OF_TRAINING, collective)
    )
    parameters = _object(fields.get("parameters", {}), "'parameters'")
    where = _text(fields, "groups", WORLD)
    if where not in named and not is_implied(where):
        known = ", ".join([WORLD, *AXES, *named])
        raise UsageError(f"no groups {where!r} (known: {known}; axes joined by -)")
    operation = Operation(
        collective,
        algorithm,
        0 if collective == "barrier" else _number(fields, "bytes"),
        named[where] if where in named else list(split.named(where)),
        _number(fields, "calls") if "calls" in fields else 1,
        where,
        {key: _number(parameters, key, least=0) for key in parameters},
        library,
    )
    operation.schedule(split.ranks)  # refuses what does not fit, here by number
    return operation


def _groups(name: str, value: object, ranks: int) -> list[Ints]:
    """Return groups that are spelled out, as arrays."""
    if not name.isprintable():
        raise UsageError(f"the name of groups {name!r} must be a line of text")
    if is_implied(name):
        raise UsageError(f"groups {name!r} follow from 'parallel': take another name")
    groups = value if isinstance(value, list) else []
    if not groups or not all(isinstance(group, list) and group for group in groups):
        raise UsageError(f"groups {name!r} must be a list of lists of ranks")
    for group in groups:
        for rank in group:
            if type(rank) is not int or not 0 <= rank < ranks:
                raise UsageError(
                    f"groups {name!r}: {rank!r} is no rank of 0 to {ranks - 1}"
                )
    return [np.array(group, dtype=np.int64) for group in groups]


def _object(
    value: object, name: str, known: tuple[str, ...] | None = None
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name} must be a JSON object")
    for key in value:
        if known is not None and key not in known:
            raise UsageError(f"{name} has no key {key!r} (known: {', '.join(known)})")
    return value


def _text(fields: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = fields.get(key, default)
    if not isinstance(value, str) or not value.isprintable():
        raise UsageError(f"{key!r} must be a line of text")
    return value


def _number(
    fields: Mapping[str, Any], key: str, least: int = 1, most: int = MOST
) -> int:
    """Return a whole number; of bytes and parameters, also as ``64M``."""
    value = fields.get(key)
    if isinstance(value, str):
        value = parse_size(value)
    if type(value) is not int or not least <= value <= most:
        raise UsageError(f"{key!r} must be a whole number, {least} or more")
    return value
