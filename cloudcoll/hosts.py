"""Hosts, and every host-list format that names them.

Order is kept as written: it is the order the user gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Host:
    """One virtual machine.

    Attributes
    ----------
    name : str
        The name the launcher knows it by; unique within a list.
    address : str
        Where it is reached, a name or an IP address; `name` if left empty.
    slots : int or None
        Processes it takes, or None where the list does not say.
    user : str
        Login name for ssh, empty for the default.
    labels : mapping of str to str
        What a provider or an operator says of it: ``zone``, ``rack``, ...
    """

    name: str
    address: str = ""
    slots: int | None = None
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.address:
            object.__setattr__(self, "address", self.name)
