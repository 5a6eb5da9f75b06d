"""The drawings of the pages: `python docs/site/drawings.py` writes docs/drawings/.

SVG of 400 units, so that text can be read on a narrow screen, in colours for light
and dark. What is counted in them is counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "drawings"
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #222; text-anchor: middle; }
.box { fill: none; stroke: #888; }
.host { fill: #dfe6ee; stroke: #667; }
.in { stroke: #2a7ab8; fill: none; stroke-width: 2; }
.out { stroke: #c2570c; fill: none; stroke-width: 2; }
.solid-in { fill: #2a7ab8; }
.solid-out { fill: #c2570c; }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd; }
  .host { fill: #35404c; stroke: #99a; }
  .in { stroke: #6bb5ec; }
  .out { stroke: #f0914f; }
  .solid-in { fill: #2f86c6; }
  .solid-out { fill: #d0661c; }
}
"""
Point = tuple[float, float]


def text(x: float, y: float, words: object, style: str = "") -> str:
    """Return words whose middle is there."""
    extra = f' style="{style}"' if style else ""
    return f'<text x="{x:g}" y="{y:g}"{extra}>{escape(str(words))}</text>'


def line(kind: str, a: Point, b: Point) -> str:
    """Return a straight link."""
    return f'<path class="{kind}" d="M{a[0]:g} {a[1]:g}L{b[0]:g} {b[1]:g}"/>'


def bow(kind: str, a: Point, b: Point, height: float) -> str:
    """Return a curve that rises so far above its higher end."""
    middle, top = (a[0] + b[0]) / 2, min(a[1], b[1]) - 2 * height
    return (
        f'<path class="{kind}" '
        f'd="M{a[0]:g} {a[1]:g}Q{middle:g} {top:g} {b[0]:g} {b[1]:g}"/>'
    )


def box(kind: str, x: float, y: float, width: float, height: float) -> str:
    """Return a box by its upper left corner."""
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" '
        f'height="{height:g}" rx="3"/>'
    )


def drawing(title: str, height: int, parts: Sequence[str]) -> str:
    """Return a whole file; the title is what is read out."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 {height}" '
        f'role="img" aria-label="{escape(title, quote=True)}">'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


def row_of_racks(y: float, sizes: Sequence[int], names: Sequence[object]) -> list[str]:
    """Return racks side by side, with these names on their hosts."""
    parts, at = [], 0
    for number, size in enumerate(sizes):
        left = place(at, sizes) - 18
        parts.append(box("box", left, y - 22, 38 * size - 2, 52))
        middle = left + (38 * size - 2) / 2
        parts.append(text(middle, y + 45, f"rack {number + 1}", "font-size:11px"))
        for _ in range(size):
            x = place(at, sizes)
            parts.append(box("host", x - 14, y - 12, 28, 28))
            parts.append(text(x, y + 7, names[at]))
            at += 1
    return parts


def place(at: int, sizes: Sequence[int]) -> float:
    """Return the middle of a host's box, counted over all racks."""
    rack = rack_of(at, sizes)
    total = 38 * sum(sizes) + 14 * (len(sizes) - 1)
    return (400 - total) / 2 + 19 + 38 * at + 14 * rack


def rack_of(at: int, sizes: Sequence[int]) -> int:
    """Return the rack of a host, counted over all racks."""
    return next(i for i in range(len(sizes)) if at < sum(sizes[: i + 1]))


def racks_and_uplinks() -> str:
    """Draw three racks below a core switch."""
    parts = [box("host", 150, 12, 100, 30), text(200, 32, "core switch")]
    sizes = (3, 2, 3)
    for number in range(3):
        members = [at for at in range(8) if rack_of(at, sizes) == number]
        middle = sum(place(at, sizes) for at in members) / len(members)
        parts += [
            line("out", (200, 42), (middle, 90)),
            box("host", middle - 26, 90, 52, 24),
            text(middle, 106, "switch", "font-size:12px"),
        ]
        parts += [line("in", (middle, 114), (place(at, sizes), 150)) for at in members]
    parts += row_of_racks(162, sizes, range(8))
    words = (
        ("in", "each host has a card of its own"),
        ("out", "each rack has one uplink, for all its hosts"),
    )
    for number, (kind, said) in enumerate(words):
        y = 228 + 20 * number
        parts.append(line(kind, (56, y), (80, y)))
        parts.append(text(88, y + 4, said, "text-anchor:start"))
    return drawing(
        "Eight hosts in three racks. Each host's card leads to its rack's switch; each "
        "rack's switch has one uplink to the core switch, which all its hosts share.",
        260,
        parts,
    )


def ring() -> str:
    """Draw a ring in a mixed order and in racks."""
    sizes, parts = (3, 3, 3), []
    orders = (
        ("as the provider lists them", (0, 3, 6, 4, 1, 7, 8, 5, 2)),
        ("neighbours side by side", tuple(range(9))),
    )
    for number, (name, seats) in enumerate(orders):
        y = 110 + 185 * number
        rank_at = {seat: rank for rank, seat in enumerate(seats)}
        crossing = 0
        for a, b in zip(seats, (*seats[1:], seats[0]), strict=True):
            far = rack_of(a, sizes) != rack_of(b, sizes)
            crossing += far
            ends = (place(a, sizes), y - 13), (place(b, sizes), y - 13)
            parts.append(bow("out" if far else "in", *ends, 6 + 7.5 * abs(a - b)))
        parts += row_of_racks(y, sizes, [rank_at[at] for at in range(9)])
        words = f"{name}: {crossing} of 9 messages leave a rack"
        parts.append(text(200, y + 64, words))
    return drawing(
        "A ring of nine ranks in three racks. In a mixed order seven of nine messages "
        "cross uplinks; with the hosts of each rack side by side only three do.",
        375,
        parts,
    )


def bruck() -> str:
    """Draw what Bruck's allgather of eight blocks sends out of racks of two."""
    sizes, parts = (2, 2, 2, 2), []
    orders = (
        ("ranks as they come", tuple(range(8))),
        ("bits reversed", (0, 4, 2, 6, 1, 5, 3, 7)),
    )
    for number, (name, ranks) in enumerate(orders):
        y = 108 + 210 * number
        seat = {rank: at for at, rank in enumerate(ranks)}
        out = 0
        for step in (1, 2, 4):
            for rank in range(8):
                a, b = seat[rank], seat[(rank - step) % 8]
                out += step * (rack_of(a, sizes) != rack_of(b, sizes))
        for rank in range(4):
            a, b = seat[rank], seat[rank + 4]
            far = rack_of(a, sizes) != rack_of(b, sizes)
            ends = (place(a, sizes), y - 13), (place(b, sizes), y - 13)
            parts.append(bow("out" if far else "in", *ends, 8 + 8 * abs(a - b)))
        parts += row_of_racks(y, sizes, [f"{rank:03b}" for rank in ranks])
        parts += [
            text(200, y + 64, f"{name}: {out} blocks leave racks"),
        ]
    return drawing(
        "Bruck's allgather on eight ranks in racks of two. The last and largest step "
        "is between ranks four apart. In the usual order these are in different racks "
        "and 52 blocks cross uplinks; with bits reversed they share a rack, and 24 do.",
        395,
        parts,
    )


def load_and_latency() -> str:
    """Draw one flow and four on an uplink of a card's rate, and their round trips."""
    parts = []
    rows = (
        ("round trip, near host", 52, "50 us", "in"),
        ("round trip, far host", 54, "52 us", "out"),
        ("rate alone, near", 200, "all of a card", "in"),
        ("rate alone, far", 200, "all of a card", "out"),
        ("rate, all send, near", 200, "all of a card", "in"),
        ("rate, all send, far", 200 / 4, "a quarter", "out"),
    )
    y = 12
    for number, (name, width, value, kind) in enumerate(rows):
        parts.append(text(138, y + 15, name, "text-anchor:end;font-size:12px"))
        parts.append(box(f"solid-{kind}", 146, y, width, 20))
        style = "text-anchor:start;font-size:12px"
        if width > 150:
            style += ";fill:#fff"
        parts.append(text(154 + (0 if width > 150 else width), y + 15, value, style))
        y += 28 + 14 * (number % 2)
    return drawing(
        "Round trips to a near and to a far host are alike, and so are rates of one "
        "flow alone. When the four hosts of a rack all send at once, a flow to the own "
        "rack keeps its rate; flows over the shared uplink get a quarter each.",
        y,
        parts,
    )


DRAWINGS = {
    "racks.svg": racks_and_uplinks,
    "ring.svg": ring,
    "bruck.svg": bruck,
    "load.svg": load_and_latency,
}


def main() -> None:
    """Write all drawings."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / name).write_text(draw())


if __name__ == "__main__":
    main()
