"""What a check of all hosts means: their fabric, and the orders by it.

A case is worked out in this process (`judged`), or in one of its own
(`cloudcoll.daemon.apart`), to which it travels as a line of JSON and a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from cloudcoll.daemon.orders import Found, Question
from cloudcoll.fabric.jsonform import fabric_from_dict, fabric_to_dict
from cloudcoll.fabric.tree import Fabric
from cloudcoll.rankmap import RankMap
from cloudcoll.snapshot import NetworkSnapshot, parse_snapshot


@dataclass(frozen=True)
class Case:
    """What is to be judged.

    Attributes
    ----------
    snapshot : NetworkSnapshot
        Its fabric is inferred if it carries none.
    questions : tuple of Question
    orders : mapping of str to RankMap
        In force, by question.
    known : Fabric or None
        Whose groups still stand: only the rates of links are inferred.
    """

    snapshot: NetworkSnapshot
    questions: tuple[Question, ...]
    orders: Mapping[str, RankMap] = field(default_factory=dict)
    known: Fabric | None = None

    def to_bytes(self) -> bytes:
        """Return the form that `from_bytes` reads back."""
        head = {
            "questions": [question.to_dict() for question in self.questions],
            "orders": {key: order.to_json() for key, order in self.orders.items()},
            "known": self.known and fabric_to_dict(self.known),
        }
        return json.dumps(head).encode() + b"\n" + self.snapshot.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Case:
        """Return the case of which `to_bytes` made this."""
        line, _, snapshot = data.partition(b"\n")
        head = json.loads(line)
        return cls(
            parse_snapshot(snapshot, "the daemon's probe"),
            tuple(map(Question.from_dict, head["questions"])),
            {key: RankMap.from_json(order) for key, order in head["orders"].items()},
            head["known"] and fabric_from_dict(head["known"]),
        )


@dataclass(frozen=True)
class Verdict:
    """What came of a case.

    Attributes
    ----------
    fabric : Fabric
    found : mapping of str to Found
        By question.
    """

    fabric: Fabric
    found: Mapping[str, Found]

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
        told = {"fabric": fabric_to_dict(self.fabric), "found": found}
        return json.dumps(told).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Verdict:
        """Return the verdict of which `to_bytes` made this."""
        told = json.loads(data)
        found = {
            key: Found(RankMap.from_json(best), kept and RankMap.from_json(kept))
            for key, (best, kept) in told["found"].items()
        }
        return cls(fabric_from_dict(told["fabric"]), found)


def judged(case: Case) -> Verdict:
    """Return what a case means.

    Raises
    ------
    CloudcollError
        No order is possible.
    """
    fabric = case.snapshot.fabric or _inferred(case)
    told = case.snapshot.with_fabric(fabric)
    found = {
        question.key: question.found(told, case.orders.get(question.key))
        for question in case.questions
    }
    return Verdict(fabric, found)


def _inferred(case: Case) -> Fabric:
    # A daemon that judges in another process needs no SciPy in its own.
    from cloudcoll.fabric.infer import infer_fabric, refit_fabric

    if case.known is None:
        return infer_fabric(case.snapshot)
    return refit_fabric(case.known, case.snapshot)
