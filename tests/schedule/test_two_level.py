from __future__ import annotations

import numpy as np
import pytest
from delivery import assert_delivers

from cloudcoll.errors import UsageError
from cloudcoll.schedule import build_schedule

SIZE = 1 << 20


@pytest.mark.parametrize("size", [4096, 65536, 98304, 65536 * 3, SIZE + 8192])
@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 5, 6, 8])
def test_han_delivers_segments_and_the_rest(hosts: int, size: int) -> None:
    """Tests by data flow that both parts of a vector arrive everywhere."""
    assert_delivers(build_schedule("allreduce", "han", 2 * hosts, size, local=2))


def test_between_hosts_only_the_first_ranks_talk() -> None:
    """Tests that no message leaves a host but by its first rank."""
    for algorithm in (
        "han",
        "mpich_smp_recursive_doubling",
        "mpich_smp_reduce_scatter_allgather",
    ):
        schedule = build_schedule("allreduce", algorithm, 24, SIZE, local=4)
        src, dst = np.nonzero(schedule.pair_bytes())
        away = src // 4 != dst // 4
        assert away.any()
        assert not (src[away] % 4).any()
        assert not (dst[away] % 4).any()


def test_between_hosts_it_is_the_algorithm_named() -> None:
    """Tests bytes between the first ranks against those of one rank a host."""
    inner = build_schedule("allreduce", "mpich_reduce_scatter_allgather", 6, SIZE)
    outer = build_schedule(
        "allreduce", "mpich_smp_reduce_scatter_allgather", 18, SIZE, local=3
    )
    assert (outer.pair_bytes()[::3, ::3] == inner.pair_bytes()).all()


def test_the_last_host_may_have_fewer_ranks_in_mpich() -> None:
    """Tests that ranks need not fill the last host."""
    for ranks in range(1, 14):
        assert_delivers(
            build_schedule(
                "allreduce", "mpich_smp_recursive_doubling", ranks, SIZE, local=4
            )
        )


def test_han_refuses_uneven_hosts() -> None:
    """Tests that the error says which number does not fit."""
    with pytest.raises(UsageError, match="7 are not a multiple of 2"):
        build_schedule("allreduce", "han", 7, SIZE, local=2)


def test_han_broadcasts_down_a_chain_from_five_hosts_on() -> None:
    """Tests that whole segments go from host to host, the rest down a tree."""
    whole = build_schedule("allreduce", "han", 8, 1 << 20).steps[-1]
    assert (whole.src.tolist(), whole.dst.tolist()) == ([6], [7])
    small = build_schedule("allreduce", "han", 8, 1 << 15).steps[-1]
    assert (small.src.tolist(), small.dst.tolist()) == ([3], [7])
