"""A small language model in torch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import nn

from benchmarks.workloads import gloo
from benchmarks.workloads.place import Place, Sent

LIBRARY = gloo.LIBRARY
WORDS, SENTENCES, LENGTH, WIDTH = 800, 2, 16, 208


class Language(nn.Module):
    """Predict the next word from those before it."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(width, WORDS)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return scores of each word at each place, shape (places, words)."""
        found = self.embedding(words)
        for layer in self.layers:
            found = layer(found, src_mask=self.mask)
        return self.head(found.flatten(0, 1))


def batch(generator: torch.Generator) -> gloo.Batch:
    text = torch.randint(WORDS, (SENTENCES, LENGTH + 1), generator=generator)
    return text[:, :-1], text[:, 1:].flatten()


def sent(ranks: int) -> list[Sent]:
    return gloo.gradients(Language())


def training(place: Place) -> AbstractContextManager[Callable[[], float]]:
    return gloo.data_parallel(place, Language, batch)
