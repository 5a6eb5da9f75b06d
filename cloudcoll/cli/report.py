"""``cloudcoll report``: what a bench found, for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudcoll.cli.output import TERMINAL, print_text, say
from cloudcoll.cli.params import FILE
from cloudcoll.errors import CloudcollError, UnusableError, UsageError
from cloudcoll.work import PATIENCE_S

if TYPE_CHECKING:
    from cloudcoll.bench.result import BenchRun
    from cloudcoll.measured.snapshot import NetworkSnapshot

FORMATS = (".html", ".md", ".txt")


@click.command("report")
@click.argument("results", nargs=-1, required=True, type=FILE)
@click.option("--snapshot", type=FILE, help="Snapshot to draw, if not the bench's own.")
@click.option(
    "-o",
    "--output",
    type=FILE,
    help="File to write (.html, .md or .txt).  [default: text to stdout]",
)
def command(
    results: tuple[Path, ...], snapshot: Path | None, output: Path | None
) -> int:
    r"""Write what benches found as one page: the gain, and whether to trust it.

    RESULTS are files that 'bench -o' wrote; those of the same hosts go into one
    report. A result that is damaged or of other hosts than the first is left
    out, and the exit code is 1. The network is drawn from the snapshot that the
    bench used.

    \b
    cloudcoll report result.json -o report.html
    cloudcoll report ring.json allgather.json -o report.md
    """
    from cloudcoll.report.story import tell

    suffix = output.suffix.lower() if output else ".txt"
    if suffix not in FORMATS:
        raise UsageError(f"{output}: a report ends in {', '.join(FORMATS)}")
    runs = _load_all(results)
    document = tell(runs, _snapshot(runs[0], snapshot))
    if suffix == ".html":
        from cloudcoll.report.document import to_html

        with TERMINAL.progress("drawing", patience=PATIENCE_S) as drawing:
            text = to_html(document, drawing)
    else:
        text = document.to_markdown() if suffix == ".md" else document.to_text()
    if output is None:
        print_text(text)
    else:
        from cloudcoll.files import write_atomic

        write_atomic(output, text)
    return int(len(runs) < len(results))


def _load_all(paths: Sequence[Path]) -> list[BenchRun]:
    """Return the benches that fit into one report, and say which do not."""
    from cloudcoll.report.story import difference

    runs: list[BenchRun] = []
    for number, path in enumerate(paths, 1):
        try:
            run = _load(path)
        except UnusableError as error:
            if number == len(paths) and not runs:
                raise
            say(f"left out: {error}")
            continue
        if runs and (odd := difference(runs[0], run)):
            say(f"left out: {path} and the first result {odd}; report it by itself")
        else:
            runs.append(run)
    return runs


def _load(path: Path) -> BenchRun:
    from cloudcoll.bench.result import BenchRun
    from cloudcoll.files import bounded
    from cloudcoll.files.limits import TEXT_BYTES

    try:
        text = bounded(path, TEXT_BYTES).decode()
    except FileNotFoundError:
        raise UsageError(
            f"no result at {path}: make one with 'cloudcoll bench -o {path} ...'"
        ) from None
    except (OSError, ValueError) as error:
        raise UnusableError(f"cannot read {path}: {error}") from error
    return BenchRun.from_json(text, str(path))


def _snapshot(run: BenchRun, path: Path | None) -> NetworkSnapshot | None:
    """Return the snapshot that a bench was solved from, None if it is gone."""
    from cloudcoll.measured.snapshot import load_snapshot

    wanted = run.metadata.get("snapshot")
    if path:
        snapshot = load_snapshot(path)
        if snapshot.digest != wanted:
            raise UsageError(
                f"{path} is snapshot {snapshot.digest[:12]}, the bench used "
                f"{str(wanted)[:12]}: name that one, or bench again with --snapshot"
            )
        return snapshot
    named = Path(str(run.metadata.get("snapshot_file", "")))
    try:
        # What a result names may be anything; a pipe would be waited for.
        if not named.is_file():
            raise UsageError(f"no snapshot at {named}")
        snapshot = load_snapshot(named)
    except CloudcollError as error:
        say(f"the network is left out: {error}")
        return None
    if snapshot.digest != wanted:
        say("the network is left out: it was probed again since; give --snapshot")
        return None
    return snapshot
