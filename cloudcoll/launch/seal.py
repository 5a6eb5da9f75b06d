"""What makes a datagram one of this job's, whoever else can send to its port.

A datagram is ``COOKIE MAC TEXT``. The cookie is the first half of what the job's
secret gives and travels in clear: the kernel drops all that lacks it before it takes
room, so that a flood of strangers' leaves room for the ranks'. The other half is the
key of the MAC, SipHash-2-4 (J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast
short-input PRF", 2012), with 64 bits of tag: whoever reads the network can copy
datagrams of the job, but can't write any. The same is in shim/seal.c, and in shell
for `cloudcoll.launch.wrapper`.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct

COOKIE = 16
"""Digits of the cookie; the secret is this many, then twice as many of the key."""

OPEN = re.compile(rf"([0-9a-f]{{{COOKIE}}}) ([0-9a-f]{{16}}) (.*)", re.DOTALL)

PUBLIC = "0" * (3 * COOKIE)
"""For jobs whose starts share nothing that strangers do not know."""

UDP_HEADER = 8
SO_ATTACH_FILTER = 26
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
"""Of <linux/bpf_common.h>: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ, BPF_RET."""

_MASK = (1 << 64) - 1


def new_secret() -> str:
    """Return a secret that nobody can guess."""
    # Not by `secrets`, whose import takes longer.
    return os.urandom(COOKIE // 2 * 3).hex()


def siphash(key: tuple[int, int], data: bytes) -> int:
    """Return the SipHash-2-4 of `data`.

    The key's halves of 64 bits are each in little-endian order of its bytes.
    """
    a, b = key[0] ^ 0x736F6D6570736575, key[1] ^ 0x646F72616E646F6D
    c, d = key[0] ^ 0x6C7967656E657261, key[1] ^ 0x7465646279746573
    last = bytes(-(len(data) + 1) % 8) + bytes([len(data) & 255])
    padded = data + last
    words = struct.unpack(f"<{len(padded) // 8}Q", padded)
    # Four rounds at the end, with 255 in place of a word.
    for rounds, before, after in (*((2, word, word) for word in words), (4, 0, 0)):
        d ^= before
        c ^= 255 if rounds == 4 else 0
        for _ in range(rounds):
            a, c = a + b & _MASK, c + d & _MASK
            b, d = (b << 13 & _MASK | b >> 51) ^ a, (d << 16 & _MASK | d >> 48) ^ c
            a = a << 32 & _MASK | a >> 32
            c, a = c + b & _MASK, a + d & _MASK
            b, d = (b << 17 & _MASK | b >> 47) ^ c, (d << 21 & _MASK | d >> 43) ^ a
            c = c << 32 & _MASK | c >> 32
        a ^= after
    return a ^ b ^ c ^ d


class Seal:
    """Closes and opens the datagrams of one job, by a secret of `new_secret`."""

    def __init__(self, secret: str) -> None:
        key = secret[COOKIE:]
        self.cookie = secret[:COOKIE]
        self._key = int(key[:16], 16), int(key[16:], 16)

    def mac(self, text: str) -> str:
        """Return the MAC of a text, as 16 digits."""
        return f"{siphash(self._key, text.encode('ascii', 'replace')):016x}"

    def close(self, text: str, covered: str = "") -> bytes:
        """Return the datagram with a text; the MAC is of `covered`, if given."""
        return f"{self.cookie} {self.mac(covered or text)} {text}".encode()

    def open(self, data: bytes) -> str | None:
        """Return the text of a datagram, None if it is not one of this job's."""
        found = OPEN.fullmatch(data.decode("ascii", "replace"))
        if not found or found[1] != self.cookie:
            return None
        # Numbers, so that how long it takes does not tell how much is right.
        wrong = int(found[2], 16) ^ int(self.mac(found[3]), 16)
        return None if wrong else found[3]

    def guard(self, own: socket.socket) -> None:
        """Have the kernel drop what lacks the cookie: it takes no room of a socket."""
        import ctypes

        words = struct.unpack(f">{COOKIE // 4}I", self.cookie.encode())
        code = []
        for at, word in enumerate(words):
            code += [
                (LOAD, 0, 0, UDP_HEADER + 4 * at),
                (JUMP_IF_EQUAL, 0, 2 * (len(words) - at) - 1, word),
            ]
        code += [(RETURN, 0, 0, 0xFFFFFFFF), (RETURN, 0, 0, 0)]
        text = b"".join(struct.pack("HBBI", *one) for one in code)
        held = ctypes.create_string_buffer(text, len(text))
        program = struct.pack("HP", len(code), ctypes.addressof(held))
        # Where a sandbox has no filters, strangers' are dropped when they are read.
        with contextlib.suppress(OSError):
            own.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
