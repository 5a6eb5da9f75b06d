"""What neighbours hand on to each other, as the stages of a pipeline do."""

from __future__ import annotations

import numpy as np

from cloudcoll.collectives.steps import Flow, send


def forward(ranks: int, size: int) -> Flow:
    """Return rank r sending the whole vector to r + 1: activations."""
    src = np.arange(ranks - 1)
    return Flow([send(src, src + 1, size, src)], ranks)


def backward(ranks: int, size: int) -> Flow:
    """Return rank r sending the whole vector to r - 1: gradients."""
    src = np.arange(1, ranks)
    return Flow([send(src, src - 1, size, src)], ranks)


def both(ranks: int, size: int) -> Flow:
    """Return both at once: a pipeline that goes forward and backward in turn.

    Narayanan et al. (2021), 2.2: one micro-batch forward, one backward.
    """
    low = np.arange(ranks - 1)
    src, dst = np.concatenate([[low, low + 1], [low + 1, low]], axis=1)
    return Flow([send(src, dst, size, src)], ranks)
