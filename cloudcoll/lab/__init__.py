"""An emulated data centre on this machine: real kernels, real TCP, real MPI.

Every host is a set of Linux namespaces with its own address, name and
``/etc/hosts``; racks are bridges, and links are shaped and delayed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cloudcoll import units
from cloudcoll.errors import CloudcollError
from cloudcoll.hosts import Host
from cloudcoll.lab.entry import environment, exec_argv, ssh_script
from cloudcoll.lab.faults import (
    dead_wires,
    delay,
    drop,
    faults,
    heal,
    kill,
    lose,
    parse_share,
    slow,
    start_tenants,
    start_traffic,
)
from cloudcoll.lab.link import WIRE, Backend, wire_argv
from cloudcoll.lab.plan import HEAD, Plan, plan_lab
from cloudcoll.lab.spec import (
    DEFAULT,
    PRESETS,
    CrossTraffic,
    LabSpec,
    Queue,
    Shape,
    find_preset,
    quick,
    reshaped,
)
from cloudcoll.lab.state import (
    DEADLINE,
    Lab,
    find,
    kill_holder,
    lab_directory,
    load,
    locked,
    start_time,
    tool_environment,
)
from cloudcoll.lab.text import (
    character,
    keep_character,
    parse_duration,
    parse_queue,
    parse_rate,
    parse_rto,
    parse_traffic,
    read_spec,
    show_lab,
    show_plan,
)
from cloudcoll.programs import own_command

__all__ = [
    "DEFAULT",
    "HEAD",
    "PRESETS",
    "CrossTraffic",
    "Lab",
    "LabSpec",
    "Plan",
    "Queue",
    "Shape",
    "character",
    "dead_wires",
    "delay",
    "down",
    "drop",
    "environment",
    "exec_argv",
    "faults",
    "find",
    "find_preset",
    "heal",
    "kill",
    "latency_backend",
    "lose",
    "parse_duration",
    "parse_queue",
    "parse_rate",
    "parse_rto",
    "parse_share",
    "parse_traffic",
    "plan_lab",
    "quick",
    "read_spec",
    "reshaped",
    "show_lab",
    "show_plan",
    "slow",
    "start_traffic",
    "up",
]


CONGESTION = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def up(spec: LabSpec, name: str = "default") -> Lab:
    """Build a lab and return it running.

    What a dead lab of the same name left behind is replaced. CloudcollError if one of
    this name is up already, or the system cannot hold one.
    """
    _check_congestion(spec.surroundings.congestion)
    plan = plan_lab(spec, latency_backend())
    if plan.wired and not os.access(WIRE, os.X_OK):
        raise CloudcollError(
            "this kernel cannot delay or shape packets as asked for, and "
            f"{WIRE} is not built; run 'pip install .' with a C compiler, or leave "
            "out the rtt, the jitter and queues that are not measured in time"
        )
    with locked(name):
        old = load(name)
        if old is not None and old.alive():
            raise CloudcollError(
                f"lab {name!r} is already up with {len(old.hosts)} hosts; take it "
                f"down with 'cloudcoll lab down --name {name}' or choose another --name"
            )
        directory = lab_directory(name)
        try:
            return _start(plan, name, directory)
        except BaseException as error:
            # What went wrong before matters more than what is left of it.
            shutil.rmtree(directory, ignore_errors=True)
            if isinstance(error, OSError):
                raise CloudcollError(
                    f"the lab did not come up: {error}; is there space and permission "
                    f"in {directory.parent}?"
                ) from error
            raise


def _check_congestion(name: str) -> None:
    known = CONGESTION.read_text().split()
    if name and name not in known:
        raise CloudcollError(
            f"this kernel has no congestion control {name!r} (it has: "
            f"{', '.join(known)}); load its module, or name another with --congestion"
        )


def down(name: str = "default") -> str:
    """Take a lab down, whatever state it is in, and say what was done.

    CloudcollError if another process is bringing it up, or its holder does not die.
    """
    with locked(name, wait=DEADLINE):
        directory = lab_directory(name)
        lab = load(name)
        killed = lab is not None and kill_holder(lab.holder, lab.started)
        existed = directory.exists()
        _remove(directory)
    if killed:
        return f"lab {name!r} is down"
    if existed:
        return f"lab {name!r} was not running; its leftover files are removed"
    return f"lab {name!r} was not up"


def latency_backend() -> Backend:
    """Return ``netem`` if this kernel has it, else ``wire``.

    CloudcollError if iproute2 or util-linux is missing, or namespaces are forbidden.
    """
    env = tool_environment()
    missing = [t for t in ("ip", "nsenter", "unshare") if not shutil.which(t)]
    if not shutil.which("tc", path=env["PATH"]):
        missing.append("tc")
    if missing:
        raise CloudcollError(
            f"the lab needs {missing[0]!r}, which is not on the PATH; "
            "install iproute2 and util-linux"
        )
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    netem = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    # In a namespace of its own, which is gone with the command.
    argv = ["unshare", *user, "--net", *netem]
    try:
        tried = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=DEADLINE
        )
    except subprocess.TimeoutExpired as error:
        raise CloudcollError(
            f"a network namespace takes more than {units.seconds(DEADLINE)} to make: "
            "try again when this machine has less to do"
        ) from error
    if tried.returncode != 0 and tried.stderr.startswith("unshare:"):
        raise CloudcollError(
            f"this system does not allow network namespaces "
            f"({tried.stderr.strip()}); run the lab as root, or allow unprivileged "
            "user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
        )
    return "netem" if tried.returncode == 0 else "wire"


def _start(plan: Plan, name: str, directory: Path) -> Lab:
    _remove(directory)
    for folder in ("bin", "wires", "dead", "flows", "standing"):
        (directory / folder).mkdir(parents=True)
    (directory / "etc-hosts").write_text(plan.hosts_file)
    hosts = tuple(
        Host(host, slots=slots)
        for host, slots in zip(plan.hosts, plan.slots, strict=False)
    )
    (directory / "hosts").write_text(
        "".join(f"{host.name} slots={host.slots}\n" for host in hosts)
    )
    token = f"lab-{secrets.token_hex(4)}"
    with _holder(plan, token, directory) as (holder, started, anchors):
        lab = Lab(
            name=name,
            directory=directory,
            hosts=hosts,
            groups=plan.groups,
            links=plan.links,
            backend=plan.backend,
            holder=holder,
            started=started,
            anchors=anchors,
            token=token,
            rootless=os.geteuid() != 0,
            surroundings=plan.surroundings,
            hogged=plan.hogged,
        )
        lab.ssh.write_text(ssh_script(lab))
        lab.ssh.chmod(0o755)
        keep_character(lab)
        start_tenants(lab)
        lab.save()
    return lab


def _remove(directory: Path) -> None:
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CloudcollError(
            f"cannot remove {directory}: {error.strerror}; remove it by hand"
        ) from error


@contextlib.contextmanager
def _holder(
    plan: Plan, token: str, directory: Path
) -> Iterator[tuple[int, int, dict[str, int]]]:
    """Start a holder; it stays if the body of ``with`` ends well."""
    request = _request(plan, token, directory)
    with open(directory / "log", "ab") as log:
        process = subprocess.Popen(
            own_command("cloudcoll.lab.holder"),
            env=tool_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,  # `select` must not miss an answer in a buffer
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    # Closing its stdin is what ends a holder that was not told to stay.
    with process.stdout, process.stdin:
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            holder = _answer(process, directory)["holder"]
        finally:
            # It has forked the holder proper, or comes too late.
            process.kill()
            process.wait()
        started = start_time(holder) or 0
        try:
            yield holder, started, _answer(process, directory)["anchors"]
        except BaseException:
            # It would end by itself; here its end is waited for.
            kill_holder(holder, started)
            raise
        process.stdin.write(b"stay\n")


def _request(plan: Plan, token: str, directory: Path) -> dict[str, Any]:
    controls = [directory / "wires" / link.name for link in plan.wired]
    for control in controls:
        os.mkfifo(control, 0o600)
    return {
        "token": token,
        "hosts_file": str(directory / "etc-hosts"),
        "hosts": plan.hosts,
        "batches": [asdict(batch) for batch in plan.batches],
        "wires": [
            wire_argv(link, control, plan.seed)
            for link, control in zip(plan.wired, controls, strict=True)
        ],
    }


def _answer(process: subprocess.Popen[bytes], directory: Path) -> dict[str, Any]:
    assert process.stdout is not None
    ready = select.select([process.stdout], [], [], DEADLINE)[0]
    line = process.stdout.readline() if ready else b""
    late = f"no answer within {units.seconds(DEADLINE)}"
    silence = "its holder ended" if ready else late
    answer: dict[str, Any] = json.loads(line) if line else {"error": silence}
    if "error" in answer:
        log = (directory / "log").read_text(errors="replace").split()
        reason = " ".join([answer["error"], *log])
        raise CloudcollError(f"the lab did not come up: {reason}")
    return answer
