from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import CloudcollError, LaunchError, UsageError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchPlan, LaunchRequest, parse_launch, plan_launch
from cloudcoll.launch.command_line import Syntax, scan_options
from cloudcoll.launch.openmpi import OpenMpi, read_table
from cloudcoll.launch.openmpi_options import ORTE, PRRTE
from cloudcoll.rankmap import RankMap

VERSION = "mpirun (Open MPI) 5.0.11\n"
FOLDER = Path("/run/job")
TAIL = "--output-proctable=/run/job/ranks app"


def answer() -> str:
    """Return what mpirun prints with --version."""
    return VERSION


def request_for(
    line: str,
    slots: Mapping[str, int | None] | None = None,
    env: Mapping[str, str] | None = None,
    version: str = VERSION,
) -> LaunchRequest:
    """Parse a command line whose hostfile gives `slots`."""
    hosts = {"a": 2, "b": 2, "c": 2} if slots is None else slots
    listed = tuple(Host(name, slots=count) for name, count in hosts.items())
    return OpenMpi(lambda path, _: listed).parse(
        line.split(), env or {}, lambda: version
    )


def plan_for(line: str, order: str, **options: object) -> LaunchPlan:
    """Plan a command line in `order`, one letter for each host."""
    request = request_for(line, **options)  # type: ignore[arg-type]
    rank_map = RankMap(tuple(order), tuple(1 for _ in order))
    return plan_launch(request, rank_map, directory=FOLDER)


def seq(hosts: str) -> dict[str, str]:
    return {"/run/job/hosts.seq": "".join(f"{host}\n" for host in hosts)}


@pytest.mark.parametrize(
    ("line", "options", "hosts", "binding"),
    [
        ("--hostfile F", "", "aaccbb", "core:if-supported"),
        ("-hostfile F", "", "aaccbb", "core:if-supported"),
        ("--machinefile F", "", "aaccbb", "core:if-supported"),
        ("--default-hostfile F", "", "aaccbb", "core:if-supported"),
        ("--hostfile=F -np 5", "-np 5", "aacbb", "core:if-supported"),
        ("-n 6 --hostfile F", "-n 6", "aaccbb", "core:if-supported"),
        ("-H a:1,b:2,c:1", "", "acbb", "core:if-supported"),
        ("--host a,b,c", "", "acb", "core:if-supported"),
        ("--hostfile F --map-by slot", "", "aaccbb", "numa:if-supported"),
        ("--hostfile F --map-by CORE", "", "aaccbb", "core:if-supported"),
        ("--hostfile F --map-by package", "", "aaccbb", "package:if-supported"),
        ("--hostfile F --map-by numa", "", "aaccbb", "numa:if-supported"),
        ("--hostfile F --map-by node", "", "acbacb", "numa:if-supported"),
        ("--hostfile F --map-by node -n 4", "-n 4", "acba", "numa:if-supported"),
        ("--hostfile F --bynode", "", "acbacb", "numa:if-supported"),
        (
            "--hostfile F --map-by node --rank-by slot",
            "",
            "aaccbb",
            "numa:if-supported",
        ),
        ("--hostfile F --rank-by node", "", "acbacb", "core:if-supported"),
        ("--hostfile F --map-by ppr:1:node", "", "acb", "numa:if-supported"),
        ("--hostfile F -N 1", "", "acb", "numa:if-supported"),
        ("--hostfile F --npernode 2", "", "aaccbb", "numa:if-supported"),
        ("--hostfile F --pernode", "", "acb", "numa:if-supported"),
        ("--hostfile F --bind-to none", "", "aaccbb", "none"),
        ("--hostfile F --bind-to socket", "", "aaccbb", "socket"),
        ("--hostfile F --bind-to-core", "", "aaccbb", "core"),
        (
            "--hostfile F --mca btl tcp,self",
            "--mca btl tcp,self",
            "aaccbb",
            "core:if-supported",
        ),
    ],
)
def test_command_line(line: str, options: str, hosts: str, binding: str) -> None:
    """Tests that each mapping option gives the exact command line and file."""
    plan = plan_for(f"mpirun {line} app", "acb")
    expected = f"mpirun {options} --hostfile /run/job/hosts.seq --map-by seq"
    assert list(plan.argv) == f"{expected} --bind-to {binding} {TAIL}".split()
    assert plan.files == seq(hosts)
    assert plan.placement == tuple(hosts)
    assert plan.table == ("/run/job/ranks", read_table)


def test_own_process_table() -> None:
    """Tests that a table the user asks for is not replaced by ours."""
    plan = plan_for("mpirun --output-proctable=T --hostfile F app", "acb")
    assert plan.argv[1] == "--output-proctable=T"
    assert sum("proctable" in word for word in plan.argv) == 1
    assert plan.table is None


def test_order_given_changes_nothing() -> None:
    """Tests that the order given leaves the command as typed, without files."""
    plan = plan_for("mpirun --hostfile F --map-by node app", "abc")
    assert plan == LaunchPlan(plan.argv, request=plan.request)
    assert " ".join(plan.argv) == "mpirun --hostfile F --map-by node app"


@given(data=st.data())
def test_whole_hosts_are_permuted(data: st.DataObject) -> None:
    """Tests that any order keeps every host's ranks together and their number."""
    slots = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=9))
    names = [f"h{number}" for number in range(len(slots))]
    ranks = data.draw(st.integers(1, sum(slots)))
    given_slots = dict(zip(names, slots, strict=True))
    request = request_for(f"mpirun -n {ranks} --hostfile F app", given_slots)
    order = data.draw(st.permutations(request.used))
    placement = request.place(order)
    assert len(placement) == ranks
    assert tuple(dict.fromkeys(placement)) == tuple(order)
    assert Counter(placement) == Counter(request.place(request.used))
    assert all(Counter(placement)[name] <= given_slots[name] for name in order)
    changes = sum(a != b for a, b in pairwise(placement))
    assert changes == len(order) - 1


@given(slots=st.lists(st.integers(1, 4), min_size=1, max_size=9), data=st.data())
def test_dealt_ranks_keep_their_hosts(slots: list[int], data: st.DataObject) -> None:
    """Tests that round robin gives each host the same ranks in any order."""
    names = [f"h{number}" for number in range(len(slots))]
    request = request_for(
        "mpirun --map-by node --hostfile F app", dict(zip(names, slots, strict=True))
    )
    placement = request.place(data.draw(st.permutations(names)))
    assert Counter(placement) == dict(zip(names, slots, strict=True))
    first = placement[: len(names)]
    assert sorted(first) == names


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({"PBS_JOBID": "7"}, "inside a PBS allocation"),
        ({"PRTE_MCA_rmaps_default_mapping_policy": "node"}, "rmaps_default"),
        ({"PRTE_MCA_hwloc_default_binding_policy": "core"}, "hwloc_default"),
        # By this name 5.0.11 does not read it, and binds.
        ({"OMPI_MCA_hwloc_default_binding_policy": "none"}, "hwloc_default"),
    ],
)
def test_environment_refusals(env: dict[str, str], reason: str) -> None:
    """Tests that an environment which decides the placement is respected."""
    with pytest.raises(LaunchError, match=reason):
        request_for("mpirun --hostfile F app", env=env)


@pytest.mark.parametrize(
    ("line", "binding"),
    [
        ("mpirun --hostfile F app", "none"),
        ("mpirun --hostfile F --map-by node app", "none"),
        ("mpirun --hostfile F --bind-to core app", "core"),
    ],
)
def test_ranks_that_the_environment_leaves_unbound(line: str, binding: str) -> None:
    """Tests that a setting which binds no rank is kept where no option is given."""
    env = {"PRTE_MCA_hwloc_default_binding_policy": "none"}
    assert request_for(line, env=env).binding == binding
    # Version 4's name of it is not looked at.
    other = {"OMPI_MCA_hwloc_base_binding_policy": "core"}
    assert request_for(line, env=env | other).binding == binding
    setting = "mpirun --prtemca hwloc_default_binding_policy NONE"
    assert request_for(line.replace("mpirun", setting)).binding == binding


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("mpirun (Open MPI) 3.1.6\nmore\n", "'mpirun (Open MPI) 3.1.6'"),
        ("", "'nothing'"),
    ],
)
def test_other_versions(version: str, said: str) -> None:
    """Tests that an mpirun that is not known here is named by what it says."""
    with pytest.raises(LaunchError, match=r"unknown launcher 'mpirun'") as caught:
        parse_launch(["mpirun", "app"], {}, lambda: version)
    assert f"which says {said} to --version" in str(caught.value).replace('"', "")


def test_slurm_allocation() -> None:
    """Tests that Slurm's nodes are the hosts where no list is given."""
    env = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-3],m",
        "SLURM_TASKS_PER_NODE": "2(x3),1",
    }
    request = request_for("mpirun app", env=env)
    assert request.source == "the Slurm allocation"
    assert request.used == ("n1", "n2", "n3", "m")
    assert request.counts == (2, 2, 2, 1)
    assert request_for("mpirun --hostfile F app", env=env).used == ("a", "b", "c")
    for broken in ({"SLURM_TASKS_PER_NODE": "2(x3)"}, {"SLURM_JOB_NODELIST": ""}):
        with pytest.raises(LaunchError, match="SLURM_"):
            request_for("mpirun app", env={**env, **broken})


def test_binding_that_an_older_version_loses() -> None:
    """Tests that several ranks on a host need a binding before 5.0.11."""
    old = "mpirun (Open MPI) 5.0.8\n"
    line = "mpirun --hostfile F --map-by slot {} app"
    with pytest.raises(LaunchError, match=r"5\.0\.8 can't keep .* add --bind-to"):
        request_for(line.format(""), version=old)
    assert request_for(line.format("--bind-to none"), version=old).binding == "none"
    first = "mpirun (Open MPI) 5.0.11\n"
    assert request_for(line.format(""), version=first).binding == "numa:if-supported"
    single = request_for(line.format(""), {"a": 1, "b": 1}, version=old)
    assert single.binding == "core:if-supported"


def test_default_hostfile_of_the_environment() -> None:
    """Tests that the default hostfile counts where no other list is given."""
    env = {"PRTE_MCA_prte_default_hostfile": "/etc/hosts.mpi"}
    assert request_for("mpirun app", env=env).source == "/etc/hosts.mpi"
    assert request_for("mpirun --hostfile F app", env=env).source == "F"


def test_slots_not_given() -> None:
    """Tests that hosts without slots are only taken where none are needed."""
    with pytest.raises(LaunchError, match=r"no slots for a: add slots=N"):
        request_for("mpirun --hostfile F -n 2 app", {"a": None, "b": None})
    request = request_for("mpirun --hostfile F -N 2 app", {"a": None, "b": None})
    assert request.counts == (2, 2)


def test_login_names_are_refused() -> None:
    """Tests that a hostfile with login names is left to mpirun."""
    launcher = OpenMpi(
        lambda path, _: (Host("a", slots=1, user="me"), Host("b", slots=1))
    )
    with pytest.raises(LaunchError, match="login name for a"):
        launcher.parse(["mpirun", "--hostfile", "F", "app"], {}, answer)


def test_real_hostfile(tmp_path: Path) -> None:
    """Tests that a hostfile is read, and a pipe is left for mpirun to read."""
    path = tmp_path / "hosts"
    path.write_text("# mine\nb slots=2\na slots=1\n")
    request = parse_launch(
        ["mpirun", "--hostfile", str(path), "app"], {}, lambda: VERSION
    )
    assert request.used == ("b", "a")
    assert request.slots == (2, 1)
    with pytest.raises(UsageError, match="cannot read the host list"):
        parse_launch(["mpirun", "--hostfile", f"{path}.no", "app"], {}, answer)
    with pytest.raises(LaunchError, match="not a regular file"):
        parse_launch(["mpirun", "--hostfile", "/dev/null", "app"], {}, answer)


def test_library_and_its_settings() -> None:
    """Tests that a job's parameters are found, the command line's over others."""
    line = "mpirun --hostfile F --mca coll_tuned_allreduce_algorithm 4 app"
    env = {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_allreduce_algorithm": "3",
    }
    request = request_for(line, env=env)
    assert request.library == "openmpi@5.0.11"
    assert request.settings == {
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_allreduce_algorithm": "4",
    }
    assert request_for("mpirun --hostfile F app").settings == {}


def test_ucc_may_sort_hosts() -> None:
    """Tests that who lets UCC run collectives is told that it may undo the order."""
    for value, told in (("0", False), ("1", True)):
        line = f"mpirun --hostfile F --mca coll_ucc_enable {value} app"
        said = plan_for(line, "acb").caution
        assert ("UCC_TL_UCP_RANKS_REORDERING=n" in said) == told


def test_unknown_launcher() -> None:
    """Tests that an unknown launcher is refused and the known ones named."""
    with pytest.raises(LaunchError, match=r"'make' \(known: Open MPI 5 \(mp"):
        parse_launch(["/usr/bin/make", "app"], {}, answer)


def test_a_slip_in_a_launchers_name() -> None:
    """Tests that a launcher spelled wrong is answered with the nearest one."""
    with pytest.raises(LaunchError, match=r"'srn' \(did you mean srun\? known: Op"):
        parse_launch(["srn", "app"], {}, answer)


@pytest.mark.parametrize("program", ["python", "/usr/bin/python3.11", "pypy3"])
def test_an_interpreter_is_no_launcher(program: str) -> None:
    """Tests that one process here is answered with what can be done, not with MPI."""
    with pytest.raises(LaunchError, match="starts one process, on this host") as caught:
        parse_launch([program, "train.py"], {}, answer)
    said = str(caught.value)
    assert "Open MPI" not in said
    assert "cloudcoll exec --map MAP" in said
    assert "cloudcoll export MAP --format lightgbm" in said


def test_dealt_slots_for_the_solver() -> None:
    """Tests that dealt ranks are solved as one rank per host."""
    assert request_for("mpirun --hostfile F --map-by node app").slots == (1, 1, 1)
    assert request_for("mpirun --hostfile F app").slots == (2, 2, 2)
    assert request_for("mpirun --hostfile F -n 3 app").slots == (2, 1)


def test_process_table() -> None:
    """Tests that rows of the process table are read and other lines are not."""
    text = (
        "(rank, host, exe, pid) = (0, vm-01, /a, b (c), 12)\n"
        "(rank, host, exe, pid) = (1, vm-02, app, 13)\n"
        "(rank, host, exe, pid) = (2, vm"
    )
    assert read_table(text) == {0: "vm-01", 1: "vm-02"}


def test_option_tables() -> None:
    """Tests that no option stands in both tables."""
    assert not PRRTE.flags & PRRTE.valued
    assert not ORTE.flags & ORTE.valued


@pytest.mark.parametrize("syntax", [PRRTE, ORTE])
@given(words=st.lists(st.text(max_size=12), min_size=1, max_size=8))
def test_any_words(syntax: Syntax, words: list[str]) -> None:
    """Tests that any command line is understood or refused, never a crash."""
    argv = ["mpirun", *words]
    try:
        options, start = scan_options(argv, syntax)
    except LaunchError:
        return
    assert 1 <= start <= len(argv)
    assert [option.end for option in options][-1:] in ([], [start])


@given(
    st.lists(
        st.sampled_from(sorted(PRRTE.flags | PRRTE.valued | {"mca", "np"})), max_size=5
    )
)
def test_any_known_options(names: list[str]) -> None:
    """Tests that known options are refused or planned around."""
    words = [f"--{name}{' 1' * (name not in PRRTE.flags)}" for name in names]
    line = " ".join(words).replace("--mca 1", "--mca k v")
    try:
        request = request_for(f"mpirun --host a,b {line} app")
    except CloudcollError:
        return
    assert request.argv[request.start] == "app"


@pytest.mark.parametrize(
    ("line", "slots", "cyclic"),
    [
        ("--hostfile F --map-by node app", 2, True),
        ("--hostfile F --map-by slot app", 2, False),
        ("--hostfile F app", 2, False),
        # One rank a host is the same either way, and then all can be asked for.
        ("--hostfile F --map-by node app", 1, False),
        ("--hostfile F --map-by node -n 3 app", 2, False),
    ],
)
def test_whether_ranks_are_dealt(line: str, slots: int, cyclic: bool) -> None:
    """Tests that ranks in turn over hosts are told from ranks host by host."""
    request = request_for(f"mpirun {line}", dict.fromkeys("abc", slots))
    assert request.cyclic == cyclic
