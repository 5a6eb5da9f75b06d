"""The path that torch.distributed takes: Gloo, or NCCL where there are GPUs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cloudcoll.agentfile import rank_program
from cloudcoll.hosts import Host
from cloudcoll.probe.job import Job
from cloudcoll.probe.transport import Conduct

PORT = "29500"
"""Where ranks meet, unless ``MASTER_PORT`` says otherwise; torch's own choice."""
TORCHRUN = frozenset({"torchrun", "torch.distributed.run"})


class Torch(Job):
    """A job of torchrun, or of a launcher that starts one rank on each host.

    torchrun tells its ranks where to meet. Those of mpirun and srun meet at
    the first host of the list, or at ``MASTER_ADDR``.
    """

    name = "torch"
    module = "torch"
    starters = TORCHRUN
    options = Job.options | {"backend"}

    def command(self, hosts: Sequence[Host], conduct: Conduct) -> tuple[str, ...]:
        """Return the launcher's command line completed by our program.

        torchrun takes a script and starts Python itself.
        """
        address = conduct.env.get("MASTER_ADDR", hosts[0].address)
        port = conduct.env.get("MASTER_PORT", PORT)
        ours = (*rank_program("torch_probe"), f"{address}:{port}")
        ours = (*ours, conduct.backend or "auto")
        if any(Path(word).name in TORCHRUN for word in self.launcher):
            return (*self.launcher, *ours)
        return (*self.launcher, sys.executable, *ours)
