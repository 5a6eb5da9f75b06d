"""What glibc keeps of memory that was freed: a daemon gives it back.

A check of a thousand hosts takes a hundred megabytes for a moment, a daemon some
forty for weeks. With another C library than glibc nothing is done.
"""

from __future__ import annotations

import ctypes

LARGE = 1 << 17
"""Bytes from which a block goes back by itself when it is freed."""
M_MMAP_THRESHOLD = -3
"""Of glibc's ``malloc.h``."""


def map_large() -> None:
    """Have what is `LARGE` mapped apart from the heap, whatever was freed before.

    That is glibc's rule at the start. It learns from each such block that is freed
    to put those like it on the heap, where they leave holes (mallopt(3), glibc 2.36).
    """
    if setting := getattr(ctypes.CDLL(None), "mallopt", None):
        setting(M_MMAP_THRESHOLD, LARGE)


def give_back() -> None:
    """Return what is free of the heap to the system."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
