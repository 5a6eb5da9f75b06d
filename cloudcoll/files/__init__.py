"""Where CloudColl keeps its files, and how it reads and writes one.

A reader sees the old content or the new, never a mix: every write goes to a
temporary file beside the target, is flushed to disk, and is renamed over it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files.limits import TEXT_BYTES, check_depth, check_room

_PIECE = 1 << 20
"""Bytes that are read at once."""


def state_dir() -> Path:
    """Return the folder for snapshots, maps and labs (not created here).

    ``CLOUDCOLL_HOME`` if set, else ``$XDG_STATE_HOME/cloudcoll``, else
    ``~/.local/state/cloudcoll``.
    """
    if home := os.environ.get("CLOUDCOLL_HOME"):
        return Path(home)
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "cloudcoll"


def results_dir(lab: Path | None = None) -> Path:
    """Return the folder for what is known of a network (not created here).

    Of a lab's it belongs to the lab and goes with it: the next lab has other racks
    and hosts of the same names. Without `lab` it is the one in which this process runs,
    which says so in ``CLOUDCOLL_LAB``.
    """
    own = lab or os.environ.get("CLOUDCOLL_LAB")
    return Path(own) / "results" if own else state_dir()


LAB_CHARACTER = "character.json"
"""The file of a lab's folder that says what its network is like."""


def lab_origin(lab: Path | None = None) -> dict[str, Any]:
    """Return ``lab``, what the lab is like that is measured, if any.

    For the metadata of what is measured: what the file says that the lab has
    written, as it is. Its folder is found as by `results_dir`.
    """
    own = lab or os.environ.get("CLOUDCOLL_LAB")
    if not own:
        return {}
    try:
        return {"lab": json.loads((Path(own) / LAB_CHARACTER).read_text())}
    except (OSError, ValueError):
        return {"lab": {}}  # one that does not say


def snapshot_file(key: str, lab: Path | None = None) -> Path:
    """Return where the latest snapshot of a `host_set_key` is kept: `results_dir`."""
    return results_dir(lab) / "snapshots" / f"{key}.snap"


def stored_digest(data: bytes) -> str:
    """Return the digest that a stored snapshot begins with, empty if there is none."""
    words = data[:200].split()
    return words[2].decode(errors="replace") if len(words) > 2 else ""


def read_stored(path: Path, digest: str) -> bytes:
    """Return a snapshot's file, which is to be the one with this digest.

    UnusableError if it can't be read, or another snapshot has taken its place.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnusableError(f"cannot read {path}: {error.strerror}") from error
    if stored_digest(data) != digest:
        raise UnusableError(f"another probe has replaced {path}: use that one")
    return data


def map_file(digest: str, question: str, lab: Path | None = None) -> Path:
    """Return where the answer to a question that was solved before is kept.

    Of the digest of its snapshot, and a text that names all that was asked.
    """
    key = hashlib.sha256(f"{digest} {question}".encode()).hexdigest()[:32]
    return results_dir(lab) / "maps" / f"{key}.json"


def read_text(
    path: str | os.PathLike[str], what: str, advice: str = "", most: int = TEXT_BYTES
) -> str:
    """Return the text of a file that the user named, UTF-8, of at most so many bytes.

    Else the UsageError calls it `what`, as in ``the rank map FILE``, and has `advice`.
    """
    try:
        return bounded(path, most).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or (
            "not text" if isinstance(error, UnicodeDecodeError) else str(error)
        )
        hint = f" ({advice})" if advice else ""
        raise UsageError(f"cannot read {what}: {reason}{hint}") from None


def bounded(path: str | os.PathLike[str], most: int) -> bytes:
    """Return what a file, a pipe or a device holds.

    ValueError if that is more than `most` bytes; of those it reads no more.
    """
    parts, left = [], most
    with open(path, "rb") as file:
        # Not as much at once as may come: that would be taken beforehand.
        while part := file.read(min(left + 1, _PIECE)):
            parts.append(part)
            left -= len(part)
            if left < 0:
                size = f"{most >> 20} MiB" if most >> 20 else f"{most >> 10} KiB"
                raise ValueError(f"more than {size}")
    return b"".join(parts)


def parse_json(text: str, source: str) -> Any:
    """Return the value of a JSON text; else a UsageError names it by `source`."""
    try:
        return strict_json(text)
    except NOT_JSON as error:
        reason = str(error) or "it takes more memory than there is"
        raise UsageError(f"{source}: not JSON ({reason})") from None


def strict_json(text: str | bytes, size: int | None = None) -> Any:
    """Return the value of a JSON text, in which there is no NaN and no Infinity.

    If it comes from a compressed file, the `size` of that bounds the memory that values
    may take. It raises `NOT_JSON`, also if it is too deep, or of too many values.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    check_room(text, len(text) if size is None else size)
    value = _STRICT.decode(text)
    check_depth(value)
    return value


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


NOT_JSON = (ValueError, RecursionError, MemoryError)
"""What `strict_json` raises of a text that is no JSON, or more than it may be."""

_STRICT = json.JSONDecoder(parse_constant=_refuse)
"""Made once: `json.loads` would make one for each frame of an agent."""


def write_atomic(
    path: str | os.PathLike[str], data: bytes | str, mode: int = 0o666
) -> Path:
    """Write `data` to `path` so that a crash leaves the old file whole.

    Missing parent folders are made. A link at `path` is replaced, not
    followed. `mode` are its permissions, of which the umask takes some.
    What `is_stream` is written to as it is.

    Raises
    ------
    UnusableError
        The file system refused (full, read-only, no permission); the message
        names the path and the old file is intact.
    """
    target = Path(path)
    if not target.name:  # "", "." or "/"
        raise UnusableError(f"cannot write {target}: it is a folder (name a file)")
    payload = data.encode() if isinstance(data, str) else data
    if is_stream(target):
        return _send(target, payload)
    with _beside(target, mode) as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())
        os.replace(file.name, target)
    return target


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise what `write_atomic` would, before work of minutes; write nothing.

    Missing parent folders are made.
    """
    target = Path(path)
    if target.is_dir():
        raise UnusableError(f"cannot write {target}: it is a folder (name a file)")
    if not is_stream(target):
        with _beside(target, 0o600):
            pass


@contextlib.contextmanager
def _beside(target: Path, mode: int) -> Iterator[BinaryIO]:
    """Yield a new file that may take the place of another, and is gone if not."""
    # Not tempfile: its files nobody else may read.
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
            yield file
    except OSError as error:
        ours = target.is_relative_to(state_dir())
        raise UnusableError(
            f"cannot write {target}: {error.strerror}; the previous file, if any, is "
            f"intact (choose another place with {'CLOUDCOLL_HOME' if ours else '-o'})"
        ) from error
    finally:
        # After the rename there is nothing left to remove.
        with contextlib.suppress(OSError):
            temporary.unlink()


def is_stream(path: Path) -> bool:
    """Return whether there is a device or a pipe, or an open file of a process.

    Another file in the place of /dev/null would harm every program of the machine.
    A link elsewhere that leads to a device is none.
    """
    if os.path.realpath(path.parent).startswith("/proc/"):  # /dev/fd/63 of >(...)
        return True
    if os.path.islink(path):  # /dev/stdout
        return os.readlink(path).startswith("/proc/")
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def _send(path: Path, payload: bytes) -> Path:
    try:
        with open(path, "ab") as file:
            file.write(payload)
    except OSError as error:
        raise UnusableError(f"cannot write {path}: {error.strerror}") from error
    return path
