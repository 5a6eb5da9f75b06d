"""Hostile bytes against all that reads what others write: right or refused.

    python tests/soak/fuzz_parsers.py                        # our own mutator
    python tests/soak/fuzz_parsers.py --engine atheris --only frames

Inputs of the own mutator are right ones with bytes flipped, cut or doubled, with
JSON values of another kind, or junk; atheris (PyPI) looks for inputs that reach
new lines of the code; hypothesis makes bytes and JSON. Of each reader, ten million
bytes are changed, and at least as many inputs made as its entry says. Prints how
many were taken and refused, the bytes that were changed, the slowest input, and the
memory that grew; ends in 1 if anything but a refusal came of one, one took more than
10 s, or memory grew by 32 MB: by more where a list may name 100 000 hosts, and without
a limit where the engine keeps inputs (all but our own).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

from fuzz_frames import value
from readers import RAM, TARGETS, Target

from cloudcoll.errors import CloudcollError

ENGINES = ("own", "atheris", "hypothesis")
BYTES = 10_000_000
"""Changed in the inputs of a reader, if not told otherwise."""
SECONDS = 10
"""For one input, which no reader takes a tenth of."""


def hostile(rng: random.Random, seed: bytes) -> tuple[bytes, int]:
    """Return a seed with something wrong, and how many bytes were changed.

    Those that are in the place of others, that came, or that went.
    """
    kind = rng.randrange(5)
    if kind == 0:
        junk = rng.randbytes(rng.randrange(400))
        return junk, len(junk)
    data = bytearray(seed)
    at = rng.randrange(len(data))
    if kind == 1:
        flips = rng.randrange(1, 9)
        for _ in range(flips):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data), flips
    if kind == 2:
        data[at:at] = data[at : at + rng.randrange(64)] * rng.randrange(1, 40)
    elif kind == 3:
        del data[at:]
    else:
        try:
            data = bytearray(json.dumps(_spoilt(rng, json.loads(seed))).encode())
        except ValueError:
            new = str(value(rng)).encode(errors="replace")
            data[at : at + rng.randrange(8)] = new
            return bytes(data), len(new)
    return bytes(data), abs(len(data) - len(seed))


def _spoilt(rng: random.Random, item: Any) -> Any:
    """Return JSON of which one value, or the name of one, is another."""
    if not isinstance(item, (dict, list)) or not item or rng.randrange(8) == 0:
        return value(rng)
    if isinstance(item, list):
        at = rng.randrange(len(item))
        return [*item[:at], _spoilt(rng, item[at]), *item[at + 1 :]]
    name = rng.choice(sorted(item))
    spoilt = {**item, name: _spoilt(rng, item[name])}
    if rng.randrange(8) == 0:
        spoilt[name[:-1]] = spoilt.pop(name)
    return spoilt


def taken(target: Target, data: bytes) -> bool:
    """Return whether an input was taken; anything but a refusal is raised."""
    try:
        return bool(target.take(data))
    except CloudcollError as error:
        if "\n" in str(error):
            raise AssertionError("a refusal of several lines") from error
        return False


def show_own(name: str, count: int | None, seed: int) -> bool:
    """Print what became of our own mutator's inputs; return whether all went well."""
    target, rng = TARGETS[name](), random.Random(seed)
    least, most = (target.count, BYTES) if count is None else (count, 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = took = changed = 0
    slowest = 0.0
    signal.signal(signal.SIGALRM, _hangs)
    while made < least or changed < most:
        data, bytes_ = hostile(rng, rng.choice(target.seeds))
        made, changed = made + 1, changed + bytes_
        signal.alarm(SECONDS)
        begin = time.process_time()
        try:
            took += taken(target, data)
        except BaseException:
            print(f"{name}: {data[:500]!r}")
            raise
        slowest = max(slowest, time.process_time() - begin)
    signal.alarm(0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{name:>11} {took:9} {made - took:9} {changed:10} {slowest:7.3f} {grown:8.1f}",
        flush=True,
    )
    return grown < target.most_mb


def _hangs(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"an input takes more than {SECONDS} s")


def with_hypothesis(name: str, count: int | None, seed: int) -> None:
    """Hand a target to hypothesis."""
    import hypothesis
    from hypothesis import strategies as st

    target, took = TARGETS[name](), 0
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    values = st.recursive(
        leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
    right = st.sampled_from(target.seeds)
    joined = st.tuples(right, st.binary(max_size=40), st.integers(0, 400)).map(
        lambda made: made[0][: made[2]] + made[1] + made[0][made[2] :]
    )
    made = st.binary(max_size=400) | joined | values.map(json.dumps).map(str.encode)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count or target.count,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(made)
    def run(data: bytes) -> None:
        nonlocal took
        took += taken(target, data)

    run()
    print(f"{name:>9} {took:9} taken of {count or target.count}", flush=True)


def with_atheris(name: str, count: int | None, seed: int) -> None:
    """Hand a target to atheris, which ends this process itself."""
    import atheris

    target = TARGETS[name]()
    folder = tempfile.mkdtemp(dir=RAM)
    for number, right in enumerate(target.seeds):
        Path(folder, str(number)).write_bytes(right)
    atheris.instrument_all()
    runs = count or target.count
    options = [f"-runs={runs}", f"-seed={seed + 1}", "-max_len=4096", "-verbosity=0"]
    atheris.Setup(
        [name, *options, "-print_final_stats=1", folder],
        lambda data: taken(target, data) and None,
    )
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="own")
    parser.add_argument("--only", type=str.split, help="readers, in one word")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    names = options.only or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no {', '.join(unknown)}: there are {', '.join(TARGETS)}")
    if options.engine == "own":
        print("     reader      took   refused    changed  s, most  MB more")
        well = [show_own(name, options.count, options.seed) for name in names]
        return int(not all(well))
    if len(names) == 1:
        engine = with_atheris if options.engine == "atheris" else with_hypothesis
        engine(names[0], options.count, options.seed)
        return 0
    argv = [sys.executable, *sys.argv]
    codes = [subprocess.call([*argv, "--only", name], env=os.environ) for name in names]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
