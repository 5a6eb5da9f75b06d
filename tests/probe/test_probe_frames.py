from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.probe.frames import (
    BANNER_LIMIT,
    FRAME_LIMIT,
    MAGIC,
    TYPES,
    Decoder,
    FrameError,
    encode,
)

HELLO = {
    "python": "3.11.2",
    "hostname": "vm-1",
    "pid": 17,
    "boot_id": "",
    "cpus": 2,
    "load": 0.5,
}
DONE = {"steal_s": 0.0, "cpu_s": 1, "voluntary": 3, "involuntary": 4, "sent": 5}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def raw(body: bytes) -> bytes:
    return MAGIC + struct.pack("!I", len(body)) + body


@given(st.binary(max_size=200), st.data())
def test_pieces_make_no_difference(banner: bytes, data: st.DataObject) -> None:
    """Tests that frames come out however the bytes were cut, banner or not."""
    stream = banner.replace(MAGIC, b"") + MAGIC
    stream += encode("hello", **HELLO) + encode("done", **DONE)
    decoder, frames, at = Decoder(), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, len(stream) - at))
        frames += decoder.feed(stream[at : at + step])
        at += step
    assert frames == [{"type": "hello", **HELLO}, {"type": "done", **DONE}]


@given(st.binary(max_size=400))
def test_junk_is_an_error_or_nothing(body: bytes) -> None:
    """Tests that bytes that are no frame never do anything but `FrameError`."""
    for data in (body, MAGIC + body, raw(body)):
        decoder = Decoder()
        try:
            assert decoder.feed(data) == []
        except FrameError:
            continue


@given(st.sampled_from(sorted(TYPES)), st.dictionaries(st.text(), anything), anything)
def test_fields_of_any_kind(kind: str, extra: dict[str, Any], value: object) -> None:
    """Tests that a frame whose fields are arbitrary JSON is an error."""
    frame = {**extra, **dict.fromkeys(TYPES[kind], value), "type": kind}
    try:
        (decoded,) = Decoder().feed(raw(json.dumps(frame).encode()))
    except FrameError:
        return
    checks = TYPES[kind]
    assert set(decoded) == {"type", *checks}
    assert all(check(decoded[name]) for name, check in checks.items())


@given(st.sampled_from(sorted(HELLO)), anything)
def test_one_wrong_field(name: str, value: object) -> None:
    """Tests that a `hello` with one field changed is whole or refused."""
    body = json.dumps({"type": "hello", **HELLO, name: value}).encode()
    if TYPES["hello"][name](json.loads(body)[name]):
        assert Decoder().feed(raw(body))[0]["pid"] >= 1
    else:
        with pytest.raises(FrameError, match=name):
            Decoder().feed(raw(body))


@pytest.mark.parametrize(
    "data",
    [
        MAGIC + struct.pack("!I", FRAME_LIMIT + 1),
        raw(b"[" * (FRAME_LIMIT - 1)),
        raw(
            b'{"type":"done","steal_s":NaN,"cpu_s":1,"voluntary":1,"involuntary":1,"sent":1}'
        ),
        raw(
            b'{"type":"done","steal_s":true,"cpu_s":1,"voluntary":1,"involuntary":1,"sent":1}'
        ),
        raw(b'{"type":"exec","argv":["sh"]}'),
        raw(b"\xff\xfe"),
        raw(b"7"),
        b"x" * (BANNER_LIMIT + 1) + MAGIC,
        b"x" * (BANNER_LIMIT + 1 + len(MAGIC)) + MAGIC,
    ],
    ids=["long", "deep", "nan", "bool", "type", "utf8", "bare", "banner", "banner2"],
)
def test_hostile_frames(data: bytes) -> None:
    """Tests that what is oversized, deep or ill-typed is refused."""
    with pytest.raises(FrameError):
        Decoder().feed(data)


def test_an_endless_banner_is_not_kept() -> None:
    """Tests that output without an agent's greeting ends within the limit."""
    decoder = Decoder()
    for _ in range(BANNER_LIMIT // 1024):
        assert decoder.feed(b"x" * 1024) == []
    with pytest.raises(FrameError, match="no agent"):
        decoder.feed(b"x" * 1024)


def test_encode_refuses_what_no_agent_would_take() -> None:
    """Tests that our own frames have the same cap."""
    with pytest.raises(FrameError, match="peers frame"):
        encode("peers", peers=["x" * FRAME_LIMIT])
