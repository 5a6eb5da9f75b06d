from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from prefixed import run

from cloudcoll.cli.run import describe
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchPlan
from cloudcoll.launch.shim import NCCL
from cloudcoll.measured.merge import own_boot_id
from cloudcoll.measured.snapshot import NetworkSnapshot, latest_path
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.rankmap import RankMap
from cloudcoll.tuning import TunedRange, Tuning

ROOT = Path(__file__).parents[2]
NAMES = ("a", "b", "c", "d")
LAUNCHER = (
    '#!/bin/sh\n[ "$*" = --version ] && echo "mpirun (Open MPI) 5.0.11" || echo "$@"\n'
)


@pytest.fixture
def launcher(tmp_path: Path) -> str:
    """Write a program that answers as Open MPI 5 and prints its words."""
    path = tmp_path / "mpirun"
    path.write_text(LAUNCHER)
    path.chmod(0o755)
    (tmp_path / "hosts").write_text("".join(f"{name} slots=1\n" for name in NAMES))
    return str(path)


def snapshot(created: float) -> NetworkSnapshot:
    """Return a snapshot in which a and c share an uplink, and so do b and d."""
    racks = [
        Node(rack, tuple(Node(name, (), 50e6, 50e6) for name in rack), 50e6, 50e6)
        for rack in ("ac", "bd")
    ]
    fabric = Fabric(Node("core", tuple(racks)))
    return NetworkSnapshot(tuple(map(Host, NAMES)), fabric=fabric, created=created)


def test_unknown_launcher(tmp_path: Path) -> None:
    """Tests that an unknown launcher runs unchanged, its options its own."""
    code, out, err = run(tmp_path, "echo", "--strict", "-v")
    assert (code, out) == (0, "--strict -v\n")
    assert err.startswith(
        "cloudcoll: unknown launcher 'echo' (known: Open MPI 5 (mpirun"
    )
    assert err.count("\n") == 1
    code, out, err = run(tmp_path, "--strict", "echo", "hi")
    assert (code, out) == (125, "")
    assert "unknown launcher 'echo'" in err


def test_the_job_takes_our_process(tmp_path: Path) -> None:
    """Tests that a job that needs nothing more of us is its starter's own child."""
    code, out, _ = run(tmp_path, "sh", "-c", "echo $PPID")
    assert (code, out) == (0, f"{os.getpid()}\n")


def test_usage(tmp_path: Path) -> None:
    """Tests that our own options are checked before anything is started."""
    for argv in (["--bogus", "echo"], [], ["--max-age", "soon", "echo"]):
        code, out, _ = run(tmp_path, *argv)
        assert (code, out) == (125, "")
    assert run(tmp_path, "no-such-program")[0] == 127


def test_a_launcher_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that one line says so, and what --strict and a dry run say instead."""
    (tmp_path / "hosts").write_text("a\nb\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = "cloudcoll: cannot run mpirun: No such file or directory (it is not on"
    job = ("mpirun", "--hostfile", "hosts", "app")
    assert run(tmp_path, *job) == (127, "", f"{missing} the PATH)\n")
    code, _, err = run(tmp_path, "--profile", "calls", *job)
    assert (code, err.count("cannot run")) == (127, 1)
    code, _, err = run(tmp_path, "--strict", *job)
    assert code == 125
    assert err.startswith(missing)
    code, out, err = run(tmp_path, "--dry-run", *job)
    assert (code, out) == (0, "mpirun --hostfile hosts app\n")
    assert "running the command unchanged" in err


def test_dry_run(tmp_path: Path, launcher: str) -> None:
    """Tests that --dry-run prints the command, its file and the figures."""
    rank_map = RankMap(("a", "c", "b", "d"), (1,) * 4, predicted={"given": 2.5})
    rank_map.save(tmp_path / "map.json")
    code, out, err = run(
        tmp_path,
        *("--dry-run", "--map", "map.json", launcher, "--hostfile", "hosts", "app"),
    )
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first.startswith(f"{launcher} --hostfile ")
    assert " --map-by seq --bind-to core:if-supported " in first
    assert [line for line in rest if line.startswith("#   ")] == [
        f"#   {name}" for name in "acbd"
    ]
    assert rest[-2:] == ["# order: a c b d", "# predicted, given: 2.5 s"]


def test_dry_run_of_a_plan_with_variables_and_a_file() -> None:
    """Tests that variables stand before the command, as for a shell, files below it."""
    settings, files = {"A": "1", "B": "x y"}, {"/tmp/order": "vm-2\nvm-1\n"}
    plan = LaunchPlan(("srun", "a b"), env=settings, files=files)
    assert list(describe(plan, None)) == [
        "A=1 B='x y' srun 'a b'",
        "# /tmp/order:",
        "#   vm-2",
        "#   vm-1",
    ]


def test_damaged_map(tmp_path: Path, launcher: str) -> None:
    """Tests that a damaged map is told and the command runs as typed."""
    (tmp_path / "map.json").write_text("{")
    command = ["--map", "map.json", launcher, "--hostfile", "hosts", "app"]
    code, out, err = run(tmp_path, *command)
    assert (code, out) == (0, "--hostfile hosts app\n")
    assert "not JSON" in err
    assert err.count("\n") == 1


def test_fresh_snapshot_is_used_and_remembered(tmp_path: Path, launcher: str) -> None:
    """Tests that the second run takes the first one's answer, without NumPy."""
    measured = snapshot(time.time())
    measured.save(latest_path(measured.hosts))
    command = ["--no-probe", "-v", launcher, "--hostfile", "hosts", "app"]
    first = run(tmp_path, *command)
    chosen, tune, order, gap, summary = first[2].splitlines()
    assert chosen.startswith("cloudcoll: solved for allreduce by rabenseifner (Open")
    assert re.fullmatch(
        r"cloudcoll: --tune chooses algorithms, too: allreduce of 16 MiB should take "
        r"[\d.]+ m?s, not [\d.]+ m?s \([\d.]+ times as fast\)",
        tune,
    )
    assert order == "cloudcoll: order: a c b d"
    assert gap == (
        "cloudcoll: no order is predicted to be faster than this, given these "
        "groups of hosts"
    )
    # This launcher starts no ranks that could say where they are.
    assert re.fullmatch(
        r"cloudcoll: order a c b d: allreduce of 16 MiB should take [\d.]+ s "
        r"\([\d.]+ m?s to [\d.]+ s\), not "
        r"[\d.]+ s \([\d.]+ times as fast as in the order given\); where the ranks "
        "run is not known",
        summary,
    )
    code, out, err = run(tmp_path, *command, python="-X importtime")
    assert (code, out.count("--map-by seq")) == (0, 1)
    assert "cloudcoll: order: a c b d\n" in err
    assert f"{tune}\n" in err
    assert "cloudcoll.launch.execute" in err
    assert "numpy" not in err


def test_algorithms_are_chosen_without_a_map(tmp_path: Path, launcher: str) -> None:
    """Tests that --tune asks the model, and remembers what it says."""
    measured = snapshot(time.time())
    measured.save(latest_path(measured.hosts))
    job = [launcher, "--hostfile", "hosts", "app"]
    for python in ("", "-X importtime"):
        code, out, err = run(
            tmp_path, "--no-probe", "--dry-run", "--tune", *job, python=python
        )
        assert code == 0
        assert "# algorithms for openmpi@5.0.11, 4 ranks:\n" in out
        assert re.search(r"#   allreduce from \S+ [KM]iB +ring +16 MiB: ", out)
        assert "CLOUDCOLL_TUNED=4,allreduce 0 -,allreduce " in out
        assert "numpy" not in err
        assert "--tune" not in err
    # The order alone is another question, with another answer.
    assert "CLOUDCOLL_TUNED" not in run(tmp_path, "--no-probe", "--dry-run", *job)[1]
    code, _, err = run(tmp_path, "--no-probe", "--tune", "--bytes", "1K", *job)
    assert code == 0
    assert "--tune: no algorithms for this order; the library's own run\n" in err
    code, _, err = run(tmp_path, "--no-probe", "--tune", "--library", "gloo", *job)
    assert code == 0
    assert "--tune: nothing is known that tells gloo which algorithm to run" in err


@pytest.mark.parametrize(
    ("days", "said", "reordered"),
    [(0.5, "12 h old: probe again", True), (8, "8 d old: probe again", False)],
)
def test_old_snapshots(
    tmp_path: Path, launcher: str, days: float, said: str, reordered: bool
) -> None:
    """Tests that an old snapshot is used with a warning, a very old one never."""
    measured = snapshot(time.time() - days * 86400)
    path = latest_path(measured.hosts)
    measured.save(path)
    os.utime(path, (measured.created, measured.created))
    code, out, err = run(tmp_path, "--no-probe", launcher, "--hostfile", "hosts", "app")
    assert code == 0
    assert said in err
    assert ("--map-by seq" in out) == reordered


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_the_snapshot(tmp_path: Path, launcher: str) -> None:
    """Tests that the job does not wait for somebody to write into it."""
    path = latest_path(snapshot(0.0).hosts)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    code, out, err = run(tmp_path, "--no-probe", launcher, "--hostfile", "hosts", "app")
    assert (code, out) == (0, "--hostfile hosts app\n")
    assert "no snapshot of the 4 hosts" in err


def test_a_host_that_could_not_be_measured(tmp_path: Path, launcher: str) -> None:
    """Tests that it is named with the reason, and the others are ordered."""
    failed = {"d": "ssh: Could not resolve hostname d"}
    measured = replace(snapshot(time.time()), failed=failed)
    measured.save(latest_path(measured.hosts))
    _, out, err = run(tmp_path, "--no-probe", launcher, "--hostfile", "hosts", "app")
    assert "--map-by seq" in out
    assert err.splitlines()[0] == (
        "cloudcoll: d could not be measured (d: ssh: Could not resolve hostname d): "
        "the place in the order is a guess"
    )


def test_a_host_that_was_rebooted(
    tmp_path: Path, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that an order from before this host's last start is not followed."""
    monkeypatch.setenv("CLOUDCOLL_HOST", "b")
    command = [launcher, "--hostfile", "hosts", "app"]
    boots = {"a": "other", "b": own_boot_id(), "c": ""}
    facts = {name: {"boot_id": boot} for name, boot in boots.items()}
    measured = replace(snapshot(time.time()), metadata={"agents": facts})
    path = latest_path(measured.hosts)
    measured.save(path)
    assert "--map-by seq" in run(tmp_path, "--no-probe", *command)[1]
    facts["b"]["boot_id"] = "another"
    measured.save(path)
    for argv in (["--no-probe"], ["--snapshot", str(path)]):
        code, out, err = run(tmp_path, *argv, *command)
        assert (code, out) == (0, "--hostfile hosts app\n")
        assert f"{path}: b was rebooted since it was measured: probe again" in err
    assert (
        "b was rebooted since it was measured: probing 4" in run(tmp_path, *command)[2]
    )


def test_what_is_remembered_from_before_a_boot(
    tmp_path: Path, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that the snapshot is read again if this machine was started since."""
    with open("/proc/uptime") as file:
        uptime = float(file.read().split()[0])
    measured = snapshot(time.time())
    path = latest_path(measured.hosts)
    measured.save(path)
    argv = ["--no-probe", "--max-age", "7d", launcher, "--hostfile", "hosts", "app"]
    run(tmp_path, *argv)
    for ago, read in ((0.0, False), (uptime + 60.0, True)):
        os.utime(path, (time.time() - ago,) * 2)
        err = run(tmp_path, *argv, python="-X importtime")[2]
        assert ("numpy" in err) == read


def test_damaged_snapshot(tmp_path: Path, launcher: str) -> None:
    """Tests that a damaged snapshot is told, and the command runs as typed."""
    measured = snapshot(time.time())
    path = latest_path(measured.hosts)
    measured.save(path)
    path.write_bytes(path.read_bytes()[:-3])
    code, out, err = run(tmp_path, "--no-probe", launcher, "--hostfile", "hosts", "app")
    assert (code, out) == (0, "--hostfile hosts app\n")
    assert "truncated" in err


def test_one_host(tmp_path: Path, launcher: str) -> None:
    """Tests that a job with nothing to reorder is left alone, without a word."""
    for hosts in ("a:4", "a:4,b:4"):
        code, out, err = run(tmp_path, launcher, "--host", hosts, "app")
        assert (code, out, err) == (0, f"--host {hosts} app\n", "")
    code, _, err = run(tmp_path, "--free-rank0", launcher, "--host", "a:4", "app")
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("options", "hosts"),
    [([], "a,b,c"), (["--free-rank0"], "a,b"), (["--pin", "0=b"], "a,b")],
)
def test_few_hosts(
    tmp_path: Path, launcher: str, options: list[str], hosts: str
) -> None:
    """Tests that two may change places where the first one may, else three."""
    job = [launcher, "--host", hosts, "app"]
    code, out, err = run(tmp_path, "--no-probe", *options, *job)
    assert (code, out) == (0, f"--host {hosts} app\n")
    assert f"no snapshot of the {len(hosts.split(','))} hosts" in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--bytes", "4K"], "by recursive_doubling (Open MPI 5.0.11: coll/tuned 3, 4"),
        (["--collective", "allgather"], "by recursive_doubling (Open MPI 5.0.11"),
        (["--library", "nccl"], "by nccl_ring (NCCL 2.30: its tuner's figures"),
        (["--library", "openmpi@4.1"], "by rabenseifner (Open MPI 4.1: "),
    ],
)
def test_the_librarys_own_algorithm(
    tmp_path: Path, launcher: str, argv: list[str], said: str
) -> None:
    """Tests that it is solved for what the library does, and that this is said."""
    measured = snapshot(time.time())
    measured.save(latest_path(measured.hosts))
    command = ["--no-probe", *argv, launcher, "--hostfile", "hosts", "app"]
    code, _, err = run(tmp_path, *command)
    assert code == 0
    assert said in err.splitlines()[0]


def test_a_map_without_algorithms_is_told(tmp_path: Path, launcher: str) -> None:
    """Tests that --tune with such a map says what makes one that has them."""
    RankMap(tuple("acbd"), (1,) * 4).save(tmp_path / "map.json")
    command = ["--tune", "--map", "map.json", launcher, "--hostfile", "hosts", "app"]
    code, _, err = run(tmp_path, *command)
    assert code == 0
    assert "--tune: no algorithms for this order (see 'cloudcoll tune'); " in err


@pytest.mark.parametrize("tune", [(), ("--tune",)])
def test_seconds_of_algorithms_that_do_not_run_are_marked(
    tmp_path: Path, launcher: str, tune: tuple[str, ...]
) -> None:
    """Tests a tuned map without --tune, and with it for another library's job."""
    chosen = TunedRange("allreduce", 0, "mpich_reduce_scatter_allgather")
    tuning = Tuning("mpich@5.0.2", len(NAMES), 1, (chosen,))
    predicted = {"given": 2.0, "cloudcoll": 1.0}
    order, slots = ("a", "c", "b", "d"), (1,) * len(NAMES)
    path = tmp_path / "map.json"
    RankMap(order, slots, predicted=predicted, tuning=tuning).save(path)
    command = [*tune, "--map", str(path), launcher, "--hostfile", "hosts", "app"]
    code, _, err = run(tmp_path, *command)
    assert code == 0
    assert (
        "should take 1 s, not 2 s (2 times as fast as in the order given); that is "
        "predicted for the map's algorithms, which do not run" in err
    )


@pytest.mark.parametrize(
    ("solved_for", "said"),
    [
        ("mpich", "; that is predicted for a job that sends by MPICH; where"),
        ("later", "; that is predicted for a job that sends by later; where"),
        ("openmpi", "in the order given); where"),
        ("", "in the order given); where"),
    ],
)
def test_seconds_of_another_librarys_map_are_marked(
    tmp_path: Path, launcher: str, solved_for: str, said: str
) -> None:
    schedule = {"collective": "allreduce", "run_by": solved_for}
    order, slots = ("a", "c", "b", "d"), (1,) * len(NAMES)
    predicted = {"given": 2.0, "cloudcoll": 1.0}
    path = tmp_path / "map.json"
    RankMap(order, slots, schedule=schedule, predicted=predicted).save(path)
    command = ["--map", str(path), launcher, "--hostfile", "hosts", "app"]
    code, _, err = run(tmp_path, *command)
    assert code == 0
    assert said in err


def test_a_forced_algorithm_is_the_jobs_own(tmp_path: Path, launcher: str) -> None:
    """Tests that MCA parameters of the command line decide, --algorithm over them."""
    measured = snapshot(time.time())
    measured.save(latest_path(measured.hosts))
    job = [launcher, "--mca", "coll_tuned_use_dynamic_rules", "1"]
    job += ["--mca", "coll_tuned_allreduce_algorithm", "4"]
    job += ["--hostfile", "hosts", "app"]
    assert (
        "by ring (Open MPI 5.0.11: coll_tuned" in run(tmp_path, "--no-probe", *job)[2]
    )
    assert "solved" not in run(tmp_path, "--no-probe", "--algorithm", "ring", *job)[2]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--algorithm", "rign"], "allreduce algorithm 'rign' (did you mean ring? "),
        (["--library", "glooo"], "unknown library 'glooo' (did you mean gloo? "),
        (["--library", "glooo", "--algorithm", "ring"], "library 'glooo'"),
        (["--collective", "alreduce"], "'alreduce' (did you mean allreduce or "),
        (["--workload", "ddpp"], "no workload 'ddpp': neither a file nor ready-made"),
        (["--parallel", "tpp=4"], "tpp"),
        (["--map", "map.jsn"], "--map map.jsn: there is no such file (did you mean "),
        (["--snapshot", "no.snap"], "--snapshot no.snap: there is no such file (meas"),
        (["--tune", "--take"], "--tune chooses order and algorithms: leave out"),
    ],
)
@pytest.mark.parametrize("job", ["echo", "mpirun"])
def test_a_wrong_word_of_ours_starts_nothing(
    tmp_path: Path, launcher: str, argv: list[str], said: str, job: str
) -> None:
    """Tests that it ends in 125 with the nearest name, whatever the launcher."""
    (tmp_path / "map.json").write_text("{}")
    program = launcher if job == "mpirun" else job
    code, out, err = run(tmp_path, *argv, program, "--hostfile", "hosts", "app")
    assert (code, out) == (125, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_launcher_that_refuses_the_order(tmp_path: Path, launcher: str) -> None:
    """Tests that the command as typed follows one that has started no rank, once."""
    (tmp_path / "map.json").write_text(RankMap(tuple("acbd"), (1,) * 4).to_json())
    ran = tmp_path / "ran"
    Path(launcher).write_text(
        '#!/bin/sh\n[ "$*" = --version ] && echo "mpirun (Open MPI) 5.0.11" && exit\n'
        'case "$*" in *"--map-by seq"*) exit 213;; esac\n'
        f'echo "$@" >> {ran}; exit 3\n'
    )
    command = ["--map", "map.json", launcher, "--hostfile", "hosts", "app"]
    code, _, err = run(tmp_path, *command)
    assert (code, ran.read_text()) == (3, "--hostfile hosts app\n")
    assert err.splitlines()[-1] == (
        "cloudcoll: mpirun ended with 213: it can't place ranks in this order and has "
        "started none; running the command unchanged"
    )
    code, _, err = run(tmp_path, "--strict", *command)
    assert (code, ran.read_text()) == (125, "--hostfile hosts app\n")


@pytest.mark.parametrize(
    ("debug", "strict", "code", "out"),
    [("", [], 0, "hi\n"), ("", ["--strict"], 125, ""), ("1", [], 1, "")],
)
def test_a_bug_of_ours(debug: str, strict: list[str], code: int, out: str) -> None:
    """Tests that the job runs as typed and the bug is told, with a trace if asked."""
    broken = (
        "import sys; from cloudcoll.cli import main; from cloudcoll.work import start; "
        "start.parse_launch = None; "
        "sys.exit(main())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", broken, "run", *strict, "echo", "hi"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CLOUDCOLL_DEBUG": debug},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (code, out)
    assert ("Traceback" in ended.stderr) == bool(debug)
    said = "cloudcoll: unexpected TypeError: 'NoneType' object is not callable (see "
    assert (said in ended.stderr) == (not debug)


def test_a_command_too_long_in_order(tmp_path: Path) -> None:
    """Tests that what execve(2) refuses with more words runs without them."""
    # One word may have 128 KiB; the variable with the order is such a word.
    name = "x" * 240
    names = [f"{name}{number}" for number in range(600)]
    RankMap(tuple(names), (1,) * 600).save(tmp_path / "long")
    code, out, err = run(tmp_path, "--map", "long", "echo", "hi")
    assert (code, out) == (0, "hi\n")
    assert "cannot run echo: Argument list too long; running the command unch" in err


def test_where_the_order_takes_effect(tmp_path: Path, launcher: str) -> None:
    """Tests that the launcher places ranks, or the shim, or nobody."""
    RankMap(tuple("acbd"), (1,) * 4).save(tmp_path / "map")
    RankMap(tuple("cabd"), (1,) * 4).save(tmp_path / "other")
    argv = ["--map", "map", "--dry-run", launcher, "--hostfile", "hosts", "app"]
    commands = {
        inject: run(tmp_path, "--inject", inject, *argv)[1].splitlines()[0]
        for inject in ("auto", "launcher", "shim", "none")
    }
    assert "--map-by seq" in commands["auto"]
    assert "--map-by seq" in commands["launcher"]
    assert commands["shim"].startswith(f"{launcher} --hostfile hosts /bin/sh -c ")
    assert " CLOUDCOLL_SHIM_ORDER=a,c,b,d " in commands["shim"]
    assert commands["none"] == f"{launcher} --hostfile hosts app"
    # A map that moves rank 0 is not for the launcher; inside MPI no rank moves.
    moved = ["--map", "other", *argv[2:]]
    _, out, err = run(tmp_path, "--inject", "launcher", *moved)
    assert out.splitlines()[0] == f"{launcher} --hostfile hosts app"
    assert "moves rank 0" in err
    _, out, err = run(tmp_path, *moved)
    assert " CLOUDCOLL_SHIM_ORDER=c,a,b,d " in out
    assert err.endswith("; reordering inside MPI instead\n")


def test_inside_nccl(tmp_path: Path, launcher: str) -> None:
    """Tests that NCCL's shim gets the order and where to call, as MPI's does."""
    RankMap(tuple("acbd"), (1,) * 4).save(tmp_path / "map")
    argv = ["--map", "map", "--dry-run", launcher, "--hostfile", "hosts", "app"]
    _, out, _ = run(tmp_path, "--inject", "shim", "--library", "nccl", *argv)
    assert "/nccl/preload CLOUDCOLL_SHIM_ORDER=a,c,b,d " in out
    assert " 'CLOUDCOLL_SHIM_ROLL=" in out


def test_a_wrapper_gets_the_order_in_variables(tmp_path: Path) -> None:
    """Tests that a command nobody can read starts with the variables set."""
    RankMap(tuple("cab"), (1,) * 3).save(tmp_path / "map")
    show = ["--map", "map", "printenv", "CLOUDCOLL_SHIM_ORDER"]
    for inject, name in (("shim", ""), ("auto", "unknown launcher 'printenv'")):
        code, out, err = run(tmp_path, "--inject", inject, *show)
        assert (code, out) == (0, "c,a,b\n"), err
        assert name in err
    assert run(tmp_path, "--inject", "launcher", *show)[0] == 1
    show = ["--library", "nccl", "--map", "map", "printenv", "LD_PRELOAD"]
    _, out, err = run(tmp_path, *show)
    assert out.startswith(f"{NCCL}")
    assert "inside NCCL, if variables reach" in err


def test_a_wrapper_gets_no_algorithms(tmp_path: Path) -> None:
    """Tests that --tune says so for a command nobody can read, and --strict ends."""
    chosen = TunedRange("allreduce", 0, "ring")
    tuning = Tuning("openmpi@5.0.11", 3, 1, (chosen,))
    RankMap(tuple("cab"), (1,) * 3, tuning=tuning).save(tmp_path / "map")
    show = ["--tune", "--map", "map", "printenv", "CLOUDCOLL_SHIM_ORDER"]
    said = "--tune: no algorithms are told to a job whose launch could not be read"
    code, out, err = run(tmp_path, *show)
    assert (code, out) == (0, "c,a,b\n")
    assert f"cloudcoll: {said}\n" in err
    code, out, err = run(tmp_path, "--strict", *show)
    assert (code, out) == (125, "")
    assert f"cloudcoll: {said}; not started because of --strict\n" in err
