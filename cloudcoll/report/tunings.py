"""A tuning in words: which algorithm carries what, and what that gains.

Loads no NumPy, for ``run``.
"""

from __future__ import annotations

from cloudcoll import units
from cloudcoll.tuning import TunedRange, Tuning

TELLING = 1.02
"""A gain below this is not worth a word."""


def gain_words(tuning: Tuning) -> str:
    """Return what ``--tune`` should gain most, in a line; empty for nothing.

    Parameters
    ----------
    tuning : Tuning
    """
    best = max(tuning.ranges, key=_gain, default=None)
    if best is None or _gain(best) < TELLING:
        return ""
    verb = "took" if best.measured else "should take"
    return (
        f"--tune chooses algorithms, too: {best.collective} of "
        f"{units.size(best.size)} {verb} {units.seconds(best.predicted)}, not "
        f"{units.seconds(best.own)} ({_gain(best):.3g} times as fast)"
    )


def _gain(one: TunedRange) -> float:
    if one.is_own or not one.predicted:
        return 0.0
    return one.own / one.predicted


def tuning_lines(tuning: Tuning) -> list[str]:
    """Return a line for each range of sizes of each collective.

    Parameters
    ----------
    tuning : Tuning
    """
    local = f", {tuning.local} on each host" if tuning.local > 1 else ""
    title = f"algorithms for {tuning.library}, {tuning.ranks} ranks{local}:"
    rows = [
        (
            f"{one.collective} from {units.size(one.least)}",
            " ".join([one.algorithm or "its own choice", *_parameters(one)]),
            _seconds(one),
        )
        for one in tuning.ranges
    ]
    widths = [max((len(row[at]) for row in rows), default=0) for at in (0, 1)]
    return [
        title,
        *(f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows),
    ]


def _parameters(one: TunedRange) -> list[str]:
    return [
        f"{name} {units.size(value) if name == 'segment' else value}"
        for name, value in one.parameters.items()
    ]


def _seconds(one: TunedRange) -> str:
    """Return what is known of one range: seconds, of which size, and the gain."""
    if not one.predicted:
        return ""
    word = "measured" if one.measured else "predicted"
    text = f"{units.size(one.size)}: {units.seconds(one.predicted)} {word}"
    if one.is_own or not one.own:
        return text
    return f"{text}, {units.seconds(one.own)} by its own ({_gain(one):.2f}x)"
