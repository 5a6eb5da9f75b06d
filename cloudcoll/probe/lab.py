"""Hosts of the emulated data centre on this machine."""

from __future__ import annotations

from cloudcoll.probe.ssh import Ssh


class Lab(Ssh):
    """The lab's own ssh, which enters a host's namespaces.

    Parameters
    ----------
    program : str
        The ``bin/ssh`` of a running lab.
    """

    name = "lab"
    options = Ssh.options | {"lab"}
    shares_cores = True
