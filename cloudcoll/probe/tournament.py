"""Who meets whom: the circle method, over hosts in an order of the seed's.

``probes/agent.py`` computes the same; a test holds the two together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator


def labels(hosts: int, seed: int) -> list[int]:
    """Return the host of each player; random() may differ between Pythons."""
    return sorted(
        range(hosts), key=lambda host: hashlib.sha256(b"%d %d" % (seed, host)).digest()
    )


def tournament_round(players: int, round_: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of one round of the circle method, `players` being even.

    The last player meets `middle`; the others meet across it. Over
    ``players - 1`` rounds every two players meet once.
    """
    last = players - 1
    middle = round_ * (players // 2) % last
    yield (last, middle) if round_ % 2 == 0 else (middle, last)
    for ahead in range(1, players // 2):
        yield (middle + ahead) % last, (middle - ahead) % last
