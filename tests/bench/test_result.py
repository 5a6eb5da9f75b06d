from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import pytest

from cloudcoll.bench.result import MOST, BenchRun
from cloudcoll.errors import UnusableError
from cloudcoll.files.limits import RANKS, STORED_HOSTS

MIB = 1 << 20


def make_run(**times: list[float]) -> BenchRun:
    """Return a run of 4 ranks at 1 MiB with the microseconds given per order."""
    rows = tuple(
        {
            "op": "allreduce",
            "bytes": MIB,
            "order": order.replace("_", "-"),
            "repeat": repeat,
            "time_us": time,
            "wrong": 0,
        }
        for order, series in times.items()
        for repeat, time in enumerate(series)
    )
    orders = {str(row["order"]): ("a", "b", "c", "d") for row in rows}
    return BenchRun(
        metadata={
            "ranks": 4,
            "algorithm": "ring",
            "library": "Open MPI v5.0.11",
            "hosts": ["a", "b", "c", "d"],
        },
        orders=orders,
        same_as={"sorted": "given"},
        rows=rows,
        predicted={str(MIB): {"given": 3e-3, "cloudcoll": 1e-3}},
    )


def test_ratios_pair_the_repeats() -> None:
    """Tests that a ratio is the median of the repeats' own ratios."""
    run = make_run(given=[30.0, 80.0, 10.0], cloudcoll=[10.0, 20.0, 10.0])
    given = next(ratio for ratio in run.ratios() if ratio.baseline == "given")
    assert given.ratio == 3.0
    assert given.low <= 3.0 <= given.high
    assert given.predicted == pytest.approx(3.0)


def test_an_alias_gets_a_ratio_of_its_own() -> None:
    """Tests that a merged order still stands in the table of ratios."""
    run = make_run(given=[30.0], cloudcoll=[10.0])
    assert {ratio.baseline for ratio in run.ratios()} == {"given", "sorted"}


def test_an_order_has_the_names_of_those_that_equal_it() -> None:
    """Tests how tables call two measured orders, of which one has an alias."""
    run = make_run(given=[30.0], cloudcoll=[10.0])
    assert run.all_names("given") == "given = sorted"
    assert run.all_names("cloudcoll") == "cloudcoll"


def test_random_is_the_median_of_the_random_orders() -> None:
    """Tests that several random orders make one baseline."""
    run = make_run(
        random_1=[20.0, 20.0],
        random_2=[50.0, 50.0],
        random_3=[30.0, 30.0],
        given=[10.0, 10.0],
        cloudcoll=[10.0, 10.0],
    )
    random = next(ratio for ratio in run.ratios() if ratio.baseline == "random")
    assert random.ratio == 3.0
    assert math.isnan(random.predicted)


def test_cloudcoll_may_equal_another_order() -> None:
    """Tests that ratios are against the order that stands for cloudcoll's."""
    run = make_run(given=[10.0], random_1=[20.0])
    run = BenchRun(run.metadata, run.orders, {"cloudcoll": "given"}, run.rows)
    ratios = {ratio.baseline: ratio.ratio for ratio in run.ratios()}
    assert ratios == {"given": 1.0, "random": 2.0}


def test_bandwidths_follow_nccl_tests() -> None:
    """Tests algbw = S / t and busbw = algbw 2 (n - 1) / n, in GB/s."""
    run = make_run(given=[1000.0])
    (row,) = run.results()
    assert row["algbw"] == pytest.approx(MIB / 1e-3 / 1e9)
    assert row["busbw"] == pytest.approx(row["algbw"] * 2 * 3 / 4)


def test_medians_have_the_bandwidths_of_their_time() -> None:
    """Tests that what stands for an order is its median, in the rows' own units."""
    run = make_run(given=[4000.0, 1000.0, 1010.0])
    (median,) = run.medians()
    assert (median.size, median.order, median.time_us) == (MIB, "given", 1010.0)
    assert median.algbw == pytest.approx(MIB / 1010e-6 / 1e9)
    assert median.busbw == pytest.approx(median.algbw * 2 * 3 / 4)


def test_json_round_trip() -> None:
    """Tests that a stored run reads back, and that JSON has no NaN."""
    run = make_run(given=[30.0, 31.0], cloudcoll=[10.0, 11.0], random_1=[5.0, 6.0])
    text = run.to_json()
    json.loads(text, parse_constant=pytest.fail)
    again = BenchRun.from_json(text)
    assert again.results() == run.results()
    assert again.metadata == run.metadata


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 9}', '{"schema": 1}', "[" * 100_000]
)
def test_other_json_is_refused(text: str) -> None:
    """Tests that what is not a bench result is named, not half read."""
    with pytest.raises(UnusableError, match=r"result\.json"):
        BenchRun.from_json(text, "result.json")


def test_a_truncated_file_is_refused() -> None:
    """Tests every truncation of a result: refused, or whole up to white space."""
    text = make_run(given=[30.0], cloudcoll=[10.0]).to_json()
    for length in range(len(text.rstrip())):
        with pytest.raises(UnusableError):
            BenchRun.from_json(text[:length])


def test_a_series_cut_short_is_paired_by_repeat() -> None:
    """Tests that only repeats that both orders have make a ratio."""
    run = make_run(given=[30.0, 80.0, 90.0], cloudcoll=[10.0, 20.0])
    given = next(ratio for ratio in run.ratios() if ratio.baseline == "given")
    assert given.ratio == 3.5


def test_an_order_never_reached_has_no_ratio() -> None:
    """Tests that what a dead job left out is left out, and the rest kept."""
    run = make_run(given=[30.0], cloudcoll=[10.0])
    orders = {**run.orders, "grouped": ("d", "c", "b", "a")}
    run = dataclasses.replace(run, orders=orders)
    assert {ratio.baseline for ratio in run.ratios()} == {"given", "sorted"}


def test_the_name_of_a_file_tells_its_form(tmp_path: Path) -> None:
    """Tests that CSV is written where the name says so, and JSON else."""
    run = make_run(given=[30.0, 31.5])
    for name, text in (
        ("run.json", run.to_json()),
        ("run.csv", run.to_csv()),
        ("RUN.CSV", run.to_csv()),
        ("csv", run.to_json()),
    ):
        run.save(tmp_path / name)
        assert (tmp_path / name).read_text() == text


def test_csv_has_one_header_and_no_spaces() -> None:
    """Tests the columns, and that figures read back exactly."""
    run = make_run(given=[30.0, 31.5])
    first, *rows = csv.DictReader(io.StringIO(run.to_csv()))
    assert (first["op"], first["count"]) == ("allreduce", str(MIB // 4))
    assert [float(row["time_us"]) for row in (first, *rows)] == [30.0, 31.5]
    assert " " not in run.to_csv()


def test_a_result_of_an_earlier_version_reads() -> None:
    """Tests that a file without a collective is of allreduce, and complete."""
    run = make_run(given=[30.0])
    assert (run.op, run.failure, run.wrong) == ("allreduce", "", 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("results", []),
        ("collective", "scan"),
        ("orders", {}),
        ("library", None),
        ("ranks", None),
        ("left_out", ["grouped"]),
        ("spared", {"orders": [], "sizes": [], "seconds": 1.0}),
    ],
)
def test_json_without_what_it_needs_is_refused(key: str, value: object) -> None:
    """Tests files of the right schema that someone else wrote, or edited."""
    data = json.loads(make_run(given=[30.0]).to_json())
    data[key] = value
    if value is None:
        del data[key]
    with pytest.raises(UnusableError, match="run the bench again"):
        BenchRun.from_json(json.dumps(data))


@pytest.mark.parametrize(
    "change",
    [{"time_us": 0.0}, {"bytes": "1M"}, {"bytes": 0}, {"wrong": -1}, {"order": "x"}],
)
def test_a_senseless_measurement_is_refused(change: dict[str, object]) -> None:
    """Tests that no ratio is made of figures that no bench writes."""
    data = json.loads(make_run(given=[30.0]).to_json())
    data["results"][0] |= change
    with pytest.raises(UnusableError, match="run the bench again"):
        BenchRun.from_json(json.dumps(data))


def test_the_size_to_tell_of_was_measured_often_enough() -> None:
    """Tests three repeats of each order, and the largest size where none has them."""
    run = make_run(given=[30.0] * 3, cloudcoll=[10.0] * 3)
    larger = [{**row, "bytes": 4 * MIB} for row in run.rows]
    both = dataclasses.replace(run, rows=(*run.rows, *larger))
    assert (both.sizes, both.told_size) == ([MIB, 4 * MIB], 4 * MIB)
    cut = dataclasses.replace(run, rows=(*run.rows, *larger[:-1]))
    assert cut.told_size == MIB
    largest = [{**row, "bytes": 8 * MIB} for row in run.rows]
    rows = (*run.rows[:-1], *larger[:-1], *largest[:-1])
    assert dataclasses.replace(run, rows=rows).told_size == 8 * MIB


def test_wrong_elements_are_counted() -> None:
    """Tests the sum over all measurements."""
    run = make_run(given=[30.0, 31.0], cloudcoll=[10.0])
    rows = [
        {**row, "wrong": count} for row, count in zip(run.rows, (2, 0, 5), strict=True)
    ]
    assert dataclasses.replace(run, rows=tuple(rows)).wrong == 7


def test_few_repeats_have_no_interval() -> None:
    """Tests that two measurements give a ratio, but no bounds, and strict JSON."""
    run = make_run(given=[30.0, 30.0], cloudcoll=[10.0, 10.0])
    ratio = run.ratios()[0]
    assert ratio.ratio == 3.0
    assert math.isnan(ratio.low)
    assert math.isnan(ratio.high)
    assert json.loads(run.to_json())["ratios"][0]["low"] is None


SPARED = {"orders": ["given"], "sizes": [1], "seconds": 1.0, "needed": None}


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"ranks": 1}, {"ranks": 0}),
        ({"ranks": RANKS}, {"ranks": RANKS + 1}),
        ({"start_time": 99_999_999_999}, {"start_time": 1e11}),
        ({"end_time": 0}, {"end_time": -1}),
        ({"same_as": {"sorted": "given"}}, {"same_as": {"sorted": "grouped"}}),
        ({"spared": SPARED}, {"spared": {**SPARED, "sizes": [0]}}),
        (
            {"spared": {**SPARED, "sizes": [MOST]}},
            {"spared": {**SPARED, "sizes": [-5]}},
        ),
        (
            {"spared": {**SPARED, "seconds": MOST}},
            {"spared": {**SPARED, "seconds": -1}},
        ),
        ({"hosts": ["a"]}, {"hosts": ["a b"]}),
        ({"orders": {"given": ["b"]}}, {"orders": {"given": ["-b"]}}),
        ({"hosts": ["a"] * STORED_HOSTS}, {"hosts": ["a"] * (STORED_HOSTS + 1)}),
    ],
)
def test_a_result_is_taken_up_to_its_bounds(
    change: dict[str, object], refused: dict[str, object]
) -> None:
    """Tests the last value that a bench may write, and the first that none does."""
    data = json.loads(make_run(given=[30.0]).to_json())
    BenchRun.from_json(json.dumps(data | change))
    with pytest.raises(UnusableError, match="run the bench again"):
        BenchRun.from_json(json.dumps(data | refused))


def test_a_measurement_is_taken_up_to_its_bounds() -> None:
    """Tests the largest numbers of a row, and the next ones."""
    data = json.loads(make_run(given=[30.0]).to_json())
    (row,) = data["results"]
    for key, least in {"bytes": 1, "time_us": 5e-324, "repeat": 0, "wrong": 0}.items():
        BenchRun.from_json(json.dumps({**data, "results": [{**row, key: least}]}))
        BenchRun.from_json(json.dumps({**data, "results": [{**row, key: MOST}]}))
        with pytest.raises(UnusableError, match="makes no sense"):
            BenchRun.from_json(
                json.dumps({**data, "results": [{**row, key: 2 * MOST}]})
            )


def test_what_is_wrong_is_said_in_500_letters() -> None:
    """Tests that a file can't fill a terminal with its own words."""
    data = json.loads(make_run(given=[30.0]).to_json())
    data["predicted"] = {"9" * 400: {"x" * 400: "soon"}}
    with pytest.raises(UnusableError) as caught:
        BenchRun.from_json(json.dumps(data), "result")
    why = str(caught.value).removeprefix("result: ").partition(" (not what")[0]
    assert len(why) <= 500


def test_json_is_for_people_too() -> None:
    """Tests that what a file says stands in lines of its own, one deep."""
    lines = make_run(given=[30.0]).to_json().splitlines()
    assert lines[:2] == ["{", ' "schema": 1,']
