from __future__ import annotations

import numpy as np
import pytest
from mpis import MPIS

from cloudcoll.bench.compare import compare_orders
from cloudcoll.bench.native import mpi_program
from cloudcoll.bench.plan import Pace
from cloudcoll.fabric import synth
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest
from cloudcoll.launch.openmpi import OpenMpi
from cloudcoll.selection import Selection


def test_nothing_is_predicted_inside_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests ranks on one host: ratios, no prediction of links that it has not."""
    mpi = MPIS[0]
    for name, value in mpi.environment().items():
        monkeypatch.setenv(name, value)
    mpirun = str(mpi.prefix / "bin" / "mpirun")
    program = mpi_program("c", mpirun, mpi.environment())
    fabric = synth.racks((2,), seed=1)
    snapshot = synth.observe(fabric, rounds=3).with_fabric(fabric)
    request = LaunchRequest(
        launcher=OpenMpi(),
        argv=(mpirun, *mpi.options, "-n", "2", *program),
        start=1,
        hosts=(Host(snapshot.names[0]),),
        source="hosts",
        counts=(2,),
    )
    run = compare_orders(
        request,
        snapshot,
        orders="given,cloudcoll",
        collective="allreduce",
        chosen={4096: Selection("ring", rule="tests")},
        pace=Pace(repeats=3, seconds=1.0, min_seconds=0.0),
    )
    assert run.predicted == {}
    (ratio,) = run.ratios()
    assert ratio.ratio == 1.0
    assert np.isnan(ratio.predicted)
