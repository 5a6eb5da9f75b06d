from __future__ import annotations

import json
import shlex
import subprocess

import pytest
from hypothesis import given
from strategies import tunings

from cloudcoll.errors import UsageError
from cloudcoll.launch.formats import tuning_file
from cloudcoll.libraries.tell import tell
from cloudcoll.libraries.tell_open_mpi import numbers
from cloudcoll.libraries.telling import library_version
from cloudcoll.tuning import TunedRange, Tuning

MIB = 1 << 20
OWN = TunedRange("allreduce", 0)
RING = TunedRange("allreduce", MIB, "ring")
WRONG = (
    "these rules give wrong results of MPI_Op_create's operations that do not commute; "
    "'cloudcoll run --tune' keeps those right"
)

RULES = f"""\
1 # collectives; by cloudcoll for 8 ranks
# algorithms for openmpi@5.0.11, 8 ranks, 2 on each host; every host has to have this \
file. Start with:
#   mpirun --mca coll_tuned_use_dynamic_rules 1 --mca coll_han_priority 0 \
--mca coll_tuned_dynamic_rules_filename '/a b/rules' ...
# or, where srun starts the ranks, after:
#   export OMPI_MCA_coll_tuned_use_dynamic_rules=1 OMPI_MCA_coll_han_priority=0 \
OMPI_MCA_coll_tuned_dynamic_rules_filename='/a b/rules'
# {WRONG}
2 # allreduce
3 # world sizes
0 1 # ranks, rules
0 0 0 0 # its own choice
8 2 # ranks, rules
0 0 0 0 # its own choice
1048576 4 0 0 # ring
9 1 # ranks, rules
0 0 0 0 # its own choice
"""


def test_open_mpi() -> None:
    """Tests the whole file: what goes with it stands behind its first number."""
    file = tuning_file(Tuning("openmpi@5.0.11", 8, 2, (OWN, RING)), "/a b/rules")
    assert file.text == RULES
    assert file.notes == (
        "HAN is off for the sake of allreduce: it is before tuned for all sizes or "
        "none",
        WRONG,
    )


def test_where_nothing_is_added_up_nothing_can_be_wrong() -> None:
    """Tests that the warning is left out of files that are not for reductions."""
    file = tuning_file(Tuning("openmpi@4.1", 8, 1, (TunedRange("bcast", 0, "chain"),)))
    assert not file.notes
    assert "MPI_Op_create" not in file.text
    assert " coll_tuned_dynamic_rules_filename FILE ..." in file.text


def test_mpich() -> None:
    """Tests that the file is JSON alone, and that the variables are said beside it."""
    file = tuning_file(Tuning("mpich@5.0.2", 8, 2, (OWN, RING)), "/tmp/a.json")
    here = json.loads(file.text)["collective=allreduce"]["comm_type=intra"]
    assert "comm_size<=8" in here
    assert file.notes == (
        "algorithms for mpich@5.0.2, 8 ranks, 2 on each host: start with mpirun -genv "
        "MPIR_CVAR_DEVICE_COLLECTIVES percoll -genv "
        "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE 0 -genv "
        "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE /tmp/a.json ...",
        "every host has to have the file: MPICH ends a job that can't read it",
    )


@pytest.mark.parametrize(
    ("library", "ranges", "text"),
    [
        (
            "intelmpi@2021.18",
            (TunedRange("allreduce", 0, "recursive_doubling"), RING),
            "# algorithms for intelmpi@2021.18, 8 ranks; before the command that "
            "starts the job:\n"
            "#   . /tmp/env\n"
            "export I_MPI_ADJUST_ALLREDUCE='1:0-1048575;8:1048576-2147483647'\n",
        ),
        (
            "ucc@1.3",
            (OWN, RING),
            "# algorithms for ucc@1.3, 8 ranks; before the command that starts the "
            "job:\n"
            "#   . /tmp/env\n"
            "# Open MPI's mpirun hands it on with -x UCC_TL_UCP_TUNE\n"
            "export UCC_TL_UCP_TUNE='allreduce:1048576-inf:[8-8]:inf:@ring'\n",
        ),
        (
            "nccl@2.27",
            (
                TunedRange("allreduce", 0, "nccl_tree"),
                TunedRange("allgather", 0, "nccl_ring"),
            ),
            "# algorithms for nccl@2.27, 8 ranks; before the command that starts the "
            "job:\n"
            "#   . /tmp/env\n"
            "# Open MPI's mpirun hands it on with -x NCCL_ALGO; it holds for "
            "communicators of any size\n"
            "export NCCL_ALGO='allreduce:tree;allgather:ring'\n",
        ),
    ],
)
def test_variables(library: str, ranges: tuple[TunedRange, ...], text: str) -> None:
    """Tests the lines of shell for those that read no file."""
    assert tuning_file(Tuning(library, 8, 1, ranges), "/tmp/env").text == text


@pytest.mark.parametrize(
    ("library", "ranges", "said"),
    [
        ("gloo", (), "nothing to write: Gloo (torch) can't be told an algorithm"),
        (
            "openmpi@5.0",
            (OWN,),
            "nothing to write: the library's own algorithms are the best known",
        ),
        (
            "openmpi@6.0",
            (OWN, RING),
            "nothing to write: Open MPI 6.0 reads another form of rules",
        ),
        (
            "nccl@2.23",
            (TunedRange("allreduce", 0, "nccl_tree"),),
            "nothing to write: NCCL 2.23 takes one algorithm for all collectives: it "
            "stays",
        ),
    ],
)
def test_what_can_not_be_written(
    library: str, ranges: tuple[TunedRange, ...], said: str
) -> None:
    """Tests that one line says why there is no file."""
    with pytest.raises(UsageError) as refused:
        tuning_file(Tuning(library, 8, 1, ranges))
    assert str(refused.value).startswith(said)


@given(tunings())
def test_any_file_says_what_the_library_is_told(tuned: Tuning) -> None:
    """Tests that what is said in a file changes nothing of what is read in it."""
    told = tell(tuned)
    if not told.anything:
        return
    file = tuning_file(tuned, "/a\nb/'c'")
    assert set(told.notes) <= set(file.notes)
    assert all("\n" not in note for note in file.notes)
    key, _ = library_version(tuned.library)
    if key == "openmpi":
        assert numbers(file.text) == numbers(told.file)
        for line in file.text.splitlines():
            assert line[0] in "0123456789#"
    elif key == "mpich":
        assert file.text == told.file
    else:
        words = shlex.split(file.text, comments=True)
        expected = [f"{name}={value}" for name, value in told.variables.items()]
        assert [word for word in words if word != "export"] == expected


def test_a_shell_reads_the_variables() -> None:
    """Tests that ``;``, ``#`` and brackets reach the environment as they are."""
    tuned = Tuning("ucc", 8, 1, (TunedRange("allgather", 0, "bruck"), OWN, RING))
    line = f'{tuning_file(tuned).text}printf %s "$UCC_TL_UCP_TUNE"'
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, check=True
    )
    assert done.stdout == tell(tuned).variables["UCC_TL_UCP_TUNE"]


def test_a_map_can_not_bring_lines_of_its_own() -> None:
    """Tests a name with a newline, in a file that a shell will read."""
    chosen = (TunedRange("allreduce", 0, "ring"),)
    for library in ("intelmpi@2021\necho mine", "openmpi@5.0\n9 9 9"):
        text = tuning_file(Tuning(library, 8, 1, chosen)).text
        assert "\\n" in text
        assert not {"echo mine", "9 9 9"}.intersection(text.splitlines())
