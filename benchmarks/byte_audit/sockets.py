"""What this host sent to each other one, by the kernel's own counters.

For programs on the lab's hosts. Read it while the
connections in question are open: a closed one takes its counters with it.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

import psutil

# Names and layouts of linux/{netlink,sock_diag,inet_diag,tcp}.h.
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR = 2
NLMSG_DONE = 3
INET_DIAG_INFO = 2
ALL_STATES = 0xFFF

HEADER = struct.Struct("=IHHII")
REQUEST = struct.Struct("=BBBxI48x")
MESSAGE = struct.Struct("=4xI16s16s20xI8x")
ATTRIBUTE = struct.Struct("=HH")
ACKNOWLEDGED, NOT_SENT, SENT, RESENT = 120, 144, 200, 208
"""Offsets in ``struct tcp_info`` of Linux 4.19 or later."""

HEADERS = 66
"""Bytes of Ethernet, IPv4 and TCP with time stamps in front of each packet."""
TCP6 = "/proc/self/net/tcp6"
BUFFER = 1 << 18
DEADLINE = 10.0
"""Seconds that the kernel may take to answer."""


def bytes_sent() -> dict[str, int]:
    """Return the bytes that TCP connections of this network namespace have sent.

    Returns
    -------
    dict of str to int
        IPv4 or IPv6 address of the other end -> payload bytes, each counted
        once however often it was sent, with those that the kernel still holds.
        Connections within the host are left out.

    Raises
    ------
    OSError
        The kernel does not answer, or refuses.
    """
    total: Counter[str] = Counter()
    # Sockets of the second family may talk IPv4; not every kernel has it.
    families = [socket.AF_INET, socket.AF_INET6][: 1 + os.path.exists(TCP6)]
    for family in families:
        for source, destination, sent in _connections(family):
            if source != destination:
                total[destination] += sent
    return dict(total)


def card_payload(device: str = "eth0") -> int:
    """Return the bytes that left through a card, without the headers.

    Headers are taken to be those of a TCP packet with its time stamps.
    To be held against `bytes_sent`: what the open connections do not explain
    was sent by other means.

    Raises
    ------
    OSError
        There is no such card.
    """
    cards = psutil.net_io_counters(pernic=True)
    if device not in cards:
        raise OSError(errno.ENODEV, f"no network card {device!r} here")
    sent = cards[device]
    return int(sent.bytes_sent - HEADERS * sent.packets_sent)


def _connections(family: int) -> Iterator[tuple[str, str, int]]:
    """Yield addresses of both ends and bytes sent, for each TCP socket."""
    for message in _dump(family):
        _, *ends, queued = MESSAGE.unpack_from(message)
        info = _attribute(message[MESSAGE.size :], INET_DIAG_INFO)
        if len(info) >= RESENT + 8:  # not for a listening socket
            (acknowledged,) = struct.unpack_from("=Q", info, ACKNOWLEDGED)
            (not_sent,) = struct.unpack_from("=I", info, NOT_SENT)
            sent, resent = struct.unpack_from("=QQ", info, SENT)
            source, destination = (_address(family, end) for end in ends)
            # Neither is ever too low. The first counts again what the host's own
            # queue dropped; the second a handshake, and what is acknowledged
            # between the kernel's reading of its two parts.
            written = min(sent - resent + not_sent, acknowledged + queued)
            yield source, destination, written


def _dump(family: int) -> Iterator[bytes]:
    """Yield an ``inet_diag_msg`` with its attributes for each TCP socket."""
    wanted = 1 << (INET_DIAG_INFO - 1)
    request = REQUEST.pack(family, socket.IPPROTO_TCP, wanted, ALL_STATES)
    length = HEADER.size + len(request)
    header = HEADER.pack(length, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 0, 0)
    kind = (socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
    with socket.socket(*kind) as kernel:
        kernel.settimeout(DEADLINE)
        kernel.sendto(header + request, (0, 0))
        while True:
            data = kernel.recv(BUFFER)
            while data:
                length, what, *_ = HEADER.unpack_from(data)
                body = data[HEADER.size : length]
                if what == NLMSG_DONE:
                    return
                if what == NLMSG_ERROR:
                    (code,) = struct.unpack_from("=i", body)
                    raise OSError(-code, f"no list of sockets: {os.strerror(-code)}")
                yield body
                data = data[_aligned(length) :]


def _attribute(data: bytes, wanted: int) -> bytes:
    """Return the content of one netlink attribute, empty if it is not there."""
    while data:
        length, kind = ATTRIBUTE.unpack_from(data)
        if kind == wanted:
            return data[ATTRIBUTE.size : length]
        data = data[_aligned(length) :]
    return b""


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _address(family: int, packed: bytes) -> str:
    if family == socket.AF_INET:
        return str(IPv4Address(packed[:4]))
    address = IPv6Address(packed)
    return str(address.ipv4_mapped or address)
