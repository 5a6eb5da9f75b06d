from __future__ import annotations

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.launch.hosts import manager, per_node, refuse_others, slurm_hosts


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("2", [2]),
        ("2(x3),1", [2, 2, 2, 1]),
        ("16,2(x2)", [16, 2, 2]),
        ("", []),
        ("2(x)", []),
        ("all", []),
    ],
)
def test_numbers_of_each_node(text: str, counts: list[int]) -> None:
    """Tests Slurm's short form, and what is not of it."""
    assert per_node(text) == counts


def test_nodes_of_a_slurm_job() -> None:
    """Tests names in Slurm's own order, by the variable's new name or its old one."""
    env = {"SLURM_NODELIST": "n[3,1-2]", "SLURM_TASKS_PER_NODE": "2(x2),1"}
    hosts = slurm_hosts(env, "SLURM_TASKS_PER_NODE")
    assert [(host.name, host.slots) for host in hosts] == [
        ("n3", 2),
        ("n1", 2),
        ("n2", 1),
    ]
    newer = slurm_hosts({**env, "SLURM_JOB_NODELIST": "a,b,c"}, "SLURM_TASKS_PER_NODE")
    assert [host.name for host in newer] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({}, "SLURM_JOB_NODELIST is not set: start this inside the job"),
        ({"SLURM_JOB_NODELIST": "a,b"}, "COUNT='' does not fit the 2 nodes of a,b"),
        ({"SLURM_JOB_NODELIST": "a", "COUNT": "1(x2)"}, "does not fit the 1 nodes"),
    ],
)
def test_variables_that_do_not_fit(env: dict[str, str], reason: str) -> None:
    """Tests that what is missing, or of another job, is named."""
    with pytest.raises(LaunchError) as caught:
        slurm_hosts(env, "COUNT")
    assert reason in str(caught.value)


def test_whose_allocation_it_is() -> None:
    """Tests that a resource manager is refused by name unless it is known."""
    assert manager({"HOME": "/"}) == refuse_others({}, "Slurm") == ""
    assert manager({"LSB_JOBID": "1"}) == "LSF"
    assert refuse_others({"SLURM_JOBID": "1"}, "PBS", "Slurm") == "Slurm"
    with pytest.raises(LaunchError, match=r"a PBS allocation \(PBS_JOBID is set\)"):
        refuse_others({"PBS_JOBID": "1"}, "Slurm")
