from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from strategies import tunings

from cloudcoll.libraries.tell import TELLERS, tell
from cloudcoll.libraries.tell_open_mpi import numbers
from cloudcoll.tuning import TunedRange, Tuning

MIB = 1 << 20


def tuning(library: str, *ranges: TunedRange, local: int = 1) -> Tuning:
    return Tuning(library, 16, local, ranges)


OWN = TunedRange("allreduce", 0)
RING = TunedRange("allreduce", MIB, "ring")


def rules(*ranges: TunedRange, **settings: str) -> list[str]:
    """Return the numbers that Open MPI is told, and the notes behind them."""
    told = tell(tuning("openmpi@5.0.11", *ranges), settings=settings)
    return [numbers(told.file), *told.notes]


def test_open_mpi_is_told_for_this_world_size_alone() -> None:
    """Tests that smaller and larger communicators have rules that say nothing."""
    expected = "1 2 3 0 1 0 0 0 0 16 2 0 0 0 0 1048576 4 0 0 17 1 0 0 0 0"
    assert rules(OWN, RING) == [expected]
    told = tell(tuning("openmpi@5.0.11", OWN, RING))
    assert told.variables == {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1"}
    assert told.file_variable == "OMPI_MCA_coll_tuned_dynamic_rules_filename"


def test_open_mpi_is_told_segments_and_chains() -> None:
    """Tests where parameters stand, and that what has none is told none."""
    chain = TunedRange("bcast", 0, "chain", {"segment": 4096, "fanout": 2})
    default = TunedRange("bcast", 8192, "chain")
    linear = TunedRange("bcast", MIB, "scatter_allgather", {"segment": 4096})
    assert "0 2 2 4096 8192 2 4 0 1048576 8 0 0 17" in rules(chain, default, linear)[0]


def test_ranges_that_say_the_same_are_one() -> None:
    """Tests that thresholds between equal choices are left out."""
    again = TunedRange("allreduce", 2 * MIB, "ring")
    assert rules(OWN, RING, again) == rules(OWN, RING)


def test_radix_of_a_tree() -> None:
    """Tests that Open MPI is told one radix, and no two."""
    one = TunedRange("bcast", 0, "knomial", {"radix": 8})
    told = tell(tuning("openmpi@5.0.11", one))
    name = "OMPI_MCA_coll_tuned_bcast_algorithm_knomial_radix"
    assert told.variables[name] == "8"
    two = TunedRange("bcast", MIB, "knomial", {"radix": 2})
    assert rules(one, two) == [
        "",
        "Open MPI takes one radix for all sizes: bcast stays",
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"coll_tuned_allreduce_algorithm": "3"},
            "your own coll_tuned_allreduce_algorithm=3 holds: no algorithm is chosen "
            "for allreduce",
        ),
        (
            {"coll_tuned_dynamic_rules_filename": "/mine"},
            "your own coll_tuned_dynamic_rules_filename=/mine holds: no algorithm is "
            "chosen",
        ),
        (
            {"coll_tuned_use_dynamic_rules": "0"},
            "your own coll_tuned_use_dynamic_rules=0 holds: no algorithm is chosen",
        ),
        ({"coll": "^tuned"}, "your own coll=^tuned holds: no algorithm is chosen"),
        (
            {"coll_ucc_enable": "1"},
            "your own coll_ucc_enable=1 holds: no algorithm is chosen",
        ),
    ],
)
def test_a_users_own_settings_of_open_mpi_win(
    settings: dict[str, str], said: str
) -> None:
    """Tests that what the user says is named and left as it is."""
    assert rules(OWN, RING, **settings) == ["", said]


def test_one_collective_that_is_forced_leaves_the_others() -> None:
    """Tests that only the collective that the user forces is left out."""
    bcast = TunedRange("bcast", 0, "pipeline", {"segment": 65536})
    found = rules(OWN, RING, bcast, coll_tuned_allreduce_algorithm="3")
    assert found[0].startswith("1 7 3 ")


@pytest.mark.parametrize(
    ("version", "algorithm", "said"),
    [
        ("4.0.7", "ring", "Open MPI 4.0.7 reads another form of rules"),
        ("6.0.1", "ring", "Open MPI 6.0.1 reads another form of rules"),
        ("4.1.8", "sparbit", "sparbit came with Open MPI 5.0: allgather stays"),
        ("4.1.8", "ring", ""),
        ("5.0", "sparbit", ""),
    ],
)
def test_versions_of_open_mpi(version: str, algorithm: str, said: str) -> None:
    """Tests that a version is told only what it understands."""
    told = tell(tuning(f"openmpi@{version}", TunedRange("allgather", 0, algorithm)))
    assert told.notes == ((said,) if said else ())
    assert told.anything == (not said)


def test_han_goes_where_a_flat_algorithm_is_asked_for() -> None:
    """Tests several ranks on a host: HAN is turned off, unless the user set it."""
    name = "OMPI_MCA_coll_han_priority"
    flat = tuning("openmpi@5.0.11", OWN, RING, local=2)
    told = tell(flat)
    assert told.variables[name] == "0"
    assert told.notes == (
        "HAN is off for the sake of allreduce: it is before tuned for all sizes or "
        "none",
    )
    assert name not in tell(tuning("openmpi@4.1.8", OWN, RING, local=2)).variables
    alltoall = TunedRange("alltoall", 0, "pairwise")
    assert name not in tell(tuning("openmpi@5.0.11", alltoall, local=2)).variables
    kept = tell(flat, settings={"coll_han_priority": "35"})
    assert not kept.anything
    assert kept.notes == (
        "your own coll_han_priority=35 holds: no algorithm is chosen for allreduce",
    )
    off = tell(flat, settings={"coll_han_priority": "0"})
    assert off.anything
    assert not off.notes


def leaves(tree: dict[str, Any], *path: str) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def mpich(*ranges: TunedRange, version: str = "5.0.2", local: int = 1) -> Any:
    told = tell(tuning(f"mpich@{version}", *ranges, local=local))
    assert told.file_variable == "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"
    return json.loads(told.file), told


def test_mpich_keeps_its_own_tree() -> None:
    """Tests that only calls among 16 ranks, of some size, go elsewhere."""
    whole, _ = mpich(TunedRange("alltoall", 0, "linear"))
    tree, told = mpich(OWN, RING)
    assert not told.variables
    own = whole["collective=allreduce"]["comm_type=intra"]
    intra = tree["collective=allreduce"]["comm_type=intra"]
    assert list(intra) == ["comm_size<16", "comm_size<=16", "comm_size=any"]
    assert intra["comm_size<16"] == intra["comm_size=any"] == own
    here = intra["comm_size<=16"]
    assert here["is_commutative=no"] == own
    assert here["is_commutative=yes"] == {
        "avg_msg_size<1048576": own,
        "avg_msg_size=any": {"algorithm=MPIR_Allreduce_intra_ring": {}},
    }
    others = tree.keys() - {"collective=allreduce"}
    assert all(tree[name] == whole[name] for name in others - {"collective=alltoall"})


def test_mpich_is_told_what_bytes_are_counted() -> None:
    """Tests that the bytes are the vector's, by the name MPICH has for them."""
    gathered, _ = mpich(TunedRange("allgather", 0), TunedRange("allgather", 9, "ring"))
    here = gathered["collective=allgather"]["comm_type=intra"]["comm_size<=16"]
    assert list(here) == ["total_msg_size<9", "total_msg_size=any"]
    scattered, _ = mpich(TunedRange("reduce_scatter", 0, "mpich_pairwise"))
    for call in ("reduce_scatter", "reduce_scatter_block"):
        here = scattered[f"collective={call}"]["comm_type=intra"]["comm_size<=16"]
        leaf: dict[str, Any] = {
            f"algorithm=MPIR_{call.capitalize()}_intra_pairwise": {}
        }
        assert here["is_commutative=yes"] == {"total_msg_size=any": leaf}
    exchanged, _ = mpich(TunedRange("alltoall", 0, "linear"))
    here = exchanged["collective=alltoall"]["comm_type=intra"]["comm_size<=16"]
    assert list(here) == ["is_sendbuf_inplace=yes", "is_sendbuf_inplace=no"]


def test_mpich_is_told_radices_and_trees() -> None:
    """Tests algorithms with parameters, which have names of their own."""
    tree, _ = mpich(
        TunedRange("bcast", 0, "mpich_tree_knomial_1", {"segment": 8192, "radix": 3}),
        TunedRange("allreduce", 0, "mpich_recexch", {"radix": 4}),
        TunedRange("allgather", 0, "bruck", {"radix": 4}),
        TunedRange("barrier", 0, "mpich_dissemination"),
    )
    text = json.dumps(tree)
    assert (
        '"algorithm=MPIR_Bcast_intra_pipelined_tree": {"tree_type=knomial_1": {}, '
        '"k=3": {}' in text
    )
    assert '"algorithm=MPIR_Allreduce_intra_recexch": {"k=4": {}' in text
    assert '"algorithm=MPIR_Allgather_intra_k_brucks": {"k=4": {}' in text
    assert '"algorithm=MPIR_Barrier_intra_k_dissemination": {"k=2": {}' in text


def test_reductions_of_few_elements_keep_a_way() -> None:
    """Tests that what is for many elements and MPI's operations has one beside it."""
    name = "mpich_reduce_scatter_allgather"
    tree, _ = mpich(TunedRange("allreduce", 0, name))
    leaf = leaves(
        tree,
        *("collective=allreduce", "comm_type=intra", "comm_size<=16"),
        *("is_commutative=yes", "avg_msg_size=any"),
    )
    assert list(leaf) == ["is_op_built_in=no", "is_op_built_in=yes"]
    assert list(leaf["is_op_built_in=yes"]) == ["count<pow2", "count=any"]


@pytest.mark.parametrize(
    ("version", "call", "algorithm", "said"),
    [
        ("4.0.2", "allreduce", "ring", "ring came with MPICH 4.1: allreduce stays"),
        ("4.0.2", "allgather", "ring", ""),
        (
            *("4.1", "allgather", "mpich_recexch_doubling"),
            "mpich_recexch_doubling came with MPICH 4.2: allgather stays",
        ),
        (
            *("5.0.2", "allgather", "mpich_recursive_doubling"),
            "mpich_recursive_doubling is for a power of two of ranks: allgather stays",
        ),
        (
            *("5.1", "allreduce", "ring"),
            "how MPICH 5.1 selects algorithms is not known",
        ),
    ],
)
def test_versions_of_mpich(version: str, call: str, algorithm: str, said: str) -> None:
    """Tests that no name is told that ends the job of a version without it."""
    odd = Tuning(f"mpich@{version}", 12, 1, (TunedRange(call, 0, algorithm),))
    told = tell(odd)
    assert told.notes == ((said,) if said else ())
    assert told.anything == (not said)


def test_levels_of_mpich() -> None:
    """Tests several ranks on a host: flat, with the levels, and both."""
    tree, told = mpich(OWN, RING, local=2)
    assert told.variables == {
        "MPIR_CVAR_DEVICE_COLLECTIVES": "percoll",
        "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": "0",
    }
    here = tree["collective=allreduce"]["comm_type=intra"]["comm_size<=16"]
    small = here["is_commutative=yes"]["avg_msg_size<1048576"]
    assert small["comm_hierarchy=parent"] == {"algorithm=MPIR_Allreduce_intra_smp": {}}
    levels = TunedRange("allreduce", 0, "mpich_smp_ring")
    tree, told = mpich(levels, local=2)
    assert not told.variables
    assert "comm_size<=8" in tree["collective=allreduce"]["comm_type=intra"]
    both = tell(tuning("mpich@5.0.2", levels, RING, local=2))
    assert both.notes == (
        "MPICH has two levels for all sizes or none: allreduce stays",
    )


@pytest.mark.parametrize(
    "setting",
    ["MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "MPIR_CVAR_ALLREDUCE_COMPOSITION"],
)
def test_a_users_own_settings_of_mpich_win(setting: str) -> None:
    """Tests that a collective that the user forces is left to the user."""
    told = tell(tuning("mpich@5.0.2", OWN, RING), settings={setting: "x"})
    assert not told.anything
    assert told.notes == (
        f"your own {setting}=x holds: no algorithm is chosen for allreduce",
    )
    file = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"
    told = tell(tuning("mpich@5.0.2", OWN, RING), settings={file: "/mine"})
    assert told.notes == (f"your own {file}=/mine holds: no algorithm is chosen",)


def test_intel_mpi() -> None:
    """Tests presets by bytes, of allgather those of a block, with no gap between."""
    small = TunedRange("allreduce", 0, "recursive_doubling")
    gather = [TunedRange("allgather", 0, "bruck"), TunedRange("allgather", 99, "ring")]
    told = tell(tuning("intelmpi@2021.18", small, RING, *gather))
    assert told.variables == {
        "I_MPI_ADJUST_ALLREDUCE": "1:0-1048575;8:1048576-2147483647",
        "I_MPI_ADJUST_ALLGATHER": "2:0-6;3:7-2147483647",
    }
    assert told.notes == ("Intel MPI takes presets for communicators of any size",)
    mine = tell(
        tuning("intelmpi@2021.18", small, RING),
        settings={"I_MPI_ADJUST_ALLREDUCE": "2"},
    )
    assert mine.notes == (
        "your own I_MPI_ADJUST_ALLREDUCE=2 holds: no algorithm is chosen for allreduce",
    )


def test_intel_mpi_can_not_be_told_to_keep_its_own() -> None:
    """Tests what is left alone, since presets would reach further than asked for."""
    some = tell(tuning("intelmpi@2021.18", OWN, RING))
    assert not some.anything
    assert some.notes == (
        "Intel MPI has its own choice for all sizes or none: allreduce stays",
    )
    odd = Tuning(
        "intelmpi", 12, 1, (TunedRange("allgather", 0, "mpich_recursive_doubling"),)
    )
    assert tell(odd).notes == (
        "mpich_recursive_doubling is for a power of two of ranks: allgather stays",
    )


def test_nccl_is_not_told_what_it_may_refuse() -> None:
    """Tests that PAT is never named: where it can't be taken the job would end."""
    told = tell(tuning("nccl@2.27", TunedRange("allgather", 0, "nccl_pat")))
    assert not told.anything
    assert told.notes == ("NCCL ends jobs that can't take nccl_pat: allgather stays",)


def test_ucc() -> None:
    """Tests one variable for all collectives."""
    bruck = TunedRange("allgather", 0, "bruck")
    ring = TunedRange("allgather", 4096, "ring")
    told = tell(tuning("ucc@1.3", OWN, RING, bruck, ring))
    assert told.variables == {
        "UCC_TL_UCP_TUNE": "allreduce:1048576-inf:[16-16]:inf:@ring#"
        "allgather:0-4096:[16-16]:inf:@bruck#allgather:4096-inf:[16-16]:inf:@ring"
    }


def test_nccl() -> None:
    """Tests that each function has one algorithm, from 2.24 on, and no protocol."""
    tree = TunedRange("allreduce", 0, "nccl_tree")
    gather = TunedRange("allgather", 0, "nccl_ring")
    told = tell(tuning("nccl@2.27", tree, gather))
    assert told.variables == {"NCCL_ALGO": "allreduce:tree;allgather:ring"}
    old = tell(tuning("nccl@2.23", tree))
    assert old.notes == ("NCCL 2.23 takes one algorithm for all collectives: it stays",)
    ring = TunedRange("allreduce", MIB, "nccl_ring")
    both = tell(tuning("nccl@2.27", tree, ring))
    assert not both.anything
    assert both.notes[0].endswith("(others need a tuner plug-in): allreduce stays")


TREE_BELOW = (
    TunedRange("allreduce", 0, "nccl_tree"),
    TunedRange("allreduce", 4096, "nccl_tree"),
    TunedRange("allreduce", MIB),
    TunedRange("allgather", 0, "nccl_pat"),
    TunedRange("bcast", 0),
)


@pytest.mark.parametrize("version", ["2.22", "2.27.5", "2.30"])
def test_the_tuner_of_nccl(version: str) -> None:
    """Tests the table: of what changes, in the order that the plugin reads."""
    told = tell(tuning(f"nccl@{version}", *TREE_BELOW), nodes=4)
    assert told.variables == {
        "CLOUDCOLL_NCCL_TABLE": "8d91ca55f08de525 16 4,allgather 0 pat 0,"
        "allreduce 0 tree 0,allreduce 1048576 - 0"
    }
    assert told.collectives == ("allreduce", "allgather")
    assert not told.notes


@pytest.mark.parametrize("library", ["nccl", "nccl@2.21", "nccl@2.31", "nccl@3"])
def test_the_tuner_is_for_versions_that_were_read(library: str) -> None:
    """Tests that others are told as without it."""
    assert tell(tuning(library, *TREE_BELOW), nodes=4) == tell(
        tuning(library, *TREE_BELOW)
    )


@pytest.mark.parametrize("name", ["NCCL_TUNER_PLUGIN", "NCCL_ALGO", "NCCL_PROTO"])
def test_a_tuner_of_ones_own(name: str) -> None:
    """Tests that what the user tells NCCL holds, with one line."""
    told = tell(tuning("nccl@2.27", *TREE_BELOW), settings={name: "x"}, nodes=4)
    assert not told.anything
    assert told.notes == (f"your own {name}=x holds: no algorithm is chosen",)


def test_the_tuner_takes_no_more_than_fits() -> None:
    """Tests that a table which the plugin would refuse is not told."""
    names = ["nccl_tree", "nccl_ring"]
    ranges = [TunedRange("allreduce", size, names[size % 2]) for size in range(65)]
    told = tell(tuning("nccl@2.27", *ranges), nodes=4)
    assert told.notes == (
        "NCCL's tuner takes 64 ranges, not 65: no algorithm is chosen",
    )
    assert tell(tuning("nccl@2.27", *ranges[:64]), nodes=4).anything


@pytest.mark.parametrize("library", ["gloo", "lightgbm", "xgboost@3.4"])
def test_what_can_not_be_told(library: str) -> None:
    """Tests libraries that have no way in."""
    told = tell(tuning(library, OWN))
    assert not told.anything
    assert told.notes[0].endswith("can't be told an algorithm")


def test_another_library_and_nothing_to_say() -> None:
    """Tests that a tuning is for its own library, and may leave all as it is."""
    told = tell(tuning("openmpi@5.0.11", OWN, RING), "mpich@5.0.2")
    assert told.notes == ("the tuning is for openmpi@5.0.11, not mpich@5.0.2",)
    told = tell(tuning("openmpi@5.0.11", OWN), "openmpi@5.0.11")
    assert told.notes == ("the library's own algorithms are the best known",)


@given(tunings())
def test_any_tuning_is_told_or_explained(tuned: Tuning) -> None:
    """Tests that nothing is lost without a word."""
    told = tell(tuned)
    assert told.anything or told.notes
    assert all("\n" not in note for note in told.notes)
    left = {one.collective for one in tuned.ranges if not one.is_own}
    left -= set(told.collectives)
    assert not left or told.notes
    if told.file_variable.startswith("MPIR"):
        assert len(told.file) % 4096
        json.loads(told.file)


def test_every_teller_has_a_library() -> None:
    """Tests that what is told is told to libraries that are known."""
    from cloudcoll.libraries.telling import LIBRARIES

    assert set(TELLERS) <= set(LIBRARIES)
