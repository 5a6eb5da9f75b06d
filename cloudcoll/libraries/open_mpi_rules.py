"""Open MPI's table of thresholds: ``coll_tuned_decision_fixed.c``.

The same text in all of 4.1 and 5.0; for operations that commute.
"""

from __future__ import annotations

from cloudcoll.errors import UsageError

ALGORITHMS = {
    "allgather": "linear bruck recursive_doubling ring neighbor two_proc sparbit",
    "allreduce": "basic_linear nonoverlapping recursive_doubling ring segmented_ring "
    "rabenseifner",
    "alltoall": "linear pairwise modified_bruck linear_sync two_proc",
    "barrier": "linear double_ring recursive_doubling bruck two_proc tree",
    "bcast": "linear chain pipeline split_binary_tree binary_tree binomial knomial "
    "scatter_allgather scatter_allgather_ring",
    "reduce": "linear chain pipeline binary binomial in_order_binary rabenseifner",
    "reduce_scatter": "nonoverlapping recursive_halving ring butterfly",
}
"""Collective -> its algorithms 1, 2, ... by the names of `SCHEDULES`."""

RULES = {
    "allreduce": """
        4: 4<8 3<4K 4<8K 3<16K 4<64K 5<256K 6
        8: 4<16 3<8K 6
        16: 3<8K 6
        32: 5<64 3<4K 6
        64: 5<128 6
        128: 3<256K 6
        256: 2<128K 3<256K 6
        512: 2<4K 6
        2048: 2<2K 3<16K 6
        4096: 2<2K 5<4K 3<16K 6
        else: 2<2K 5<16K 3<32K 6
    """,
    "alltoall": """
        3: 2<2 5<4 2<16 5<64 2<256 5<4K 2<32K 4<256K 5<1M 2
        8: 4<8K 1<16K 4<64K 1<512K 2<1M 1
        16: 4<256K 1
        32: 4<4 3<512 4<8K 1<32K 4<256K 1<512K 4
        64: 3<512 1<512K 4
        128: 3<1K 1<2K 4<4K 1<256K 2
        256: 3<1K 4<2K 1<256K 2
        512: 3<1K 4<8K 1<32K 2
        1024: 3<512 4<8K 1<16K 4<128K 1<256K 2
        2048: 3<512 4<1K 1<2K 4<16K 1<256K 4
        4096: 3<1K 4<4K 1<8K 4<128K 1
        else: 3<2K 4<8K 1<16K 4<32K 1<64K 4
    """,
    "barrier": """
        4: 3
        8: 1
        64: 3
        256: 4
        512: 6
        1024: 4
        4096: 6
        else: 4
    """,
    "bcast": """
        4: 3<32 5<256 3<512 7<1K 1<32K 5<128K 2<256K 1<512K 6<1M 5
        8: 5<64 6<128 5<2K 6<8K 1<1M 2
        16: 7<8 5<64 7<4K 5<16K 6<32K 1
        32: 7<4K 6<1M 8
        64: 6<2K 7
        128: 7
        256: 6<2 5<16K 1<32K 5<64K 7
        1024: 7<16K 4<32K 7
        2048: 7<512K 8
        4096: 7<256K 8
        else: 7<8K 5<16K 7<256K 8
    """,
    "reduce": """
        4: 7<8 4<16 3<32 1<256K 3<512K 2<1M 3
        8: 4<4K 2<64K 5<256K 1<512K 5<1M 1
        16: 4<8K 5
        32: 4<4K 5
        256: 5
        512: 5<8K 6<16K 5
        2048: 5
        4096: 5<512 6<1K 5<8K 6<16K 5
        else: 5<16 6<32 5<1K 6<2K 5<8K 6<16K 5
    """,
    "reduce_scatter": """
        4: 3<64K 4<128K 3
        8: 1<8 2<256K 3
        32: 2<256K 3
        64: 1<64 2<2K 4<512K 3
        128: 1<256 2<512 4<2K 2<4K 4
        256: 1<256 2<512 4
        512: 1<256 2<1K 4
        1024: 1<512 2<2K 4<8K 2<16K 4
        2048: 1<512 2<4K 4<16K 2<32K 4
        4096: 1<512 2<4K 4
        else: 1<1K 2<8K 4
    """,
    "allgather": """
        3: 6
        32: 3
        64: 3<1K 5<64K 4
        128: 3<512 5<64K 4
        256: 3<512 5<128K 4<512K 5<1M 4
        512: 3<32 2<128 3<1K 5<128K 4<512K 5<1M 4
        1024: 3<64 2<256 3<2K 5
        2048: 3<4 2<8 3<16 2<32 3<256 2<512 3<4K 5
        4096: 2<32 3<128 2<512 3<4K 5
        else: 3<2 2<8 3<16 2<512 3<4K 5
    """,
}
"""Ranks below which a line holds, then ``algorithm<bytes`` up to the last one.

Bytes are those of the vector; of allgather and alltoall those of one block.
"""

_UNITS = {"K": 1 << 10, "M": 1 << 20}


def fixed_rule(collective: str, ranks: int, size: int) -> tuple[int, str]:
    """Return the number of the algorithm taken, and the words for the rule.

    Parameters
    ----------
    collective : str
        A key of `RULES`.
    ranks : int
        World size, at least 2.
    size : int
        Bytes of the vector; of allgather and alltoall of one block.

    Raises
    ------
    UsageError
        A collective that tuned has no rule for.
    """
    if collective not in RULES:
        known = ", ".join(RULES)
        raise UsageError(
            f"unknown collective {collective!r} of Open MPI (known: {known})"
        )
    least, below, choices = 2, "", ""
    for line in RULES[collective].strip().splitlines():
        below, choices = line.strip().split(": ")
        if below == "else" or ranks < int(below):
            break
        least = int(below)
    most = "ranks or more" if below == "else" else f"to {int(below) - 1} ranks"
    where = f"{least} {most}"
    return _by_bytes(choices.split(), size, where)


def _by_bytes(choices: list[str], size: int, where: str) -> tuple[int, str]:
    """Return the first choice whose limit is above `size`; the last has none."""
    words = [where]
    for choice in choices:
        algorithm, _, limit = choice.partition("<")
        if not limit:
            return int(algorithm), ", ".join(words)
        if size < _bytes(limit):
            return int(algorithm), ", ".join([*words, f"below {_words(limit)}"])
        words = [where, f"from {_words(limit)}"]
    raise AssertionError(f"no choice without a limit: {choices}")


def _bytes(text: str) -> int:
    return int(text.rstrip("KM")) * _UNITS.get(text[-1], 1)


def _words(text: str) -> str:
    return f"{text.rstrip('KM')} {text[-1]}iB" if text[-1] in _UNITS else f"{text} B"
