"""A convolutional network in torch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import nn

from benchmarks.workloads import gloo
from benchmarks.workloads.place import Place, Sent

LIBRARY = gloo.LIBRARY
IMAGES, PIXELS, CLASSES = 4, 32, 10


def model() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 64, 3, 2, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64 * 8 * 8, 256), nn.ReLU(), nn.Linear(256, CLASSES)),
    )


def batch(generator: torch.Generator) -> gloo.Batch:
    images = torch.randn(IMAGES, 3, PIXELS, PIXELS, generator=generator)
    return images, torch.randint(CLASSES, (IMAGES,), generator=generator)


def sent(ranks: int) -> list[Sent]:
    return gloo.gradients(model())


def training(place: Place) -> AbstractContextManager[Callable[[], float]]:
    return gloo.data_parallel(place, model, batch)
