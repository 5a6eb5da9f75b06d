from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values

from cloudcoll.collectives.readymade import READY_MADE, ready_made
from cloudcoll.collectives.workload import KEYS, OPERATION_KEYS, Workload, read_workload
from cloudcoll.errors import UsageError

WHOLE: dict[str, Any] = {
    "workload": "a job",
    "ranks": 8,
    "parallel": "tp=2,dp=4",
    "library": "gloo",
    "groups": {"towers": [[0, 1, 2], [3, 4, 5, 6], [7]]},
    "operations": [
        {"collective": "allreduce", "groups": "dp", "bytes": "64M", "calls": 8},
        {"collective": "alltoall", "groups": "towers", "bytes": 1 << 20},
        {
            "collective": "allreduce",
            "algorithm": "segmented_ring",
            "library": "openmpi",
            "bytes": "1M",
            "parameters": {"segment": 4096},
        },
        {"collective": "barrier"},
    ],
}


def read(data: object, ranks: int | None = None, split: str | None = None) -> Workload:
    return read_workload(json.dumps(data), "job.json", ranks, split)


def changed(**changes: object) -> dict[str, Any]:
    """Return `WHOLE` with other values; None leaves a key out."""
    new = WHOLE | changes
    return {key: value for key, value in new.items() if value is not None}


def operation(**changes: object) -> dict[str, Any]:
    """Return a workload of one operation with other values."""
    base: dict[str, Any] = {"collective": "allreduce", "bytes": 8} | changes
    return changed(operations=[{k: v for k, v in base.items() if v is not None}])


def test_every_key_is_read() -> None:
    """Tests names, split, groups, defaults of the library, sizes as text."""
    job = read(WHOLE)
    reduce, exchange, forced, barrier = job.operations
    assert (job.name, job.ranks, job.parallel) == ("a job", 8, "tp=2,dp=4")
    assert (reduce.algorithm, reduce.size, reduce.calls) == ("gloo_ring", 64 << 20, 8)
    assert [list(group) for group in reduce.groups] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert [len(group) for group in exchange.groups] == [3, 4, 1]
    assert (exchange.algorithm, exchange.calls) == ("gloo_linear", 1)
    assert (forced.algorithm, forced.where) == ("segmented_ring", "world")
    assert forced.parameters == {"segment": 4096}
    assert [op.library for op in job.operations] == ["gloo", "gloo", "openmpi", "gloo"]
    assert barrier.size == 0
    used = {key for op in WHOLE["operations"] for key in op}
    assert set(WHOLE) == set(KEYS)
    assert used == set(OPERATION_KEYS)


def test_what_a_workload_says_is_a_file() -> None:
    """Tests that the description is read back with the same traffic."""
    job = read(WHOLE)
    again = read(job.describe())
    assert again.describe() == job.describe()
    assert (again.pair_bytes() == job.pair_bytes()).all()


@pytest.mark.parametrize("name", READY_MADE)
@pytest.mark.parametrize("split", [None, "tp=2,cp=2,ep=2,dp=2,pp=2"])
def test_a_ready_made_one_is_read_back(name: str, split: str | None) -> None:
    """Tests that rank maps keep ready-made workloads in full."""
    if (name, split) == ("megatron", None):
        split = "dp=16"
    job = ready_made(name, 16, split)
    again = read(job.describe(), 16)
    assert again.describe() == job.describe()
    assert (again.pair_bytes() == job.pair_bytes()).all()


def test_ranks_and_split_may_come_from_outside() -> None:
    """Tests that the same file fits jobs of any size."""
    plain = {"operations": [{"collective": "allreduce", "groups": "tp", "bytes": 8}]}
    job = read(plain, 12, "tp=4")
    assert (job.name, job.ranks, job.parallel) == ("job.json", 12, "tp=4,dp=3")
    assert read(plain, None, "tp=4,dp=2").ranks == 8


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a workload must be a JSON object"),
        (changed(operation=[]), "a workload has no key 'operation' (known: workload,"),
        (changed(operations=None), "'operations' must be a list of at least one"),
        (changed(operations=[]), "'operations' must be a list of at least one"),
        (changed(operations=[3]), "operation 1: an operation must be a JSON object"),
        (changed(workload="a\nb"), "'workload' must be a line of text"),
        (changed(ranks=4), "it is for 4 ranks, the job has 8"),
        (changed(ranks=0), "'ranks' must be a whole number, 2 or more"),
        (changed(ranks=1), "'ranks' must be a whole number, 2 or more"),
        (changed(ranks=True), "'ranks' must be a whole number, 2 or more"),
        (changed(parallel="tp=3,dp=3"), "tp=3 x dp=3 is 9 ranks, the job has 8"),
        (changed(parallel="tp=3\n"), "'parallel' must be a line of text"),
        (changed(library="x"), "no defaults of library 'x' (known: openmpi, nccl"),
        (changed(groups=[]), "'groups' must be a JSON object"),
        (changed(groups={"a": 3}), "groups 'a' must be a list of lists of ranks"),
        (changed(groups={"a": [[]]}), "groups 'a' must be a list of lists of ranks"),
        (changed(groups={"a": [[8]]}), "groups 'a': 8 is no rank of 0 to 7"),
        (changed(groups={"a": [[0.5]]}), "groups 'a': 0.5 is no rank of 0 to 7"),
        (changed(groups={"dp": [[0]]}), "groups 'dp' follow from 'parallel'"),
        (changed(groups={"a\n": [[0]]}), "must be a line of text"),
        (
            changed(groups={"towers": [[0, 1, 2, 3], [3, 4, 5, 6, 7]]}),
            "operation 2: alltoall gloo_linear: rank 3 is in two groups",
        ),
        (
            changed(groups={"towers": [[0, 1, 2, 3]]}),
            "operation 2: alltoall gloo_linear: rank 4 is in no group (4 are",
        ),
        (operation(size=1), "an operation has no key 'size' (known: collective,"),
        (operation(collective=None), "'collective' must be a line of text"),
        (operation(collective="x"), "no default 'x' of gloo (known: allreduce,"),
        (operation(collective="x", algorithm="y"), "unknown collective 'x' (known: "),
        (operation(algorithm="y"), "unknown allreduce algorithm 'y' (known: "),
        (operation(groups="x"), "no groups 'x' (known: world, tp, cp, ep, dp, pp, t"),
        (operation(bytes=0), "operation 1: 'bytes' must be a whole number, 1 or more"),
        (operation(bytes="0"), "'bytes' must be a whole number, 1 or more"),
        (operation(bytes="x"), "'x' is not a size such as 4096, 512K, 16M"),
        (operation(bytes=1 << 80), "'bytes' must be a whole number, 1 or more"),
        (operation(bytes=None), "'bytes' must be a whole number, 1 or more"),
        (operation(calls=0), "'calls' must be a whole number, 1 or more"),
        (operation(calls=1.5), "'calls' must be a whole number, 1 or more"),
        (operation(parameters={"x": 1}), "has no parameter 'x'"),
        (operation(parameters={"x": -1}), "'x' must be a whole number, 0 or more"),
    ],
)
def test_wrong_values_are_named(data: object, message: str) -> None:
    """Tests that the error is one line with the file, the value and what exists."""
    with pytest.raises(UsageError) as refused:
        read(data, 8)
    text = str(refused.value)
    assert text.startswith("job.json: ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize("ranks", [0, 1])
def test_too_few_ranks_are_refused(ranks: int) -> None:
    """Tests a job of no and of one rank."""
    with pytest.raises(UsageError, match=f"2 ranks or more, not {ranks}"):
        read({"operations": WHOLE["operations"][:1]}, ranks)


def test_a_split_given_twice_is_refused() -> None:
    """Tests that the file's split and the option's don't fight."""
    with pytest.raises(UsageError, match="leave out --parallel"):
        read(WHOLE, 8, "tp=8")


def refused_or_read(text: str) -> None:
    """Read a text that may be no workload: what is wrong is one line."""
    with contextlib.suppress(UsageError):
        assert read_workload(text, "job.json", 8).ranks == 8
        return
    with pytest.raises(UsageError, match=r"\Ajob.json: .*\Z"):  # . is no line end
        read_workload(text, "job.json", 8)


@given(st.text())
def test_no_text_is_a_crash(text: str) -> None:
    """Tests that what is no JSON is refused."""
    refused_or_read(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"ranks": ' + "9" * 5000 + "}"])
def test_json_beyond_the_parser_is_refused(text: str) -> None:
    """Tests nesting and digits that Python's own parser does not take."""
    with pytest.raises(UsageError, match="not JSON"):
        read_workload(text, "job.json", 8)


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(), json_values) | json_values)
def test_no_json_is_a_crash(data: object) -> None:
    """Tests any values under the keys of a workload."""
    refused_or_read(json.dumps(data))


@given(st.dictionaries(st.sampled_from(OPERATION_KEYS), json_values), st.data())
def test_no_operation_is_a_crash(changes: dict[str, Any], data: st.DataObject) -> None:
    """Tests a right operation with any values in place of some of its own."""
    whole = data.draw(st.sampled_from(WHOLE["operations"]))
    refused_or_read(json.dumps(changed(operations=[whole | changes])))


def test_the_example_of_the_docs_is_right() -> None:
    """Tests that what users copy is read, with every group that it names."""
    page = Path(__file__).parents[2].joinpath("docs", "jobs.md").read_text()
    start = page.index('    {"parallel"')
    job = read_workload(page[start : page.index("}]}", start) + 3], "jobs.md", 16)
    assert [op.where for op in job.operations] == ["tp", "dp", "pairs"]
    sent = job.operations[2].schedule(16).pair_bytes()
    assert sent[0, 8] == sent[8, 0] == 4 << 20
