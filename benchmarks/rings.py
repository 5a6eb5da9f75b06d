"""Say how good rings on a matrix of pairs are, and what they take.

Points of a square at random and a synthetic cloud (racks in pods, latency with
noise), the sum against LKH (elkai) and fast-tsp where these are installed, the
slowest pair against its bound; instances of TSPLIB against their optima with
`--tsplib`, a folder with *.tsp or *.atsp and their bestSolutions.txt. A row per
problem: medians over the seeds, the least and the most in brackets. Seconds are of
CPU, ours and the peer's; fast-tsp stops by the clock and needs a core of its own.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import Figure, json_option, median_of, write_figures
from cloudcoll.arrays import Floats
from cloudcoll.solve.ring import best_ring
from cloudcoll.solve.ring.gates import bottleneck_bound

PILOT = 256
"""Kicks that are timed to know how many fit the time asked for."""

OVER = 1.1
"""So many times the seconds asked for are taken at most: else with fewer kicks."""

FIXED = "linhp318"
"""Has an edge that every ring must take, which ours cannot know."""

MOST = 535
"""Hosts of an instance of TSPLIB, at most."""


def square(hosts: int, seed: int) -> Floats:
    points = np.random.default_rng(seed).random((hosts, 2))
    return np.linalg.norm(points[:, None] - points[None, :], axis=2)


def cloud(hosts: int, seed: int, directed: bool = False) -> Floats:
    """Return round trips: 40, 100 or 220 us by rack and pod, a tenth of noise."""
    generator = np.random.default_rng(seed)
    place = generator.permutation(hosts)
    rack, pod = place // 20, place // 160
    level = 2 - (pod[:, None] == pod) - (rack[:, None] == rack).astype(int)
    own = generator.exponential(4e-6, hosts)
    noise = generator.lognormal(0.0, 0.1, (hosts, hosts))
    if not directed:
        noise = np.triu(noise, 1) + np.triu(noise, 1).T
    times = np.choose(level, [40e-6, 100e-6, 220e-6]) * noise + own + own[:, None]
    np.fill_diagonal(times, 0.0)
    return np.asarray(times)


def total(times: Floats, ring: npt.ArrayLike) -> float:
    return float(times[ring, np.roll(ring, -1)].sum())


def searched(
    times: Floats, seconds: float, seed: int, objective: str = "sum"
) -> tuple[npt.NDArray[np.int64], float]:
    """Return the ring that so many CPU seconds give, and those it took."""
    marks = [time.process_time()]
    for steps in (1, PILOT + 1):
        best_ring(times, steps=steps)
        marks.append(time.process_time())
    once, more = marks[1] - marks[0], marks[2] - marks[1]
    each = max(more - once, 1e-4 * once) / PILOT
    steps = max(int((seconds - once) / each), 1)
    while True:
        begin = time.process_time()
        ring = best_ring(times, steps=steps, seed=seed, objective=objective)
        took = time.process_time() - begin
        if took <= OVER * seconds or steps == 1:
            return ring, took
        steps = max(int(steps * seconds / took), 1)


def lkh(times: Floats) -> Callable[[], list[int]]:
    """Return a call of LKH, one run, as elkai has it: whole numbers."""
    elkai: Any = importlib.import_module("elkai")
    whole = np.rint(times * (1e7 / times.max())).astype(int).tolist()
    return lambda: elkai.DistanceMatrix(whole).solve_tsp(runs=1)[:-1]


def fast_tsp(times: Floats, seconds: float) -> Callable[[], list[int]]:
    """Return a call of fast-tsp, which has 16 bits and no directions."""
    module: Any = importlib.import_module("fast_tsp")
    whole = np.rint(times * (65535 / times.max())).astype(np.uint16)
    return lambda: module.find_tour(whole, duration_seconds=seconds)


def spread(values: list[float], scale: float = 1.0, form: str = ".2f") -> str:
    low, middle, high = (
        format(scale * value, form)
        for value in (min(values), statistics.median(values), max(values))
    )
    return f"{middle} ({low} to {high})"


def against(
    name: str, make: Callable[[int], Floats], seconds: float, seeds: int, peer: str
) -> None:
    """Print how much longer our rings are than a peer's, on the same matrices."""
    gaps, ours, theirs = [], [], []
    for seed in range(seeds):
        times = make(seed)
        allowed = 60.0 if peer == "fast60" else seconds
        call = lkh(times) if peer == "lkh" else fast_tsp(times, allowed)
        begin = time.process_time()
        ring = call()
        theirs.append(time.process_time() - begin)
        found, took = searched(times, seconds, seed)
        ours.append(took)
        gaps.append(total(times, found) / total(times, ring) - 1)
    print(
        f"{name:>24} {peer:>7} {spread(gaps, 100):>24} % "
        f"{statistics.median(ours):8.2f} s {statistics.median(theirs):8.2f} s",
        flush=True,
    )


def bottleneck(
    name: str, make: Callable[[int], Floats], seeds: int
) -> Iterator[Figure]:
    gaps, took, bounds = [], [], []
    for seed in range(seeds):
        times = make(seed)
        begin = time.process_time()
        bound = bottleneck_bound(times)
        bounds.append(time.process_time() - begin)
        ring, seconds = searched(times, 5.0 - bounds[-1], seed, "bottleneck")
        took.append(seconds)
        gaps.append(times[ring, np.roll(ring, -1)].max() / bound - 1)
    print(
        f"{name:>24} {'bound':>7} {spread(gaps, 100):>24} % "
        f"{statistics.median(took):8.2f} s {statistics.median(bounds):8.2f} s",
        flush=True,
    )
    above = [100 * gap for gap in gaps]
    yield median_of(f"{name}: slowest pair above the bound", above, "%")


def instances(folder: Path) -> Iterator[tuple[str, Floats, float]]:
    """Yield the instances of a folder that have a matrix or points in a plane."""
    lines = (folder / "bestSolutions.txt").read_text().splitlines()
    best = {
        name.strip(): float(value.split()[0])
        for name, _, value in (line.partition(":") for line in lines)
        if value.strip()
    }
    for path in sorted(folder.glob("*tsp")):
        optimum = best.get(path.stem, best.get(path.stem.rstrip("p")))
        times = read(path)
        if times is not None and optimum is not None and path.stem != FIXED:
            yield path.stem, times, optimum


def read(path: Path) -> Floats | None:
    """Return a matrix as TSPLIB 95 defines it; None: too large, or of no such kind."""
    words: dict[str, str] = {}
    rows = iter(path.read_text().splitlines())
    numbers: list[float] = []
    for row in rows:
        key, _, value = row.partition(":")
        words[key.strip()] = value.strip()
        if key.strip() in {"NODE_COORD_SECTION", "EDGE_WEIGHT_SECTION"}:
            break
    if int(words["DIMENSION"]) > MOST:
        return None
    for row in rows:
        if row.strip()[:1].isalpha():
            break
        numbers += map(float, row.split())
    form = words.get("EDGE_WEIGHT_FORMAT", "FUNCTION")
    if words["EDGE_WEIGHT_TYPE"] == "EXPLICIT":
        return explicit(form, int(words["DIMENSION"]), numbers)
    return placed(words["EDGE_WEIGHT_TYPE"], np.array(numbers).reshape(-1, 3)[:, 1:])


def explicit(form: str, hosts: int, numbers: list[float]) -> Floats:
    if form == "FULL_MATRIX":
        return np.array(numbers).reshape(hosts, hosts)
    cells = {
        "UPPER_ROW": np.triu_indices(hosts, 1),
        "UPPER_DIAG_ROW": np.triu_indices(hosts),
        "LOWER_DIAG_ROW": np.tril_indices(hosts),
    }[form]
    times = np.zeros((hosts, hosts))
    times[cells] = numbers
    return np.maximum(times, times.T)


def placed(kind: str, points: Floats) -> Floats | None:
    x, y = points[:, None].transpose(2, 0, 1) - points[None, :].transpose(2, 0, 1)
    if kind == "EUC_2D":
        return np.asarray(np.floor(np.hypot(x, y) + 0.5))
    if kind == "CEIL_2D":
        return np.asarray(np.ceil(np.hypot(x, y)))
    if kind == "ATT":
        return np.asarray(np.ceil(np.sqrt((x * x + y * y) / 10)))
    return geographical(points) if kind == "GEO" else None


def geographical(points: Floats) -> Floats:
    degrees = np.trunc(points)
    angle = 3.141592 * (degrees + 5 * (points - degrees) / 3) / 180
    latitude, longitude = angle.T
    across = np.cos(longitude[:, None] - longitude)
    along = np.cos(latitude[:, None] - latitude)
    other = np.cos(latitude[:, None] + latitude)
    cosine = 0.5 * ((1 + across) * along - (1 - across) * other)
    return np.asarray(np.trunc(6378.388 * np.arccos(np.clip(cosine, -1, 1)) + 1))


def tsplib(folder: Path, seconds: float, seeds: int) -> None:
    """Print how far from the optima of a folder's instances our rings are."""
    every = []
    for name, times, optimum in instances(folder):
        np.fill_diagonal(times, 0.0)
        gaps, took = [], []
        for seed in range(seeds):
            ring, spent = searched(times, seconds, seed)
            gaps.append(total(times, ring) / optimum - 1)
            took.append(spent)
        print(
            f"{name:>24} {'optimum':>7} {spread(gaps, 100):>24} % "
            f"{statistics.median(took):8.2f} s",
            flush=True,
        )
        every += gaps
    print(f"{len(every):>18} rings {'optimum':>7} {spread(every, 100):>24} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peer", default="lkh", help="lkh, fast, fast60 or none")
    parser.add_argument(
        "--field", help="one of square, cloud, directed; all by default"
    )
    parser.add_argument("--tsplib", type=Path, help="a folder, instead of the others")
    json_option(parser)
    options = parser.parse_args()
    if options.tsplib:
        tsplib(options.tsplib, options.seconds, options.seeds)
        return
    fields = {
        "square": lambda seed: square(options.hosts, seed),
        "cloud": lambda seed: cloud(options.hosts, seed),
        "directed": lambda seed: cloud(options.hosts, seed, directed=True),
    }
    for name, make in fields.items():
        if options.field not in (None, name):
            continue
        if options.peer == "none":
            figures = bottleneck(name, make, options.seeds)
            write_figures(figures, options.json)
        elif options.peer == "lkh" or name != "directed":
            against(name, make, options.seconds, options.seeds, options.peer)


if __name__ == "__main__":
    main()
