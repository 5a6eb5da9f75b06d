"""Run a program on a host of the lab: the lab's ssh, and ``cloudcoll lab exec``."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence

from cloudcoll.lab.holder import die_with_parent, enter
from cloudcoll.lab.link import SCRATCH
from cloudcoll.lab.plan import HEAD
from cloudcoll.lab.state import Lab, load
from cloudcoll.plain import say
from cloudcoll.programs import own_command

SSH = """\
#!/bin/sh
# ssh to the hosts of this lab: ssh [OPTIONS] HOST [COMMAND...]
lab={directory}
while [ $# -gt 0 ]; do
  case $1 in
    -[BbcDEeFIiJLlmOoPpQRSWw]) shift 2 || break ;;
    --) shift; break ;;
    -*) shift ;;
    *) break ;;
  esac
done
host=${{1#*@}}
case $host in
{cases}
  *) echo "ssh: Could not resolve hostname $host: not in lab {name}" >&2; exit 255 ;;
esac
shift
if [ -e "$lab/dead/$host" ]; then
  echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255
fi
[ $# -gt 0 ] || set -- exec sh
export HOSTNAME="$host" TMPDIR={scratch}
read -r init < /proc/1/comm
if [ "$init" = {token} ]; then
  exec nsenter --target="$anchor" --mount --uts --net -- sh -c "cd; $*"
fi
# nsenter stays outside as the parent: when it is killed, so is the command.
# The second nsenter reads the lab's /proc, which the first has entered.
exec nsenter --target={holder} {user} --mount --pid -- \\
  setpriv --pdeathsig KILL \\
  nsenter --target="$anchor" --mount --uts --net -- sh -c "cd; $*"
"""


def ssh_script(lab: Lab) -> str:
    """Return the text of the lab's ``bin/ssh``."""
    cases = "\n".join(f"  {host}) anchor={p} ;;" for host, p in lab.anchors.items())
    return SSH.format(
        directory=shlex.quote(str(lab.directory)),
        name=lab.name,
        scratch=SCRATCH,
        token=lab.token,
        cases=cases,
        holder=lab.holder,
        user="--user --preserve-credentials" if lab.rootless else "",
    )


def environment(lab: Lab, host: str, base: Mapping[str, str]) -> dict[str, str]:
    """Return `base` with what a program on `host` needs besides.

    Temporary files are the host's own, as on a machine of its own. The lab's
    ssh comes first on the ``PATH`` and is Open MPI's launch agent.
    In a user namespace everybody is root, which Open MPI wants allowed. More
    ranks than cores must yield while they wait, or they stop each other. No rank
    is bound: each host would take itself to have the machine, and the first rank
    of all of them would share its first core.
    """
    path = f"{lab.ssh.parent}:{base.get('PATH', os.defpath)}"
    return {
        **base,
        "CLOUDCOLL_LAB": str(lab.directory),
        "HOSTNAME": host,
        "TMPDIR": SCRATCH,
        "PATH": path,
        "PRTE_MCA_plm_ssh_agent": str(lab.ssh),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }


def exec_argv(
    lab: Lab, host: str, argv: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Return a command and its environment that run `argv` on `host`.

    For ``subprocess``: the working directory, the exit code, signals and the
    standard streams are those of `argv` itself.
    """
    lab.anchor(host)
    boot = own_command("cloudcoll.lab.entry")
    return [*boot, lab.name, host, *argv], environment(lab, host, os.environ)


def run(lab: Lab, host: str, argv: Sequence[str]) -> int:
    """Run `argv` on `host` as a child and return its exit code.

    That is 128 + n if signal n ended it, 126 or 127 if it could not be started. This
    process itself moves into the lab's user namespace: call it last. OSError if the
    lab's namespaces could not be joined.
    """
    anchor = lab.anchor(host)
    where = os.getcwd()
    if not lab.inside():
        # The process namespace takes effect for the child only.
        enter(lab.holder, *(("user",) if lab.rootless else ()), "pid", "mnt")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        try:
            enter(anchor, "net", "uts", "mnt")
            os.chdir(where)
            # After every change of namespace: the kernel forgets it there.
            die_with_parent(signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.execvpe(argv[0], list(argv), environment(lab, host, os.environ))
        except OSError as error:
            say(f"cannot run {argv[0]}: {error.strerror}")
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    return _supervise(child)


FORWARDED = {
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2),
}


def _supervise(child: int) -> int:
    while True:
        got = signal.sigwaitinfo(FORWARDED | {signal.SIGCHLD})
        if got.si_signo != signal.SIGCHLD:
            # One from the terminal reached the child too, as one of its group.
            if got.si_code <= 0:
                os.kill(child, got.si_signo)
            continue
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main() -> int:
    """Run what `exec_argv` asked for."""
    name, host, *argv = sys.argv[1:]
    lab = load(name)
    if lab is None or not lab.alive():
        say(f"no lab {name!r} is up")
        return 125
    return run(lab, host or HEAD, argv)
