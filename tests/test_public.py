"""What people import: the names are there, and their examples run."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import cloudcoll

MODULES = ("cloudcoll", *{f"cloudcoll.{home}" for home in cloudcoll._HOMES.values()})


def test_all_names_are_there_and_documented() -> None:
    """Tests that each public name can be imported, and says what it is."""
    assert sorted(cloudcoll._HOMES) == sorted(cloudcoll.__all__)
    for name in cloudcoll.__all__:
        assert inspect.getdoc(getattr(cloudcoll, name))
    assert 10 <= len(cloudcoll.__all__) <= 15


def test_other_names_are_refused() -> None:
    """Tests that a typo ends as it does in any module."""
    with pytest.raises(AttributeError, match="no attribute 'mesure'"):
        cloudcoll.mesure  # noqa: B018


@pytest.mark.usefixtures("patient_probes")
@pytest.mark.parametrize("name", sorted(MODULES))
def test_examples_run(name: str) -> None:
    """Tests what docstrings promise."""
    done = doctest.testmod(importlib.import_module(name))
    assert done.failed == 0


@pytest.mark.usefixtures("patient_probes")
def test_the_examples_of_the_readme_run() -> None:
    """Tests what README.md shows under "From Python"."""
    readme = Path(__file__).parents[1] / "README.md"
    done = doctest.testfile(str(readme), module_relative=False)
    assert (done.failed, done.attempted) == (0, 5)


def test_there_are_examples() -> None:
    """Tests that functions that do something have one each."""
    finder = doctest.DocTestFinder()
    for function in ("measure", "order_for", "start"):
        assert any(one.examples for one in finder.find(getattr(cloudcoll, function)))
