"""``accelerate launch`` of Accelerate 1.15, started once on every host.

It hands ``--machine_rank`` to torchrun as ``--node-rank``, and ``--main_process_ip``
as the address of the store (``accelerate/utils/launch.py``). What is not on the
command line comes from its configuration file, over which an option wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cloudcoll.errors import LaunchError
from cloudcoll.launch.command_line import CommandLine, Syntax, options_start, read_named
from cloudcoll.launch.own_host import OwnHost
from cloudcoll.launch.plan import LaunchPlan
from cloudcoll.launch.torchrun import plan_rendezvous, plan_static, store_at

_FLAGS = """
cpu debug downcast-bf16 dynamo-use-dynamic dynamo-use-fullgraph
dynamo-use-regional-compilation enable-cpu-affinity
fp8-use-autocast-during-eval module multi-gpu no-python no-tpu-cluster quiet
same-network tpu tpu-cluster tpu-use-sudo use-deepspeed use-fsdp use-megatron-lm
use-parallelism-config
"""
_VALUED = """
aws-access-key-id aws-secret-access-key config-file dynamo-backend dynamo-mode
env gpu-ids gradient-accumulation-steps gradient-clipping log-dir machine-rank
main-process-ip main-process-port main-training-function max-restarts
mixed-precision monitor-interval mpirun-hostfile num-cpu-threads-per-process
num-machines num-processes offload-optimizer-device
offload-optimizer-nvme-path offload-param-device offload-param-nvme-path
rdzv-backend rdzv-conf role tee vm zero-stage zero3-init-flag
zero3-save-16bit-model
"""
FAMILIES = ("deepspeed-", "fp8-", "fsdp-", "megatron-lm-", "parallelism-config-")
"""What the names of many more options with a value begin with."""

CONFIG_LINE = re.compile(
    r"""^[ "']*(\w+)["']? *: *["']?([^"'#,\n]*)["']? *,? *(?:#.*)?$""", re.MULTILINE
)
"""A key and its value in the configuration, YAML or JSON as Accelerate writes it;
nested keys do not repeat others."""


@dataclass(frozen=True)
class Accelerate:
    """The launcher of Accelerate; of a file that is not there it reads no text."""

    read_text: Callable[[str], str] = field(default_factory=lambda: _read_text)

    title = "accelerate launch"
    mechanism = (
        "--machine_rank, by one map on all hosts; read back from the ranks' environment"
    )
    source = "pip install accelerate"
    package = "accelerate"

    def recognises(self, argv: Sequence[str]) -> bool:
        """Return whether this is Accelerate's launcher under one of its names."""
        return _start(argv) > 0

    def plan(
        self, argv: Sequence[str], env: Mapping[str, str], host: OwnHost
    ) -> LaunchPlan:
        """Return the plan of this host: see `HostLauncher.plan`."""
        line, given = self._read(argv, env)
        machines = given.get("num-machines", "1")
        if machines == "1":
            return LaunchPlan(tuple(argv))
        _refuse(given)
        backend = given.get("rdzv-backend") or "static"
        if backend != "static":
            return plan_rendezvous(line, backend, host)
        host.check_count(
            int(machines) if machines.isdecimal() else 0, f"--num_machines {machines}"
        )
        options = [f"--machine_rank={host.position}"]
        current = given.get("main-process-ip", "")
        if current and (moved := host.master(current)) != current:
            options.append(f"--main_process_ip={moved}")
        return plan_static(line, options, {}, host)

    def store(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, int]:
        """Return where the main process is: see `HostLauncher.store`."""
        _, given = self._read(argv, env)
        port = given.get("main-process-port", "29500")
        return store_at(given.get("main-process-ip", ""), port)

    def _read(
        self, argv: Sequence[str], env: Mapping[str, str]
    ) -> tuple[CommandLine, dict[str, str]]:
        """Return the command line, and what it and the configuration say."""
        start = _start(argv)
        line = CommandLine.read(argv, start, _syntax(argv[start:]))
        config = self.read_text(line.values.get("config-file") or _default_config(env))
        given = {key.replace("_", "-"): value for key, value in _keys(config).items()}
        return line, given | line.values


def _start(argv: Sequence[str]) -> int:
    if os.path.basename(argv[0]) == "accelerate":
        return 2 if [*argv[1:2]] == ["launch"] else 0
    return options_start(argv, "accelerate-launch", "accelerate.commands.launch")


def _syntax(words: Sequence[str]) -> Syntax:
    """Return what is known of the options, those of the families in `words` too."""
    flags = frozenset(_FLAGS.split())
    names = {word.partition("=")[0].lstrip("-").replace("_", "-") for word in words}
    families = {name for name in names - flags if name.startswith(FAMILIES)}
    return Syntax(
        flags=flags,
        valued=frozenset(_VALUED.split()) | families,
        synonyms={"m": "module", "q": "quiet", "t": "tee"},
    )


def _refuse(given: Mapping[str, str]) -> None:
    """Raise where another launcher than torchrun starts the hosts."""
    on_cpu = "cpu" in given or given.get("use-cpu") == "true"
    if given.get("mpirun-hostfile") or on_cpu:
        raise LaunchError("its ranks come from mpirun: put cloudcoll before that")
    deepspeed = "use-deepspeed" in given or given.get("distributed-type") == "DEEPSPEED"
    if deepspeed and given.get("deepspeed-multinode-launcher") != "standard":
        raise LaunchError(
            "DeepSpeed's own launcher starts the hosts: reorder its hostfile with "
            "'cloudcoll export --format deepspeed'"
        )


def _keys(config: str) -> dict[str, str]:
    found = {key: value.strip() for key, value in CONFIG_LINE.findall(config)}
    return {key: value for key, value in found.items() if value not in {"", "null"}}


def _default_config(env: Mapping[str, str]) -> str:
    """Return where ``accelerate config`` writes (``config_args.py``)."""
    cache = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME", ""), ".cache")
    home = env.get("HF_HOME") or os.path.join(cache, "huggingface")
    return os.path.join(home, "accelerate", "default_config.yaml")


def _read_text(path: str) -> str:
    try:
        return read_named(path)
    except LaunchError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return ""
        raise
