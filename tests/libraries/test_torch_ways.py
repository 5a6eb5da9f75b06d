from __future__ import annotations

import inspect

import pytest
from needs import TORCH

from cloudcoll.libraries.torch import READ, WAYS, way_of


@pytest.mark.parametrize(
    ("version", "groups"),
    [
        *((v, True) for v in ((2, 13), (2, 13, 1), (2, 14), (3, 0))),
        *((v, False) for v in ((2, 12, 9), (2, 6), (1, 13), ())),
    ],
)
def test_ways(version: tuple[int, ...], groups: bool) -> None:
    """Tests that groups are said to keep their order from the first that does."""
    assert way_of(version).groups == groups
    assert [way.since for way in WAYS] == sorted((w.since for w in WAYS), reverse=True)


@TORCH.mark
def test_the_record_is_of_the_torch_that_is_here() -> None:
    """Tests what the record rests on: the argument of torch's own function."""
    import torch

    version = tuple(map(int, torch.__version__.split(".")[:2]))
    kept = "sort_ranks" in inspect.signature(torch.distributed.new_group).parameters
    assert way_of(version).groups == kept
    assert version <= READ
