"""What a check of all hosts means: their fabric, and the orders by it.

A case is worked out in this process (`judged`), or in one of its own
(`cloudcoll.daemon.own_process`), to which it travels as a line of JSON and a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from cloudcoll.daemon.orders import FoundOrder, OrderQuestion
from cloudcoll.measured.snapshot import NetworkSnapshot, parse_snapshot
from cloudcoll.network.forms import fabric_from_dict, fabric_to_dict
from cloudcoll.network.tree import Fabric
from cloudcoll.rankmap import RankMap


@dataclass(frozen=True)
class Case:
    """A check of all hosts, with what was known before.

    Attributes
    ----------
    snapshot : NetworkSnapshot
        Its fabric is inferred if it carries none.
    questions : tuple of OrderQuestion
    orders : mapping of str to RankMap
        In force, by question.
    known : Fabric or None
        In force: see `cloudcoll.daemon.renew.renewed`, also for the following.
    fresh : frozenset of str
    stands : bool
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
    fabric : Fabric
    found : mapping of str to FoundOrder
        By question.
    taken : bool
        Whether the fabric is another than the known one.
    conclusive, refused
        As of `cloudcoll.daemon.renew.Renewed`.
    """

    fabric: Fabric
    found: Mapping[str, FoundOrder]
    taken: bool = True
    conclusive: bool = True
    refused: str = ""

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
    """Return the fabric and the orders that a case leads to.

    Raises
    ------
    CloudcollError
        No order is possible.
    """
    # A daemon that judges in another process needs no SciPy in its own.
    from cloudcoll.daemon.renew import Renewed, renewed
    from cloudcoll.infer import infer_fabric

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
        now.fabric, found, now.fabric is not known, now.conclusive, now.refused
    )
