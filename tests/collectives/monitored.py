"""What the installed Open MPI says it sent between ranks, call by call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "sent_bytes.py"


def monitored(
    ranks: int,
    jobs: Sequence[Mapping[str, Any]],
    folder: Path,
    options: Mapping[str, str],
) -> list[Any]:
    """Return a matrix of bytes [src][dst] for each call, measured in one job.

    Parameters
    ----------
    ranks : int
    jobs : sequence of mapping
        Calls, as ``sent_bytes.py`` takes them.
    folder : Path
        For the request and the answer.
    options : mapping of str to str
        MCA parameters.
    """
    request, out = folder / "cases.json", folder / "sent.json"
    request.write_text(json.dumps(jobs))
    options = {"pml_monitoring_enable": "1", "mpi_yield_when_idle": "1", **options}
    mca = [word for key, value in options.items() for word in ("--mca", key, value)]
    mpirun = str(Path(sysconfig.get_path("scripts")) / "mpirun")
    program = [sys.executable, str(PROGRAM), str(request), str(out)]
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    subprocess.run(
        [mpirun, "--oversubscribe", "-n", str(ranks), *mca, *program],
        env={**os.environ, **allowed},
        timeout=120,
        check=True,
    )
    return list(json.loads(out.read_text()))
