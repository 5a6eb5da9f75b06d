from __future__ import annotations

import dataclasses
import sys

import pytest
from simulated import Planted

from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.collectives.workload import Workload, read_workload
from cloudcoll.daemon import verdict
from cloudcoll.daemon.verdict import Case, OrderQuestion, Verdict, judged, judged_apart
from cloudcoll.errors import UnusableError
from cloudcoll.hosts import Host
from cloudcoll.measured.synth import racks
from cloudcoll.probe import Conduct
from cloudcoll.solve.constraints import LEAST_GAIN

NIC = 50e6
FABRIC = racks((4, 4, 4, 4), nic=NIC, uplink=NIC, seed=3)
HOSTS = tuple(map(Host, sorted(FABRIC.hosts)))
RING = build_schedule("allreduce", "ring", 16, 1 << 24)
BINOMIAL = build_schedule("bcast", "binomial", 16, 1 << 20, root=3)
DATA_PARALLEL = read_workload(
    '{"parallel": "tp=4,dp=4", "operations": '
    '[{"collective": "allreduce", "groups": "dp", "bytes": "1M"}]}',
    "here",
)


def case(sent: Schedule | Workload) -> Case:
    """Return what a quick probe of four racks measures, and one question."""
    network = Planted(FABRIC)
    probe = network.measure(HOSTS, network.plan(HOSTS, "quick", 1, None), Conduct())
    names = tuple(host.name for host in HOSTS)
    return Case(probe, (OrderQuestion("mine", sent, names, (1,) * 16),))


def test_a_case_with_an_order_in_force() -> None:
    """Tests that the best order gains what it should over any other."""
    first = judged(case(RING))
    best = first.found["mine"].best
    assert first.gain == 0.0
    assert first.found["mine"].kept is None
    poor = dataclasses.replace(best, order=tuple(host.name for host in HOSTS))
    for order, gain in ((best, 0.0), (poor, 0.7)):
        verdict = judged(dataclasses.replace(case(RING), orders={"mine": order}))
        assert verdict.gain == pytest.approx(gain, abs=0.1)
        assert verdict.found["mine"].kept is not None


@pytest.mark.many
@pytest.mark.parametrize(
    "sent", [RING, BINOMIAL, DATA_PARALLEL], ids=["ring", "binomial", "workload"]
)
def test_another_process_comes_to_the_same(sent: Schedule | Workload) -> None:
    """Tests fabric, order and figures, of schedules and of a workload."""
    asked = case(sent)
    here = judged(asked)
    asked = dataclasses.replace(asked, orders={"mine": here.found["mine"].best})
    here = judged(asked)
    assert judged_apart(asked) == Verdict(here.fabric, here.found, least=LEAST_GAIN)


def test_a_process_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that an error in it is one here, in its words, and death a line."""
    asked = case(RING)
    question = dataclasses.replace(asked.questions[0], hosts=("nobody",) * 16)
    with pytest.raises(UnusableError, match="nobody"):
        judged_apart(dataclasses.replace(asked, questions=(question,)))
    program = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    monkeypatch.setattr(verdict, "own_command", lambda module: program)
    with pytest.raises(UnusableError, match="status -9"):
        judged_apart(asked)
    program[-1] = "import time; time.sleep(60)"
    monkeypatch.setattr(verdict, "LIMIT_S", 0.01)
    with pytest.raises(UnusableError, match="no order was worked out within"):
        judged_apart(asked)
