"""The README's picture: a network in two orders, and what each order takes.

    python -m benchmarks.demo --json benchmarks/history.jsonl
    python -m benchmarks.picture             # of what that left in build/demo

Above, the round trips between all hosts in the order given and in CloudColl's; below,
each order's time over CloudColl's, with the interval that the record has.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from benchmarks.demo import RESULT
from benchmarks.record import ROOT
from cloudcoll.bench.result import BenchRun
from cloudcoll.measured.snapshot import load_snapshot
from cloudcoll.report.figures import bars, heat_map

PICTURE = ROOT / "docs" / "gain.svg"
STYLE = """<style>
svg { color: #222; }
@media (prefers-color-scheme: dark) { svg { color: #ddd; } }
</style>"""
"""An image has no page whose colour it could take."""
SIZE = re.compile(r'width="([\d.]+)pt" height="([\d.]+)pt"')
TITLE = "Round trips between 16 hosts in two orders, and what each order takes"


def picture(folder: Path) -> str:
    """Return the SVG of what a demo left."""
    texts = [(folder / name).read_text() for name in RESULT.values()]
    runs = [BenchRun.from_json(text, "demo") for text in texts]
    ring = runs[0]
    snapshot = load_snapshot(folder / "network.snap")
    ours = ring.orders[ring.order_of("cloudcoll")]
    given = tuple(ring.metadata["hosts"])
    maps = [
        heat_map(snapshot.latency, snapshot, order, name)
        for order, name in ((given, "given"), (ours, "CloudColl's"))
    ]
    return stacked(maps, [bars(run) for run in runs], title=TITLE)


def stacked(*rows: list[str], title: str) -> str:
    """Return rows of drawings, one below the other, as one."""
    width, top, parts = 0.0, 0.0, []
    for row in rows:
        left, below = 0.0, top
        for drawing in row:
            found = SIZE.search(drawing)
            assert found, drawing[:200]
            w, h = map(float, found.groups())
            place = f'x="{left:g}" y="{top:g}" width="{w:g}" height="{h:g}"'
            parts.append(SIZE.sub(place, drawing, 1))
            left, below = left + w, max(below, top + h)
        width, top = max(width, left), below
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {width:g} {top:g}"><title>{title}</title>{STYLE}'
    )
    return "\n".join([head, *parts, "</svg>\n"])


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build" / "demo")
    PICTURE.write_text(picture(parser.parse_args().folder))


if __name__ == "__main__":
    main()
