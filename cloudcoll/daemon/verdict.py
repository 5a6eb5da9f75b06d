"""What a check of all hosts means: their fabric, and the orders by it.

An order is changed only for a gain. A case is worked out in this process (`judged`),
or in one of its own (`judged_apart`), to which it travels as a line of JSON and a
snapshot: fabric and orders of a thousand hosts take matrices, SciPy and some seconds.
The daemon needs them a few times a day: what they take goes with the process.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cloudcoll import units
from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.collectives.workload import Workload, read_workload
from cloudcoll.errors import CloudcollError, UnusableError
from cloudcoll.measured.snapshot import NetworkSnapshot, parse_snapshot
from cloudcoll.network.forms import fabric_from_dict, fabric_to_dict
from cloudcoll.network.tree import Fabric
from cloudcoll.programs import own_command
from cloudcoll.rankmap import RankMap

SEARCH_S = 45.0
"""Seconds that the search for one order may take."""
IN_FORCE = "in force"
"""What the order in force is called among those that a search begins with."""


@dataclass(frozen=True)
class FoundOrder:
    """The best order by a snapshot for one question, and the one in force.

    Attributes
    ----------
    best : RankMap
        The best order; the one given where that is slower by less than
        `cloudcoll.solve.constraints.least_gain`.
    kept : RankMap or None
        The order in force, with this snapshot's figures; None for no such order.
    """

    best: RankMap
    kept: RankMap | None = None

    @property
    def gain(self) -> float:
        """What the best order gains over the one in force, as a share of its time."""
        if self.kept is None:
            return 0.0
        now = self.kept.predicted["cloudcoll"]
        return 1.0 - self.best.predicted["cloudcoll"] / now if now > 0 else 0.0


@dataclass(frozen=True)
class OrderQuestion:
    """What an order is wanted for.

    Attributes
    ----------
    key : str
        Names it: the same that ``cloudcoll run`` has for this job.
    hosts : tuple of str
        In the user's order.
    free_rank0 : bool
        Whether the host of rank 0 may move.
    """

    key: str
    sent: Schedule | Workload
    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    free_rank0: bool = False

    def found(
        self, snapshot: NetworkSnapshot, order: RankMap | None = None
    ) -> FoundOrder:
        """Return the best order, and the one in force by the same figures.

        The search begins with the one in force, too.
        """
        # A daemon without anything to solve needs none of this.
        from cloudcoll.solve import Watch, solve
        from cloudcoll.solve.constraints import Constraints, least_gain

        best = solve(
            snapshot,
            self.sent,
            given=self.hosts,
            slots=self.slots,
            free_rank0=self.free_rank0,
            constraints=Constraints(keep_below=least_gain(snapshot.fabric)),
            also={IN_FORCE: order.order} if order else None,
            watch=Watch(SEARCH_S),
        )
        if order is None:
            return FoundOrder(best)
        others = {name: s for name, s in best.predicted.items() if name != IN_FORCE}
        seconds = {**others, "cloudcoll": best.predicted[IN_FORCE]}
        kept = replace(
            best,
            order=order.order,
            slots=order.slots,
            origin=order.origin,
            reason=order.reason,
            predicted=seconds,
        )
        return FoundOrder(replace(best, predicted=others), kept)

    def seconds(self, order: RankMap, fabric: Fabric) -> float:
        """Return what an order takes on a fabric that beats follow, in seconds."""
        from cloudcoll.model import problem_on

        slots = dict(zip(order.order, order.slots, strict=True))
        problem = problem_on(fabric.restrict(order.order), self.sent, slots)
        return problem.seconds(order.order)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values; `from_dict` reads them back."""
        return {**vars(self), "sent": self.sent.describe()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OrderQuestion:
        """Return the question that `to_dict` made these values of."""
        lists = {name: tuple(data[name]) for name in ("hosts", "slots")}
        return cls(**{**data, **lists, "sent": _sent(data["sent"])})


def _sent(form: Mapping[str, Any]) -> Schedule | Workload:
    """Return the schedule or workload that describes itself so."""
    if "operations" in form:
        return read_workload(json.dumps(form), "the daemon's question")
    collective, algorithm, ranks, size = (
        form[name] for name in ("collective", "algorithm", "ranks", "size")
    )
    library, parameters = form.get("run_by", ""), form.get("parameters", {})
    return build_schedule(collective, algorithm, ranks, size, library, **parameters)


@dataclass(frozen=True)
class Case:
    """A check of all hosts, with what was known before.

    Attributes
    ----------
    snapshot : NetworkSnapshot
        Its fabric is inferred if it carries none.
    orders : mapping of str to RankMap
        In force, by question.
    known : Fabric or None
        In force: see `cloudcoll.daemon.renew.renewed`, also for the others.
    """

    snapshot: NetworkSnapshot
    questions: tuple[OrderQuestion, ...]
    orders: Mapping[str, RankMap] = field(default_factory=dict)
    known: Fabric | None = None
    fresh: frozenset[str] = frozenset()
    stands: bool = False

    def to_bytes(self) -> bytes:
        """Return the form that `from_bytes` reads back."""
        head = {
            "questions": [question.to_dict() for question in self.questions],
            "orders": {key: order.to_json() for key, order in self.orders.items()},
            "known": self.known and fabric_to_dict(self.known),
            "fresh": sorted(self.fresh),
            "stands": self.stands,
        }
        return json.dumps(head).encode() + b"\n" + self.snapshot.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Case:
        """Return the case of which `to_bytes` made this."""
        line, _, snapshot = data.partition(b"\n")
        head = json.loads(line)
        return cls(
            parse_snapshot(snapshot, "the daemon's probe"),
            tuple(map(OrderQuestion.from_dict, head["questions"])),
            {key: RankMap.from_json(order) for key, order in head["orders"].items()},
            head["known"] and fabric_from_dict(head["known"]),
            frozenset(head["fresh"]),
            head["stands"],
        )


@dataclass(frozen=True)
class Verdict:
    """The fabric and the orders that a case leads to.

    Attributes
    ----------
    found : mapping of str to FoundOrder
        By question.
    taken : bool
        Whether the fabric is another than the known one.
    least : float
        The gain that there has to be: see `cloudcoll.solve.constraints.least_gain`.
    conclusive, refused
        As of `cloudcoll.daemon.renew.Renewed`.
    """

    fabric: Fabric
    found: Mapping[str, FoundOrder]
    taken: bool = True
    conclusive: bool = True
    refused: str = ""
    least: float = 0.0

    @property
    def gain(self) -> float:
        """The most that another order gains for any question, as a share."""
        return max((one.gain for one in self.found.values()), default=0.0)

    def to_bytes(self) -> bytes:
        """Return the form that `from_bytes` reads back."""
        found = {
            key: [one.best.to_json(), one.kept and one.kept.to_json()]
            for key, one in self.found.items()
        }
        form = {"fabric": fabric_to_dict(self.fabric), "found": found}
        how = {
            "taken": self.taken,
            "conclusive": self.conclusive,
            "refused": self.refused,
            "least": self.least,
        }
        return json.dumps({**form, "how": how}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Verdict:
        """Return the verdict of which `to_bytes` made this."""
        form = json.loads(data)
        found = {
            key: FoundOrder(RankMap.from_json(best), kept and RankMap.from_json(kept))
            for key, (best, kept) in form["found"].items()
        }
        return cls(fabric_from_dict(form["fabric"]), found, **form["how"])


def judged(case: Case) -> Verdict:
    """Return the fabric and the orders that a case leads to."""
    # A daemon that judges in another process needs no SciPy in its own.
    from cloudcoll.daemon.renew import Renewed, renewed
    from cloudcoll.infer import infer_fabric
    from cloudcoll.solve.constraints import least_gain

    snapshot, known = case.snapshot, case.known
    if snapshot.fabric:
        now = Renewed(snapshot.fabric)
    elif known:
        now = renewed(known, snapshot, fresh=case.fresh, stands=case.stands)
    else:
        now = Renewed(infer_fabric(snapshot))
    explained = snapshot.with_fabric(now.fabric)
    found = {
        question.key: question.found(explained, case.orders.get(question.key))
        for question in case.questions
    }
    return Verdict(
        now.fabric,
        found,
        now.fabric is not known,
        now.conclusive,
        now.refused,
        least_gain(now.fabric),
    )


LIMIT_S = 300.0
"""Seconds after which it is given up."""
FAILED = 3
"""Exit status of one that says why."""


def judged_apart(case: Case) -> Verdict:
    """Return what `judged` does, by another process.

    UnusableError also where that was killed, as where memory is short.
    """
    give_back()  # what the probe took: the other process needs as much
    try:
        done = subprocess.run(
            own_command("cloudcoll.daemon.verdict"),
            input=case.to_bytes(),
            stdout=subprocess.PIPE,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnusableError(
            f"no order was worked out within {units.seconds(LIMIT_S)}"
        ) from error
    except OSError as error:
        raise UnusableError(f"cannot start {sys.executable}: {error}") from error
    if done.returncode == FAILED:
        raise UnusableError(done.stdout.decode(errors="replace"))
    if done.returncode:
        raise UnusableError(
            f"the process that works out orders ended with status {done.returncode}: "
            "it needs some 200 MB for 1000 hosts"
        )
    return Verdict.from_bytes(done.stdout)


def main() -> int:
    """Judge the case on stdin; write what comes of it to stdout."""
    try:
        answer, status = judged(Case.from_bytes(sys.stdin.buffer.read())).to_bytes(), 0
    except CloudcollError as error:
        answer, status = str(error).encode(), FAILED
    sys.stdout.buffer.write(answer)
    return status


LARGE = 1 << 17
"""Bytes from which a block goes back by itself when it is freed."""
M_MMAP_THRESHOLD = -3
"""Of glibc's ``malloc.h``."""


def map_large() -> None:
    """Have blocks of `LARGE` bytes and more mapped apart from the heap.

    That is glibc's rule at the start. It learns from each such block that is freed
    to put those like it on the heap, where they leave holes (mallopt(3), glibc 2.36).
    """
    if setting := getattr(ctypes.CDLL(None), "mallopt", None):
        setting(M_MMAP_THRESHOLD, LARGE)


def give_back() -> None:
    """Give the free memory of the heap back to the system."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
