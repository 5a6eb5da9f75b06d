"""What is in C because it is computed often: searches, and how links are shared.

Built from the sources beside this file when the package is installed, and called
through ctypes. Without it the same is computed in Python, slowly.
"""

from __future__ import annotations

import ctypes
import logging
from ctypes import POINTER, c_double, c_int32, c_int64
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

LIBRARY = Path(__file__).with_name("kernel")
"""All of it, as ``setup.py`` builds it."""

Int32s = POINTER(c_int32)
Int64s = POINTER(c_int64)
Doubles = POINTER(c_double)


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """Return the engine; None, and a word about it once, if it was not built."""
    try:
        return ctypes.CDLL(str(LIBRARY))
    except OSError:
        logging.getLogger(__name__).warning(
            "cloudcoll: the search engine was not built, searching slowly without it: "
            "install cloudcoll with a C compiler to have better orders sooner"
        )
        return None


def pointer(array: npt.NDArray[Any]) -> Any:
    """Return the pointer by which C reads an array, which has to outlive it."""
    kinds: dict[str, Any] = {"int32": Int32s, "int64": Int64s, "float64": Doubles}
    return array.ctypes.data_as(kinds[array.dtype.name])
