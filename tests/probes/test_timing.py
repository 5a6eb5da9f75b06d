from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from probes.timing import (
    Bench,
    Group,
    World,
    count_wrong,
    differences,
    is_narrow,
    make_buffers,
    wave,
)

OPS = ("allgather", "allreduce", "alltoall", "bcast", "reduce", "reduce_scatter")
orders = st.integers(2, 9).flatmap(lambda ranks: st.permutations(range(ranks)))


class Placed(Group):
    """A rank's place in an order; what it would send is worked out here."""

    def barrier(self) -> None:
        """Have nobody to wait for."""

    def call(self, op: str, send: Any, recv: Any) -> None:
        """Put into `recv` what MPI's standard says, of all ranks' own buffers."""
        sent = [
            make_buffers(op, rank, len(self.members), self.size).send
            for rank in self.members
        ]
        block = len(sent[0]) // len(sent)
        mine = slice(self.place * block, (self.place + 1) * block)
        found: dict[str, Callable[[], Any]] = {
            "allgather": lambda: np.concatenate(sent),
            "allreduce": lambda: np.sum(sent, axis=0),
            "alltoall": lambda: np.concatenate([one[mine] for one in sent]),
            "bcast": lambda: sent[0],
            "reduce": lambda: np.sum(sent, axis=0),
            "reduce_scatter": lambda: np.sum(sent, axis=0)[mine],
        }
        recv[:] = found[op]()

    size = 0


def received(op: str, members: list[int], place: int, size: int) -> tuple[Group, Any]:
    group = Placed(members, place)
    group.size = size
    send, recv = make_buffers(op, members[place], len(members), size)
    group.call(op, send, recv)
    return group, recv


@given(st.sampled_from(OPS), orders, st.integers(1, 400), st.data())
def test_right_results_are_right_and_others_are_not(
    op: str, members: list[int], block: int, data: st.DataObject
) -> None:
    """Tests every place of every order; then one altered element is counted."""
    place = data.draw(st.integers(0, len(members) - 1))
    group, recv = received(op, members, place, 4 * block * len(members))
    assert count_wrong(op, group, recv) == 0
    assume(op != "reduce" or place == 0)
    recv[data.draw(st.integers(0, len(recv) - 1))] += 1
    assert count_wrong(op, group, recv) == 1


@pytest.mark.parametrize("op", ["allgather", "alltoall"])
def test_blocks_of_two_ranks_traded_are_wrong(op: str) -> None:
    """Tests that a result in another order of ranks does not pass."""
    group, recv = received(op, [2, 0, 3, 1], 1, 4 * 4 * 10)
    blocks = recv.reshape(4, -1)
    blocks[[0, 2]] = blocks[[2, 0]]
    assert count_wrong(op, group, recv) == 20


def test_only_the_root_has_a_reduced_vector() -> None:
    """Tests that what lies in other ranks' buffers is nobody's business."""
    group = Placed([1, 0], 1)
    assert count_wrong("reduce", group, np.full(8, -1.0, np.float32)) == 0


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_a_repeated_period_has_no_differences(start: int, count: int) -> None:
    """Tests vectors shorter and longer than a period, and its end in between."""
    vector = np.resize(wave(start), count).astype(np.float32)
    assert differences(vector, wave(start)) == 0
    assert differences(vector, wave(start + 1)) == count


def test_a_size_ends_when_every_ratio_is_known() -> None:
    """Tests that steady orders are enough, a jumping one is not, nor are few."""
    steady = [1.0, 1.001, 0.999, 1.0, 1.0, 1.0]
    jumping = [2.0, 3.0, 2.0, 2.5, 1.5, 2.0]
    assert is_narrow({"a": steady, "b": steady}, "a", 0.01)
    assert not is_narrow({"a": steady, "b": jumping}, "a", 0.01)
    assert not is_narrow({"a": steady[:5], "b": steady[:5]}, "a", 0.01)


def test_drift_that_all_orders_share_is_no_doubt() -> None:
    """Tests that ratios are paired: a network that slows down slows all."""
    drift = np.linspace(1.0, 3.0, 8)
    assert is_narrow({"a": list(drift), "b": list(2 * drift)}, "a", 0.01)


class Counted(Group):
    """A group of one whose calls are counted by size."""

    def __init__(self) -> None:
        super().__init__([0], 0)
        self.sizes: list[int] = []

    def barrier(self) -> None:
        """Have nobody to wait for."""

    def call(self, op: str, send: Any, recv: Any) -> None:
        """Count, and leave the right sum."""
        self.sizes.append(send.nbytes)
        recv[:] = send


class Lonely(World):
    """A rank that is told how long calls take."""

    rank, size, library = 0, 1, "none"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.counted = Counted()

    def share(self, value: Any) -> Any:
        """Return the value."""
        return value

    def gather(self, text: str) -> list[str]:
        """Return the text."""
        return [text]

    def largest(self, value: float) -> float:
        """Return what calls are said to take."""
        return self.seconds

    def total(self, value: int) -> int:
        """Return the value."""
        return value

    def group(self, name: str, members: list[int]) -> Group:
        """Return the only one."""
        return self.counted


@pytest.mark.parametrize(
    ("seconds", "calls"), [(0.09, [4, 4, 8, 4, 8]), (0.2, [4, 4, 4, 8])]
)
def test_slow_calls_need_no_warm_up_at_larger_sizes(
    seconds: float, calls: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a time box is not spent on long calls that count nothing."""
    world = Lonely(seconds)
    pace = {"repeats": 1, "least": 1, "seconds": 60.0, "min_seconds": 0.0}
    spec = {"op": "allreduce", "orders": {"given": [0]}, "sizes": [4, 8]}
    Bench(world, {**spec, **pace, "narrow": 0.01, "reference": ""}).run()
    assert world.counted.sizes == calls
    assert len(capsys.readouterr().out.splitlines()) == 2
