"""What documents quote, and the record: the same, figure by figure."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from needs import HISTORY

ROOT = Path(__file__).parents[1]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT))
    from benchmarks import figures, record
    from benchmarks.simgrid import tables

NUMBER = re.compile(r"\d+(?:\.\d+)?")
PARAMETERS = {"what", "racks", "collective", "size", "schedule", "order", "script"}
"""Columns that may have digits of their own."""
Known = dict[tuple[str, str], record.Entry]


@pytest.fixture(scope="module")
def whole() -> Known:
    """A record that has all that is quoted, no two figures alike."""
    units = ["s", "x", "%", "MiB", "of 977", ""]
    known: Known = {}
    for command, names in figures.quoted_names().items():
        for name in names:
            value = 1.1 + 0.37 * len(known)
            ends = {"low": 0.9 * value, "high": 1.2 * value, "predicted": 0.8 * value}
            stamp = {"commit": "0123456789ab", "time": "2026-01-01T", "machine": "m"}
            unit, kind = units[len(known) % len(units)], ("95 %", "range of 7")
            one = {"what": name, "value": value, "unit": unit, **ends, **stamp}
            known[command, name] = one | {"interval": kind[len(known) % 2]}
    return known


def test_documents_say_what_the_record_has() -> None:
    """Tests each figure with its unit and interval, and every word beside it."""
    assert figures.differences(figures.record()) == []


def test_all_that_is_quoted_is_in_the_record() -> None:
    """Tests that no row says "not measured", as where its command is renamed."""
    assert list(figures.todo(figures.record(), commit="")) == []


def test_the_scale_study_says_what_its_rows_have() -> None:
    """Tests the page that is made of the simulated runs in study.jsonl."""
    rows = ROOT / "benchmarks" / "simgrid" / "study.jsonl"
    text = (ROOT / "docs" / "scale-study.md").read_text()
    assert text.splitlines() == tables.page(rows).splitlines()


@HISTORY.mark
def test_commits_of_the_record_are_part_of_this_history() -> None:
    """Tests that none is of a branch that is gone, or of a tree with changes."""
    assert record.unknown_commits() == []


@pytest.mark.parametrize("name", figures.PAGES)
def test_any_number_that_is_changed_is_noticed(
    name: str, whole: Known, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tests every number between a page's marks, of whatever unit, one at a time."""
    for page in figures.PAGES:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).write_text(figures.page((ROOT / page).read_text(), whole))
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    assert figures.differences(whole) == []
    text = (tmp_path / name).read_text()
    spans = [match.span(3) for match in figures.BLOCK.finditer(text)]
    numbers = [
        number for begin, end in spans for number in NUMBER.finditer(text, begin, end)
    ]
    assert len(numbers) > 100
    # What is between the marks makes no difference to what should be there.
    nothing = figures.BLOCK.sub(r"\1\4", text)
    assert figures.page(nothing, whole) == text
    for number in numbers[:: len(numbers) // 50]:
        other = f"{text[: number.end()]}7{text[number.end() :]}"
        (tmp_path / name).write_text(other)
        minus, plus = figures.differences(whole)[-2:]
        assert (minus[0], plus[0]) == ("-", "+")
        assert len(minus) == len(plus) + 1


def test_any_figure_that_is_changed_is_noticed(whole: Known) -> None:
    """Tests every value in the record that is quoted, its unit, and its interval."""
    count = 0
    for body in figures.blocks(figures.TEMPLATE.read_text()).values():
        for line, wanted in figures.places(body):
            for command, name in wanted:
                entry, rows = whole[command, name], f"`{command}`\n{line}\n"
                before = figures.rendered(rows, whole)
                for other in changes(entry, line):
                    after = figures.rendered(rows, whole | {(command, name): other})
                    assert after != before, (name, other)
                    count += 1
    assert count > 6 * len(whole) / 2


def changes(entry: record.Entry, line: str) -> list[record.Entry]:
    """Return a figure with each of its fields changed that a line shows."""
    name, changed = entry["what"], list[record.Entry]()
    if f"{{{name}@predicted}}" in line:
        changed = [entry | {"predicted": 2.3 * entry["predicted"]}]
    if f"{{{name}}}" in line or f"{{{name}@value}}" in line:
        changed.append(entry | {"value": 2.3 * entry["value"]})
        changed.append(entry | {"unit": "other"})
    if f"{{{name}}}" in line:
        changed.append(entry | {"low": 0.5 * entry["low"]})
        changed.append(entry | {"high": 2.3 * entry["high"]})
        changed.append(entry | {"interval": "quartiles of 9"})
        changed.append(entry | {"note": "the same order"})
    return changed


def test_a_figure_of_another_command_is_not_quoted(whole: Known) -> None:
    """Tests that what a command of other options printed stands in no row."""
    (command, name), entry = next(iter(whole.items()))
    row = f"| a | {{{name}}} | `{command}` |\n"
    assert figures.MISSING not in figures.rendered(row, {(command, name): entry})
    small = {(f"{command} --small", name): entry}
    assert figures.MISSING in figures.rendered(row, small)


def test_measured_cells_have_no_digits_of_their_own() -> None:
    """Tests that nobody types a figure beside those of the record."""
    for body in figures.blocks(figures.TEMPLATE.read_text()).values():
        heads: list[str] = []
        for line in body.splitlines():
            cells = [cell.strip() for cell in line[1:-1].split("|")]
            if not line.startswith("|"):
                assert not re.search(r"\d(?:\.\d+)?x\b", figures.PLACE.sub("", line))
                heads = []
            elif not heads:
                heads = cells
            else:
                for head, cell in zip(heads, cells, strict=True):
                    if head not in PARAMETERS:
                        own = figures.PLACE.sub("", cell)
                        assert not NUMBER.search(own), f"{own!r} in {line!r}"


@pytest.mark.parametrize("name", ["README.md", "docs/figures.md"])
def test_no_ratio_stands_outside_the_marks(name: str) -> None:
    """Tests the words around tables, in which a gain might be typed."""
    outside = figures.BLOCK.sub("", (ROOT / name).read_text())
    assert re.findall(r"\b\d+(?:\.\d+)?x\b", outside) == []


def test_each_command_that_is_quoted_can_be_run() -> None:
    """Tests modules, that they take --json, and that README's commands come first."""
    commands = list(figures.quoted_names())
    for command in commands:
        python, *words = shlex.split(command)
        assert python == "python"
        # A folder, where no package of ours is.
        name = words[1].replace(".", "/") if words[0] == "-m" else words[0]
        assert name.startswith("benchmarks/")
        files = [ROOT / f"{name}{end}" for end in (".py", "/__main__.py")]
        (source,) = [file for file in files if file.exists()]
        text = source.read_text()
        assert "json_option(parser)" in text or '"--json"' in text, command
    assert figures.MINUTES.keys() <= {shlex.split(one)[2] for one in commands}
    text = figures.TEMPLATE.read_text()
    for_readme = text[: text.index("<!-- figures: figures -->")]
    count = len(set(figures.COMMAND.findall(for_readme.partition("-->")[2])))
    assert set(commands[:count]) == set(
        figures.COMMAND.findall(for_readme.partition("-->")[2])
    )


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"value": 3.061, "unit": "x"}, "3.06x"),
        ({"value": 0.08, "unit": "s"}, "80 ms"),
        (
            {"value": 0.08, "low": 0.05, "high": 0.1, "unit": "s", "interval": "95 %"},
            "80 ms (50 to 100)",
        ),
        (
            {
                "value": 1.5, "low": 0.9, "high": 2.0, "unit": "s",
                "interval": "range of 3",
            },
            "1.5 s (900 ms to 2 s; range of 3)",
        ),
        ({"value": 13.6, "unit": "%"}, "14 %"),
        ({"value": 0.0206, "unit": "%"}, "0.021 %"),
        ({"value": 20.0, "unit": "of 20"}, "20 of 20"),
        ({"value": 28000.0}, "28000"),
        ({"value": 1e-9, "unit": "%"}, "0 %"),
        (
            {"value": -3.0, "low": -5.0, "high": 2.0, "unit": "ns", "interval": "95 %"},
            "-3 ns (-5 to 2)",
        ),
        ({"value": 1.0, "unit": "x", "note": "by luck"}, "1.00x, by luck"),
    ],
)  # fmt: skip
def test_how_figures_are_written(entry: record.Entry, words: str) -> None:
    """Tests units, brackets that say what they hold unless it is 95 %, and notes."""
    assert figures.quoted(entry) == words


def test_what_is_not_measured_is_said(whole: Known) -> None:
    """Tests that a row has no number where the record has none, and what is to run."""
    assert importlib.util.find_spec("benchmarks.figures")
    key = next(iter(whole))
    less = {k: v for k, v in whole.items() if k != key}
    assert list(figures.todo(whole, "")) == []
    assert list(figures.todo(less, "")) == [key[0]]
    assert list(figures.todo(whole, "fedcba987654")) == list(figures.quoted_names())
    text = f"| a | {{{key[1]}}}; {{{key[1]}@value}} | `{key[0]}` |\n"
    row = f"| a | {figures.MISSING} | `{key[0]}` |\n"
    assert figures.rendered(text, less) == row


def test_what_was_measured_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that Ctrl-C keeps what has ended, and the same goes on with the rest."""
    first, second, third = list(figures.quoted_names())[:3]
    known: Known = {}

    def take(words: list[str], _: float) -> list[record.Entry]:
        command = shlex.join(words)
        if command == second:
            raise KeyboardInterrupt
        names = dict.fromkeys(figures.quoted_names()[command])
        known.update({(command, name): {"what": name, "commit": ""} for name in names})
        return [known[command, name] for name in names]

    monkeypatch.setattr(figures, "take", take)
    assert figures.measure([first, second, third], None) == 2
    said = capsys.readouterr().out
    assert said.startswith("3 commands left, about ")
    assert f"stopped: {figures.left_words([second, third])}; the same goes on" in said
    assert next(figures.todo(known, "")) == second
