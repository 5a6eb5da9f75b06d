from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.collectives.readymade import READY_MADE, ready_made
from cloudcoll.collectives.workload import Workload
from cloudcoll.errors import UsageError

MIB = 1 << 20


def table(job: Workload) -> list[tuple[str, str, int, int]]:
    return [(op.collective, op.where, op.size, op.calls) for op in job.operations]


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 30))
def test_buckets_add_up_to_the_gradients(size: int, bucket: int) -> None:
    """Tests that DDP reduces every byte once, for any sizes."""
    job = ready_made(f"ddp:bytes={size},bucket={bucket}", 4)
    assert sum(op.size * op.calls for op in job.operations) == size
    assert max(op.size for op in job.operations) <= max(bucket, MIB)


def test_ddp_begins_with_a_small_bucket() -> None:
    """Tests torch's 1 MiB, then 25 MiB each, then the rest."""
    sizes = [(size, calls) for *_, size, calls in table(ready_made("ddp:bytes=60M", 4))]
    assert sizes == [(MIB, 1), (25 * MIB, 2), (9 * MIB, 1)]


def test_fsdp_moves_the_parameters_three_times() -> None:
    """Tests two allgathers and a reduce-scatter of everything, (N - 1) / N each."""
    job = ready_made("fsdp:bytes=64M,units=4", 8)
    assert table(job) == [
        ("allgather", "world", 16 * MIB, 8),
        ("reduce_scatter", "world", 16 * MIB, 4),
    ]
    sent = job.pair_bytes().sum(axis=1)
    assert sent == pytest.approx([3 * 64 * MIB * 7 / 8] * 8)


def test_dlrm_exchanges_both_ways() -> None:
    """Tests the all-to-all of embeddings and of their gradients."""
    job = ready_made("dlrm:bytes=8M,exchange=4M", 4)
    assert table(job) == [
        ("alltoall", "world", 4 * MIB, 2),
        ("allreduce", "world", 8 * MIB, 1),
    ]


def test_towers_are_neighbours() -> None:
    """Tests groups of five, the rest together, and the sum over everyone."""
    exchange, reduce = ready_made("towers:tower=5", 12).operations
    assert [list(group) for group in exchange.groups] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [10, 11],
    ]
    assert (exchange.where, reduce.where) == ("towers of 5", "world")


def test_a_tower_of_everyone_is_the_world() -> None:
    """Tests that a tower larger than the job is no error."""
    exchange, _ = ready_made("towers:tower=99", 4).operations
    assert exchange.where == "world"


def test_megatron_by_hand() -> None:
    """Tests calls and bytes of each kind of group."""
    text = "megatron:bytes=1G,activation=2M,layers=6,microbatches=3"
    job = ready_made(text, None, "tp=2,cp=2,ep=2,dp=2,pp=4")
    # 2 of 6 layers on the stages that have most, in 3 micro-batches.
    assert table(job) == [
        ("allreduce", "tp", 2 * MIB, 24),
        ("allgather", "cp", 8 * MIB, 6),
        ("reduce_scatter", "cp", 8 * MIB, 6),
        ("alltoall", "ep", 2 * MIB, 24),
        ("sendrecv", "pp", 2 * MIB, 3),
        ("allreduce", "dp-cp", 128 * MIB, 1),
    ]
    assert (job.ranks, job.parallel) == (32, "tp=2,cp=2,ep=2,dp=2,pp=4")


def test_pipelines_hand_on_both_ways() -> None:
    """Tests that neighbouring stages send to each other and nobody else does."""
    job = ready_made("megatron:activation=1M,microbatches=5", None, "dp=1,pp=3")
    pairs = job.pair_bytes()
    assert pairs[0, 1] == pairs[1, 0] == pairs[1, 2] == pairs[2, 1] == 5 * MIB
    assert pairs.sum() == 20 * MIB


def test_axes_of_one_rank_send_nothing() -> None:
    """Tests that a job without pipelines or experts has no such operations."""
    assert [where for _, where, *_ in table(ready_made("megatron", 8, "tp=2"))] == [
        "tp",
        "dp-cp",
    ]


@pytest.mark.parametrize(("library", "algorithm"), [("nccl", "ring"), ("gloo", "ring")])
def test_the_library_chooses_the_algorithms(library: str, algorithm: str) -> None:
    """Tests that a ready-made workload runs as the named library runs it."""
    job = ready_made(f"ddp:library={library}", 4)
    assert {op.algorithm for op in job.operations} == {f"{library}_{algorithm}"}


@pytest.mark.parametrize("library", ["nccl", "gloo", "openmpi"])
@pytest.mark.parametrize("name", READY_MADE)
def test_every_library_has_all_that_is_needed(name: str, library: str) -> None:
    """Tests that every workload can be built for every library."""
    job = ready_made(f"{name}:library={library}", 16, "tp=2,cp=2,ep=2,dp=2,pp=2")
    assert job.pair_bytes().sum() > 0


@pytest.mark.parametrize(
    ("text", "ranks", "split", "message"),
    [
        ("fspd", 4, None, "unknown workload 'fspd' (ready-made: ddp, dlrm, fsdp,"),
        ("ddp:size=1", 4, None, "ddp takes no 'size' (takes: bytes, bucket, library)"),
        ("ddp:bytes", 4, None, "'' is not a size"),
        ("ddp:bytes=x", 4, None, "'x' is not a size"),
        ("ddp:bytes=0", 4, None, "workload ddp: bytes=0 must be 1 or more"),
        ("ddp:library=x", 4, None, "no defaults of library 'x' (known: openmpi,"),
        ("ddp", None, None, "how many ranks?"),
        ("ddp", 0, None, "2 ranks or more, not 0"),
        ("ddp", 1, None, "2 ranks or more, not 1"),
        ("ddp", 1, "tp=1", "2 ranks or more, not 1"),
        ("ddp", 8, "tp=8", "workload 'ddp' sends nothing"),
        ("ddp", 8, "tp=3,pp=2", "tp=3 x pp=2 is 6 ranks, the job has 8"),
    ],
)
def test_nonsense_is_refused_in_one_line(
    text: str, ranks: int | None, split: str | None, message: str
) -> None:
    """Tests that the message names what exists."""
    with pytest.raises(UsageError) as refused:
        ready_made(text, ranks, split)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
