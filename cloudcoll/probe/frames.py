"""Frames between the driver and an agent: capped, JSON, every field checked.

``probes/README.md`` says what each type holds. The other end is another
machine: nothing it sends is believed before it has been checked here.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any

from cloudcoll.files import NOT_JSON, strict_json
from cloudcoll.hosts.names import ipv6, is_host_name

MAGIC = b"\ncloudcoll-agent 1\n"
"""What an agent writes first; all before it is somebody's banner."""
BANNER_LIMIT = 64 << 10
FRAME_LIMIT = 1 << 20
TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})?")
"""When a lock was taken; nothing, if its owner has not written that yet."""

Frame = dict[str, Any]
Check = Callable[[Any], bool]


class FrameError(ValueError):
    """Bytes that are not a frame of this protocol."""


def _whole(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _seconds(high: float) -> Check:
    return lambda value: type(value) in (int, float) and 0 <= value <= high


def _text(limit: int) -> Check:
    return lambda value: isinstance(value, str) and len(value) <= limit


def _address(value: Any) -> bool:
    """Return whether it is empty or an address: maps keep it for launchers."""
    return isinstance(value, str) and (
        not value or is_host_name(value) or ipv6(value[:100]) is not None
    )


def _time(value: Any) -> bool:
    return isinstance(value, str) and TIME.fullmatch(value) is not None


def _wholes(limit: int, high: int) -> Check:
    return lambda value: (
        isinstance(value, list)
        and len(value) <= limit
        and {*map(type, value)} <= {int}
        and (not value or 0 <= min(value) <= max(value) <= high)
    )


_MEETING = {"slot": _whole(0, 1 << 32), "peer": _whole(0, 1 << 16)}
_PORT = _whole(1, (1 << 16) - 1)

TYPES: dict[str, dict[str, Check]] = {
    "hello": {
        "python": _text(32),
        "hostname": _text(255),
        "pid": _whole(1, 1 << 32),
        "boot_id": _text(64),
        "cpus": _whole(1, 1 << 16),
        "load": _seconds(1e9),
    },
    "busy": {"pid": _whole(0, 1 << 32), "since": _time},
    "ports": {"udp": _PORT, "tcp": _PORT, "unlocked": _text(200)},
    "ready": {"unknown": _wholes(1 << 16, 1 << 16), "next": _address},
    "rtt": {
        **_MEETING,
        "sent": _whole(0, 1 << 20),
        "ns": _wholes(10_000, 60 * 10**9),
    },
    "flow": {**_MEETING, "windows": _wholes(60_000, 1 << 50)},
    "starved": _MEETING,
    "trouble": {**_MEETING, "text": _text(200)},
    "done": {
        "steal_s": _seconds(1e9),
        "cpu_s": _seconds(1e9),
        "voluntary": _whole(0, 1 << 50),
        "involuntary": _whole(0, 1 << 50),
        "sent": _whole(0, 1 << 50),
    },
    "sent": {"bytes": _whole(0, 1 << 50)},
}
"""Type -> field -> whether a value is one."""


def encode(kind: str, /, **fields: object) -> bytes:
    """Return a frame as bytes; FrameError if it is larger than `FRAME_LIMIT`."""
    body = json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()
    if len(body) > FRAME_LIMIT:
        raise FrameError(f"{kind} frame of {len(body)} bytes (at most {FRAME_LIMIT})")
    return struct.pack("!I", len(body)) + body


class Decoder:
    """Turns an agent's output, in pieces of any size, into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._greeted = False

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete with `data`.

        FrameError for no greeting within `BANNER_LIMIT`, or a frame that is too long,
        not JSON, of unknown type or with a field that is not as it must.
        """
        self._bytes += data
        if not self._greeted and not self._skip_banner():
            return []
        frames = []
        while len(self._bytes) >= 4:
            (size,) = struct.unpack_from("!I", self._bytes)
            if size > FRAME_LIMIT:
                raise FrameError(f"frame of {size} bytes (at most {FRAME_LIMIT})")
            if len(self._bytes) < 4 + size:
                break
            frames.append(check(parse(bytes(self._bytes[4 : 4 + size]))))
            del self._bytes[: 4 + size]
        return frames

    def _skip_banner(self) -> bool:
        before, magic, after = self._bytes.partition(MAGIC)
        if len(before) > BANNER_LIMIT:
            raise FrameError(f"no agent in {BANNER_LIMIT >> 10} KiB of other output")
        if magic:
            self._bytes, self._greeted = after, True
        return self._greeted


def parse(body: bytes) -> Any:
    """Return what a frame's JSON holds, or raise FrameError; see `check`."""
    try:
        return strict_json(body)
    except NOT_JSON as error:
        raise FrameError(f"frame that is not JSON: {body[:40]!r}") from error


def check(value: Any) -> Frame:
    """Return the fields of a frame, all of which are as `TYPES` says, or FrameError."""
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in TYPES:
        raise FrameError(f"frame of unknown type {str(kind)[:40]!r}")
    for name, is_valid in TYPES[kind].items():
        if not is_valid(value.get(name)):
            raise FrameError(f"{kind} frame with {name} {str(value.get(name))[:40]!r}")
    return {name: value[name] for name in ("type", *TYPES[kind])}
