"""What an examination of this machine found, as text."""

from __future__ import annotations

from collections.abc import Iterator

from cloudcoll.doctor import Examination


def doctor_lines(seen: Examination) -> Iterator[str]:
    """Yield what is here, then what is missing and how to get it."""
    yield "launchers, and how each is given an order"
    for one in seen.launchers:
        if one.program:
            yield f"  {' '.join(filter(None, (one.title, one.version)))}: {one.program}"
            yield f"      {one.mechanism}"
    if not any(one.program for one in seen.launchers):
        yield "  none"
    for program, why in seen.strangers.items():
        yield f"  {program} is none that is known: {why}"
    yield f"also here: Python {seen.python}"
    findings = (*seen.packages, *seen.programs, *seen.shims, *seen.permissions)
    for finding in findings:
        if finding.here:
            yield f"  {finding.name} ({finding.use}): {finding.here}"
    gone = [
        *((one.title, one.source) for one in seen.launchers if not one.program),
        *((f"{one.name} ({one.use})", one.remedy) for one in findings if not one.here),
    ]
    if gone:
        yield "not here, and how to get it"
    for name, remedy in gone:
        yield f"  {name}: {remedy}"
