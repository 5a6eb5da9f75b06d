"""Random faults around ``cloudcoll run`` with real launchers on the hosts of a lab.

Open MPI 5 and, where they are in .mpi, Open MPI 4.1 and MPICH start four ranks, each
of which leaves a mark when it begins. Faults: signals at some moment, to ``run`` or to
its group, an ignored SIGCHLD, a full disk, maps of other hosts or none, and an mpirun
that refuses the order. No rank may begin twice; without a signal each has to begin
once, and exit code and output have to be those of the command without us. Ends in 1 if
a case went wrong. Needs cloudcoll[mpi]:

    python tests/soak/run_faults_lab.py --cases 300
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from cloudcoll import lab as labs
from cloudcoll.rankmap import RankMap

ROOT = Path(__file__).parents[2]
NAME = "run-faults"
HANG_S = 60.0
"""A job of a second that takes longer hangs."""

# Open MPI 5.0.11 now and then waits for ever for programs that end at once.
RANK = (
    "r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; echo $r >>$MARKS; echo out $r; "
    "sleep 0.5; [ $r != 2 ] || exit $CODE"
)
# The group is that of `run` alone, as a shell with job control makes it.
START = (
    'setsid "$@" & p=$!; [ -z "$SIGNAL" ] || '
    '{ sleep "$AFTER"; kill -"$SIGNAL" -- "$GROUP$p"; }; wait $p'
)
REFUSING = """#!/bin/sh
for word; do [ "$word" != seq ] || word=bogus; set -- "$@" "$word"; shift; done
exec {mpirun} "$@"
"""


@dataclass
class Case:
    """A job and its faults."""

    number: int
    launcher: str
    options: list[str]
    env: dict[str, str]
    faults: list[str] = field(default_factory=list)


def launchers(folder: Path) -> dict[str, tuple[str, list[str]]]:
    """Return name -> program and options, of those that are here."""
    own = str(Path(sys.executable).with_name("mpirun"))
    found: dict[str, tuple[str, list[str]]] = {"Open MPI 5": (own, [])}
    refusing = folder / "refusing" / "mpirun"
    refusing.parent.mkdir()
    refusing.write_text(REFUSING.format(mpirun=own))
    refusing.chmod(0o755)
    found["Open MPI 5 that refuses"] = (str(refusing), [])
    for prefix in sorted((ROOT / ".mpi").glob("*")):
        if prefix.name.startswith(("openmpi", "mpich")):
            found[prefix.name] = (str(prefix / "bin" / "mpiexec"), [])
    return found


def make(number: int, names: list[str], folder: Path) -> Case:
    """Return a case of this number."""
    source = random.Random(number)
    orders = {
        "map": [names[0], *names[:0:-1]],
        "other hosts": [names[0], "nobody", *names[2:]],
        "another rank 0": names[::-1],
    }
    kind = source.choice(("map", "map", "map", "other hosts", "another rank 0", "none"))
    options = ["--no-probe"]
    if kind != "none":
        path = folder / "map"
        RankMap(tuple(orders[kind]), (1,) * len(names)).save(path)
        options = ["--map", str(path)]
    options += source.choice(([], [], ["--inject", "shim"]))
    case = Case(number, "", options, {"CODE": str(source.choice((0, 0, 1, 3)))})
    case.env["SIGNAL"] = source.choice(("", "", "TERM", "INT"))
    case.env["GROUP"] = source.choice(("", "-"))
    case.env["AFTER"] = f"{source.uniform(0, 1.5):.2f}"
    if case.env["SIGNAL"]:
        target = "group" if case.env["GROUP"] else "process"
        case.faults.append(f"{case.env['SIGNAL']} to the {target}")
    if kind != "map":
        case.faults.append(f"map: {kind}")
    if source.random() < 0.25:
        case.faults.append("ignored SIGCHLD")
    if source.random() < 0.25:
        case.faults.append("full disk")
        case.env["TMPDIR"] = str(folder.parent / "full")
    return case


def start(
    lab: labs.Lab, case: Case, argv: list[str], marks: Path
) -> tuple[int | None, list[str], str, str]:
    """Run a command on the head; return code, ranks that began, output and words."""
    marks.write_text("")
    prefix = ["sh", "-c", START, "sh"]
    if "ignored SIGCHLD" in case.faults:
        prefix += [sys.executable, "-c", IGNORING]
    command, env = labs.exec_argv(lab, labs.HEAD, [*prefix, *argv])
    more = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with subprocess.Popen(
        command,
        env={**env, **more, **case.env, "MARKS": str(marks)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return None, marks.read_text().split(), "", ""
    return process.returncode, marks.read_text().split(), out, err


IGNORING = (
    "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def wrong(case: Case, ended: tuple[int | None, list[str], str, str], code: int) -> str:
    """Return what went wrong, empty if nothing."""
    status, began, out, _ = ended
    if status is None:
        return "hangs"
    if len(set(began)) < len(began):
        return f"ranks began twice: {' '.join(began)}"
    if case.env["SIGNAL"]:
        return ""
    if sorted(began) != ["0", "1", "2", "3"]:
        return f"ranks that began: {' '.join(began) or 'none'}"
    if status != code:
        return f"exit code {status} in place of {code}"
    # An error ends the others, which may have printed or not.
    expected = [f"out {rank}" for rank in range(4)]
    if code == 0 and sorted(out.splitlines()) != expected:
        return f"output {out!r}"
    return ""


def campaign(cases: int, first: int) -> int:
    """Run cases; say what went wrong, and return how often."""
    failed, seen = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="run-faults-") as scratch:
        os.environ["CLOUDCOLL_HOME"] = f"{scratch}/home"
        folder = Path(scratch)
        (folder / "full").symlink_to("/dev/full")  # no folder can be made in it
        found = launchers(folder)
        lab = labs.up(
            labs.quick((2, 2), nic=50e6, uplink=50e6, seed=1, preset="tuned"), NAME
        )
        try:
            names = [host.name for host in lab.hosts]
            hosts = folder / "hosts"
            hosts.write_text("".join(f"{name}:1\n" for name in names))
            slots = folder / "slots"
            slots.write_text("".join(f"{name} slots=1\n" for name in names))
            codes: dict[tuple[str, str], int] = {}
            for number in range(first, first + cases):
                inside = folder / "case"
                inside.mkdir(exist_ok=True)
                case = make(number, names, inside)
                case.launcher = random.Random(number).choice(list(found))
                program, options = found[case.launcher]
                listed = ["-f", str(hosts)]
                if "mpich" not in case.launcher:
                    listed = ["--hostfile", str(slots)]
                job = [program, *options, *listed, "sh", "-c", RANK]
                key = case.launcher, case.env["CODE"]
                if key not in codes:
                    plain = Case(0, "", [], {"CODE": key[1], "SIGNAL": ""})
                    ended = start(lab, plain, job, inside / "marks")
                    assert ended[0] is not None, f"{key} hangs without us"
                    codes[key] = ended[0]
                prefix = [sys.executable, "-m", "cloudcoll.cli", "run"]
                argv = [*prefix, *case.options, *job]
                ended = start(lab, case, argv, inside / "marks")
                seen[case.launcher] += 1
                if fault := wrong(case, ended, codes[key]):
                    failed[fault.split(" in ")[0]] += 1
                    print(f"case {number}, {case.launcher}: {fault}; {case.faults}")
                    print(f"  {' '.join(argv)}\n  {ended[3][-1500:]}", flush=True)
        finally:
            labs.down(NAME)
    print(f"{cases} cases: {dict(seen)}; without us codes are {codes}")
    print(f"went wrong: {dict(failed) or 'none'}")
    return failed.total()


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    return 1 if campaign(options.cases, options.first) else 0


if __name__ == "__main__":
    sys.exit(main())
