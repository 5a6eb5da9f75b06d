"""Tell a library a tuning, in the library's own way: `tell`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cloudcoll.libraries import LIBRARIES
from cloudcoll.libraries.algorithms import NOTHING, check_tuning, library_version
from cloudcoll.libraries.tell_mpich import tell_mpich
from cloudcoll.libraries.tell_open_mpi import tell_open_mpi
from cloudcoll.libraries.tell_variables import tell_intel, tell_nccl, tell_ucc
from cloudcoll.libraries.told import Ask, Told
from cloudcoll.tuning import Tuning

TELLERS: dict[str, Callable[[Ask], Told]] = {
    "openmpi": tell_open_mpi,
    "mpich": tell_mpich,
    "intelmpi": tell_intel,
    "ucc": tell_ucc,
    "nccl": tell_nccl,
}
"""Key of a library -> how it is told."""


def tell(
    tuning: Tuning, library: str = "", settings: Mapping[str, str] | None = None
) -> Told:
    """Return what a library is told so that a tuning is in force.

    Where nothing can be told the notes say why.

    Parameters
    ----------
    tuning : Tuning
    library : str
        ``NAME@VERSION`` of the library that the job runs, empty for the tuning's.
    settings : mapping of str to str, optional
        What the user tells the library: see `cloudcoll.libraries.forced_settings`.

    Raises
    ------
    UsageError
        The library or an algorithm is not known.
    """
    check_tuning(tuning)
    key, version = library_version(tuning.library)
    if library:
        here, version = library_version(library)
        if here != key:
            return Told(notes=(f"the tuning is for {tuning.library}, not {library}",))
    if key in NOTHING:
        title = LIBRARIES[key].title
        return Told(notes=(f"{title} can't be told an algorithm",))
    if not tuning.changes_anything:
        return Told(notes=("the library's own algorithms are the best known",))
    return TELLERS[key](Ask(tuning, version, settings or {}))
