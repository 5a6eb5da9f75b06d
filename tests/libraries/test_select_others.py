"""Gloo, LightGBM and XGBoost."""

from __future__ import annotations

import pytest

from cloudcoll.libraries import select


@pytest.mark.parametrize(
    ("library", "collective", "ranks", "size", "algorithm"),
    [
        ("gloo@2.13", "allreduce", 8, 1, "gloo_ring"),
        ("torch@2.13", "bcast", 8, 1, "gloo_binomial"),
        ("lightgbm@4.6.0", "reduce_scatter", 8, 1, "lightgbm"),
        ("xgboost@3.4", "allreduce", 8, 31, "xgboost_gather"),
        ("xgboost@3.4", "allreduce", 8, 32, "xgboost_ring"),
        ("xgboost@3.3", "bcast", 8, 32, "xgboost_relay"),
        ("xgboost@3.2.1", "bcast", 8, 32, "xgboost_binomial"),
    ],
)
def test_those_with_little_to_choose(
    library: str, collective: str, ranks: int, size: int, algorithm: str
) -> None:
    """Tests their algorithms, and XGBoost's two cases."""
    chosen = select(library, collective, ranks, size)
    assert chosen.algorithm == algorithm
    assert not chosen.assumption
