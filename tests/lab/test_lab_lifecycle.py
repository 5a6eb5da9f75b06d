from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from needs import ROOT as AS_ROOT
from needs import WIRES

import cloudcoll.lab
from cloudcoll import lab as labs
from cloudcoll.errors import CloudcollError, UsageError
from cloudcoll.files import state_dir
from cloudcoll.lab.state import kill_holder, load, locked, start_time

ROOT = Path(__file__).parents[2]
SMALL = labs.quick((2, 1), 50e6, 50e6, rtt=300e-6)
Start = Callable[[labs.LabSpec], labs.Lab]


def outside() -> dict[str, object]:
    """Return what of this machine a lab could have touched."""
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True)
    return {
        "links": [line.split()[0] for line in links.stdout.splitlines()],
        "mounts": Path("/proc/self/mountinfo").read_text(),
        "hostname": os.uname().nodename,
        "hosts": Path("/etc/hosts").read_text(),
        "namespaces": {k: os.readlink(f"/proc/self/ns/{k}") for k in ("net", "mnt")},
    }


def members(lab: labs.Lab) -> set[int]:
    """Return the processes in the lab's process namespace, as seen from here."""
    home = os.stat(f"/proc/{lab.holder}/ns/pid").st_ino
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.stat(entry / "ns" / "pid").st_ino == home:
                found.add(int(entry.name))
        except OSError:
            continue  # it ended, or is not ours to look at
    return found


@pytest.mark.lab
def test_up_and_down_leave_nothing(lab: Start) -> None:
    """Tests that a lab's processes are all gone and the machine is as before."""
    before = outside()
    running = lab(SMALL)
    processes = members(running)
    assert len(processes) == 1 + 4 + 2 * (running.backend == "wire")
    assert outside() == before
    assert labs.down(running.name) == f"lab {running.name!r} is down"
    assert [p for p in processes if start_time(p) is not None] == []
    assert outside() == before
    assert not running.directory.exists()


@pytest.mark.lab
@AS_ROOT.unless(os.geteuid() == 0)
def test_wires_come_before_all_else(lab: Start) -> None:
    """Tests the priority of wires, and of their session among others."""
    running = lab(SMALL)
    if running.backend != "wire":
        WIRES.skip()
    processes = [Path(f"/proc/{process}") for process in members(running)]
    wires = [p for p in processes if (p / "cmdline").read_text().count("/wires/")]
    assert len(wires) == 2
    for wire in wires:
        assert os.getpriority(os.PRIO_PROCESS, int(wire.name)) == -20
        if (wire / "autogroup").exists():
            assert (wire / "autogroup").read_text().endswith("nice -20\n")


@pytest.mark.lab
def test_a_second_lab_of_the_name_is_refused(lab: Start) -> None:
    """Tests that a running lab is left alone and named."""
    running = lab(SMALL)
    with pytest.raises(CloudcollError, match=f"{running.name!r} is already up"):
        labs.up(SMALL, running.name)
    assert labs.find(running.name) == running


@pytest.mark.lab
def test_two_labs_run_side_by_side(
    lab: Start, inside: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Tests that labs of two names don't know of each other."""
    first, second = lab(SMALL), lab(labs.quick((1,)))
    labs.down(first.name)
    assert inside(second, "vm-01", "hostname").stdout == "vm-01\n"


@pytest.mark.lab
def test_down_works_twice(lab: Start) -> None:
    """Tests that a lab that is down can be taken down."""
    running = lab(SMALL)
    labs.down(running.name)
    assert labs.down(running.name) == f"lab {running.name!r} was not up"


@pytest.mark.lab
def test_a_killed_holder_takes_all_with_it(lab: Start) -> None:
    """Tests that SIGKILL of the holder ends the lab, and down cleans the rest."""
    running = lab(SMALL)
    processes = members(running)
    assert kill_holder(running.holder, running.started)
    assert [p for p in processes if start_time(p) is not None] == []
    with pytest.raises(CloudcollError, match=f"no lab {running.name!r} is up"):
        labs.find(running.name)
    assert "leftover" in labs.down(running.name)
    assert not running.directory.exists()


@pytest.mark.lab
def test_a_dead_lab_is_replaced(lab: Start) -> None:
    """Tests that up clears what a killed lab left behind."""
    running = lab(SMALL)
    kill_holder(running.holder, running.started)
    again = labs.up(SMALL, running.name)
    assert again.alive()
    assert again.holder != running.holder


def test_down_clears_a_stale_directory() -> None:
    """Tests that files without a lab, even broken ones, are removed."""
    directory = state_dir() / "lab" / "default"
    directory.mkdir(parents=True)
    (directory / "spec.json").write_text('{"holder": ')
    assert "leftover" in labs.down()
    assert not directory.exists()


@pytest.mark.lab
def test_another_process_with_the_number_is_not_killed(lab: Start) -> None:
    """Tests that a holder's number without its start time means nothing."""
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        assert not kill_holder(bystander.pid, 1)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


HALF_WAY = """
import os, sys
from cloudcoll import lab
import cloudcoll.lab
answer = cloudcoll.lab._answer

def die_while_hosts_are_made(process, directory):
    cloudcoll.lab._answer = die
    result = answer(process, directory)
    print(result["holder"], flush=True)
    return result

def die(process, directory):
    {act}

cloudcoll.lab._answer = die_while_hosts_are_made
lab.up(lab.quick((2, 2), 50e6, 50e6, rtt=300e-6), "half")
"""


@pytest.mark.lab
@pytest.mark.parametrize(
    "act", ["os.kill(os.getpid(), 9)", "raise KeyboardInterrupt", "raise MemoryError"]
)
def test_a_start_that_dies_half_way_leaves_no_process(act: str) -> None:
    """Tests that the holder ends when the process that starts it ends."""
    starter = subprocess.run(
        [sys.executable, "-c", HALF_WAY.format(act=act)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert starter.returncode != 0
    holder = int(starter.stdout.split()[0])
    if act.startswith("raise"):
        assert start_time(holder) is None, "its end was not waited for"
    elif (started := start_time(holder)) is not None:
        # It notices by itself; kill_holder only waits for what dies anyway.
        handle = os.pidfd_open(holder)
        assert _ends(handle), f"holder {holder}, started {started}, lives on"
    labs.down("half")
    assert not (state_dir() / "lab" / "half").exists()


def _ends(handle: int) -> bool:
    import select

    try:
        return bool(select.select([handle], [], [], 30)[0])
    finally:
        os.close(handle)


@pytest.mark.lab
def test_an_interrupt_cleans_up(monkeypatch: pytest.MonkeyPatch, lab: Start) -> None:
    """Tests that Ctrl-C during up leaves neither files nor a process."""
    holders: list[int] = []
    answer = cloudcoll.lab._answer

    def interrupted(process: subprocess.Popen[bytes], directory: Path) -> object:
        if holders:
            signal.raise_signal(signal.SIGINT)
        result = answer(process, directory)
        holders.append(result["holder"])
        return result

    monkeypatch.setattr(cloudcoll.lab, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        labs.up(SMALL, "stopped")
    assert [start_time(holder) for holder in holders] == [None]
    assert not (state_dir() / "lab" / "stopped").exists()


@pytest.mark.lab
@pytest.mark.parametrize(
    ("tool", "script", "seconds", "words"),
    [
        ("unshare", "exec sleep 60", 0.2, "takes more than 200 ms to make"),
        ("bridge", "exit 9", 30.0, "did not come up: Command .*bridge.* status 9"),
    ],
)
def test_a_tool_that_hangs_or_fails(
    tool: str,
    script: str,
    seconds: float,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests one line, and that nothing is left."""
    (tmp_path / tool).write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(cloudcoll.lab, "DEADLINE", seconds)
    with pytest.raises(CloudcollError, match=words) as refused:
        labs.up(labs.quick((1,)), "broken")
    assert "Traceback" not in str(refused.value)
    assert not (state_dir() / "lab" / "broken").exists()


def test_a_holder_that_is_slow_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests one line, and that no process is left to make a lab later."""
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(cloudcoll.lab, "latency_backend", lambda: "wire")
    monkeypatch.setattr(cloudcoll.lab, "DEADLINE", 0.2)
    before = children()
    with pytest.raises(CloudcollError, match=r"come up: no answer within 200 ms$"):
        labs.up(labs.quick((1,)), "late")
    assert children() == before
    assert not (state_dir() / "lab" / "late").exists()


def children() -> str:
    """Return the numbers of the processes that this one started."""
    me = os.getpid()
    return Path(f"/proc/{me}/task/{me}/children").read_text()


@pytest.mark.lab
def test_a_start_that_is_slow_to_end(
    lab: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that nothing waits for the process that forked the holder."""
    slow = "import atexit, time; atexit.register(time.sleep, 60)\n"
    (tmp_path / "sitecustomize.py").write_text(slow)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert lab(labs.quick((1,))).alive()


def test_a_home_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tests that the folder is named, and the variable that moves it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLOUDCOLL_HOME", str(tmp_path / "file"))
    with (
        pytest.raises(CloudcollError, match=r"file/lab: Not a directory .*CLOUDCOLL_H"),
        locked("spare"),
    ):
        pass


def test_a_lab_being_started_is_locked() -> None:
    """Tests that two processes can't bring one lab up at the same time."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with locked("default"):
            entered.set()
            leave.wait(30)

    other = threading.Thread(target=hold)
    other.start()
    try:
        assert entered.wait(30)
        with pytest.raises(CloudcollError, match="another process"), locked("default"):
            pass
    finally:
        leave.set()
        other.join()
    with locked("default"):
        pass


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_names_stay_in_their_folder(name: str) -> None:
    """Tests that a lab's name can't lead out of the state folder."""
    with pytest.raises(UsageError, match="not a lab's name"):
        load(name)


@pytest.mark.lab
def test_latency_without_means_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tests that a missing wire is an error only if a latency is asked for."""
    monkeypatch.setattr(cloudcoll.lab, "WIRE", tmp_path / "wire")
    monkeypatch.setattr(cloudcoll.lab, "latency_backend", lambda: "wire")
    with pytest.raises(CloudcollError, match="not built"):
        labs.up(SMALL, "late")
    labs.up(labs.quick((2,)), "late")
    assert labs.down("late") == "lab 'late' is down"


@pytest.mark.lab
@AS_ROOT.unless(os.geteuid() == 0)
def test_root_needs_no_user_namespace(lab: Start) -> None:
    """Tests that root's lab stands in root's own user namespace."""
    running = lab(SMALL)
    theirs = os.readlink(f"/proc/{running.holder}/ns/user")
    assert theirs == os.readlink("/proc/self/ns/user")
    assert not running.rootless


@pytest.mark.lab
def test_a_lab_of_twenty_hosts_comes_up(lab: Start) -> None:
    """Tests that uneven racks are built as planned."""
    running = lab(labs.quick((9, 1, 6, 4), 50e6, 50e6, rtt=500e-6, slots=2))
    assert [len(group) for group in running.groups] == [9, 1, 6, 4]
    assert [host.slots for host in running.hosts] == [2] * 20
    assert running.hostfile.read_text().splitlines()[0] == "vm-01 slots=2"
    assert labs.find(running.name) == running


@pytest.mark.lab
def test_no_host_has_to_learn_where_another_is(lab: Start) -> None:
    """Tests that labs take nothing of the 1024 neighbours that Linux keeps for all."""
    running = lab(SMALL)
    asked = ["ip", "-json", "neighbour", "show", "nud", "permanent"]
    known = subprocess.check_output([running.ssh, "vm-02", *asked])
    found = {one["dst"] for one in json.loads(known)}
    assert found == {"10.77.0.1", "10.77.0.3", "10.77.255.254"}  # the last is the head


@pytest.mark.lab
def test_tools_where_only_root_looks(
    lab: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests a PATH without root's folders, as Debian's users have it."""
    folders = os.environ["PATH"].split(os.pathsep)
    users = [folder for folder in folders if Path(folder).name != "sbin"]
    monkeypatch.setenv("PATH", os.pathsep.join(users))
    assert len(members(lab(SMALL))) > 3
