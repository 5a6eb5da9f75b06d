from __future__ import annotations

import os
import select
from collections.abc import Callable

import psutil
import pytest

from cloudcoll import lab as labs
from cloudcoll.lab.state import Lab
from cloudcoll.probe.frames import Decoder
from cloudcoll.programs import agent_source, parcel
from cloudcoll.resident import Carrier

from .test_tls_probe_in_lab import Residents, TlsFrom, residents

__all__ = ["residents"]

pytestmark = pytest.mark.lab

LOST = 30.0
"""Twice what `cloudcoll.tls.watch` gives a driver of whom nothing is heard."""


@pytest.mark.slow
def test_a_driver_of_whom_nothing_is_heard(
    lab: Callable[..., Lab],
    far_racks: Callable[..., labs.LabSpec],
    residents: Residents,
) -> None:
    """Tests that an agent is free again when its driver's host has vanished."""
    pair = lab(far_racks((2,), seed=9))
    listener = residents(pair)[0]
    here, there = pair.hosts
    with Carrier(TlsFrom(pair, there.name).dialler()) as carrier:
        driver = carrier.start(here.name, here.address)
        with driver.stdin, driver.stdout, driver.stderr:
            driver.stdin.write(parcel(agent_source()))
            decoder = Decoder()
            while not decoder.feed(driver.stdout.read(1 << 16)):
                pass
            family = psutil.Process(listener.pid).children(recursive=True)
            (agent,) = [one for one in family if "agent.py" in " ".join(one.cmdline())]
            gone = os.pidfd_open(agent.pid)
            labs.kill(pair, there.name)
            assert select.select([gone], [], [], LOST)[0]
            os.close(gone)
            assert listener.poll() is None
