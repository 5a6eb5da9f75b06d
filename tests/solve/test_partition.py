from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics

from cloudcoll.arrays import Ints
from cloudcoll.collectives import SCHEDULES, build_schedule
from cloudcoll.collectives.readymade import ready_made
from cloudcoll.measured.synth import racks
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric
from cloudcoll.solve.orders import partitioned

UNEVEN = [11, 3, 9, 7, 13, 5, 10, 6]
FAMILIES = [(name, key) for name, table in SCHEDULES.items() for key in table]


def laid(
    collective: str, algorithm: str, sizes: Sequence[int], size: int = 64 << 20
) -> tuple[CostModel, Ints]:
    """Return the model and, rank by rank, the rack that the start gives it."""
    fabric = racks(sizes, seed=3)
    schedule = build_schedule(collective, algorithm, sum(sizes), size)
    model = CostModel(schedule, fabric, [1] * sum(sizes))
    flat = model.flat()
    return model, flat.links.member[0][partitioned(flat, 0)]


def crossing(model: CostModel, rack: Ints) -> float:
    """Return the share of all bytes that leaves a rack."""
    flat = model.flat()
    return float(flat.size[rack[flat.src] != rack[flat.dst]].sum() / flat.size.sum())


@settings(max_examples=100)
@given(fabrics(min_hosts=2, max_hosts=30), st.sampled_from(FAMILIES), st.data())
def test_any_schedule_on_any_tree(
    fabric: Fabric, family: tuple[str, str], data: st.DataObject
) -> None:
    """Tests that every host is used once, and the one asked for stands in front."""
    hosts, slots = len(fabric.hosts), data.draw(st.integers(1, 3))
    collective, algorithm = family
    only = SCHEDULES[collective][algorithm].only
    if only and only != hosts * slots:
        return
    schedule = build_schedule(collective, algorithm, hosts * slots, 1 << 16)
    front = data.draw(st.integers(0, hosts - 1))
    order = partitioned(CostModel(schedule, fabric, [slots] * hosts).flat(), front)
    assert sorted(order.tolist()) == list(range(hosts))
    assert order[0] == front


def test_uneven_racks_fill_aligned_blocks() -> None:
    """Tests halving-doubling: racks of 3 and 13, 5 and 11, ... share 16 ranks each."""
    _, rack = laid("allreduce", "rabenseifner", UNEVEN)
    for block in rack.reshape(4, 16):
        assert len(set(block.tolist())) == 2


def test_bits_are_reversed_for_bruck() -> None:
    """Tests that racks of 8 get ranks a multiple of 8 apart: those trade most."""
    _, rack = laid("allgather", "bruck", [8] * 8)
    assert (rack.reshape(8, 8) == rack[:8]).all()
    assert len(set(rack[:8].tolist())) == 8


@pytest.mark.parametrize(
    "algorithm", ["rabenseifner", "mpich_reduce_scatter_allgather"]
)
def test_ranks_that_drop_out_stand_beside_their_partners(algorithm: str) -> None:
    """Tests 12 ranks, of which 0, 2, 4 and 6 hand all they have to the next."""
    _, rack = laid("allreduce", algorithm, [4, 4, 4])
    assert (rack[0:8:2] == rack[1:8:2]).all()


def test_a_ring_stays_in_one_piece() -> None:
    """Tests that a rack is left once."""
    _, rack = laid("allreduce", "ring", UNEVEN)
    assert np.count_nonzero(rack != np.roll(rack, 1)) == len(UNEVEN)


@pytest.mark.parametrize(
    ("collective", "algorithm", "sizes", "size", "most"),
    [
        ("allreduce", "lightgbm", UNEVEN, 1 << 20, 0.24),
        ("allreduce", "lightgbm", UNEVEN, 64 << 20, 0.24),
        ("allreduce", "nccl_tree", UNEVEN, 64 << 20, 0.24),
        ("allgather", "bruck", [8] * 8, 1 << 20, 0.12),
        ("allreduce", "rabenseifner", UNEVEN, 64 << 20, 0.23),
    ],
)
def test_little_leaves_a_rack(
    collective: str, algorithm: str, sizes: list[int], size: int, most: float
) -> None:
    """Tests the share of bytes between racks: 0.25 to 0.93 rack after rack."""
    model, rack = laid(collective, algorithm, sizes, size)
    in_turn = np.repeat(np.arange(len(sizes)), sizes)
    assert crossing(model, rack) <= most < crossing(model, in_turn)


def test_groups_of_a_workload_share_a_rack() -> None:
    """Tests eight ranks that exchange tensors, on racks of eight and of sixteen."""
    fabric = racks([8, 16, 8], seed=1)
    job = ready_made("megatron", 32, "tp=8,pp=2,dp=2")
    flat = CostModel(job, fabric, [1] * 32).flat()
    rack = flat.links.member[0][partitioned(flat, 5)]
    assert (rack.reshape(4, 8) == rack[::8, None]).all()
