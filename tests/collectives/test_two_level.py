from __future__ import annotations

import numpy as np
import pytest
from delivery import assert_delivers

from cloudcoll.collectives import build_schedule
from cloudcoll.errors import UsageError

SIZE = 1 << 20


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


def test_han_sends_what_open_mpi_was_seen_to_send() -> None:
    """Tests bytes between six hosts of two ranks, read from Open MPI 5.0.11."""
    schedule = build_schedule("allreduce", "han", 12, 98304, local=2)
    assert schedule.pair_bytes()[::2, ::2] == pytest.approx(
        np.array(
            [
                [0, 147456, 147456, 0, 122880, 0],
                [98304, 0, 0, 98304, 0, 98304],
                [98304, 0, 0, 49152, 0, 24576],
                [0, 0, 98304, 0, 0, 0],
                [49152, 0, 0, 0, 0, 49152],
                [0, 0, 49152, 0, 49152, 0],
            ]
        )
    )


@pytest.mark.parametrize("root", [0, 7])
def test_a_root_meets_the_hosts_at_its_own_number_in_han(root: int) -> None:
    """Tests that broadcasts and reductions leave hosts by ranks like the root."""
    for collective in ("bcast", "reduce"):
        schedule = build_schedule(collective, "han", 24, SIZE, root=root, local=4)
        src, dst = np.nonzero(schedule.pair_bytes())
        away = src // 4 != dst // 4
        assert set(src[away] % 4) == set(dst[away] % 4) == {root % 4}


def test_only_han_s_first_segment_is_tuned_s() -> None:
    """Tests a broadcast of 96 KiB to six hosts: a chain, then a binomial tree."""
    schedule = build_schedule("bcast", "han", 12, 98304, local=2, bcast=3)
    between = schedule.pair_bytes()[::2, ::2]
    assert between[4, 5] == pytest.approx(65536)
    assert between[0, 4] == pytest.approx(32768)
    assert between[0, 1] == pytest.approx(98304)


def test_mpich_reduces_to_rank_0_first_above_2_kib() -> None:
    """Tests which rank the root of another host hears from."""
    for size, sender in ((2048, 4), (2049, 0)):
        schedule = build_schedule(
            "reduce", "mpich_smp_binomial", 12, size, root=5, local=4
        )
        heard = np.flatnonzero(schedule.pair_bytes()[:, 5])
        assert heard.tolist() == [sender]
