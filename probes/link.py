"""What a rank of a job needs of the library that carries its messages."""

from __future__ import annotations

from typing import Any


class Connection:
    """Messages between ranks, as one library carries them.

    A buffer is whatever the library sends fastest; `part` is its first `size`
    bytes. What `isend` and `irecv` return has a `wait`.

    Attributes
    ----------
    rank, size : int
        This rank, and how many there are.
    name : str
        What this host calls itself.
    library : str
        Name and version, for the snapshot.
    """

    rank: int
    size: int
    name: str
    library: str

    # Among all ranks, in the same order on each. While they wait, they leave
    # the cores to those that measure.

    def barrier(self) -> None:
        """Wait for all ranks."""
        raise NotImplementedError

    def share(self, text: bytes) -> bytes:
        """Return rank 0's `text` on every rank."""
        raise NotImplementedError

    def gather(self, text: bytes) -> bytes:
        """Return all ranks' texts, joined, on rank 0; nothing elsewhere."""
        raise NotImplementedError

    # Between two ranks.

    def buffer(self, size: int) -> Any:
        """Return a buffer of `size` zero bytes."""
        raise NotImplementedError

    def write(self, buffer: Any, data: bytes) -> None:
        """Put `data` at the beginning of a buffer."""
        raise NotImplementedError

    def read(self, buffer: Any, size: int) -> bytes:
        """Return the first `size` bytes of a buffer."""
        raise NotImplementedError

    def exchange(self, request: Any, reply: Any, peer: int) -> None:
        """Send all of `request`; return when all of `reply` has come."""
        raise NotImplementedError

    def echo(self, buffer: Any, peer: int) -> None:
        """Fill all of `buffer` with what comes and send it back."""
        raise NotImplementedError

    def isend(self, buffer: Any, size: int, peer: int) -> Any:
        """Begin to send the first `size` bytes."""
        raise NotImplementedError

    def irecv(self, buffer: Any, size: int, peer: int) -> Any:
        """Begin to receive `size` bytes."""
        raise NotImplementedError
