# SPDX-License-Identifier: GPL-2.0-only
"""Calls on /dev/vhost-net, and a virtual machine's accesses to its rings."""

from __future__ import annotations

import ctypes

from proof.fuzz.calls_tun import IOCTL, NONBLOCK, RDWR, WRITE, ioctl, opens
from proof.fuzz.memory import END, MEMORY, MEMORY_LEN, PAGE, VHOST, Memory, pack
from proof.fuzz.program import Spec, Specs, System, exact, flags, num, packet

EVENTFD2, SCHED_YIELD = 290, 24
_WRITE, _BOTH = 1 << 30, 3 << 30
_RING = 0x10000
"""Distance of two rings in the virtual machine's memory, bytes."""
_AVAIL, _USED, _BUFFERS = 0x1000, 0x2000, 0x4000
_BUFFER = 0x200
_LOG = VHOST + 0x80000
SLOTS = 64
"""Maximum slots of a ring."""
RX, TX = 0, 1
DESC_NEXT, DESC_WRITE = 1, 2

MRG_RXBUF, EVENT_IDX = 1 << 15, 1 << 29
VERSION_1, NET_HDR = 1 << 32, 1 << 27
_LOG_ALL, _INDIRECT, _IN_ORDER, _NOTIFY_ON_EMPTY = 1 << 26, 1 << 28, 1 << 35, 1 << 24
_BITS = MRG_RXBUF | EVENT_IDX | VERSION_1 | NET_HDR
_FEATURES = flags(
    _BITS | _LOG_ALL | _INDIRECT | _IN_ORDER | _NOTIFY_ON_EMPTY,
    *(0, NET_HDR, VERSION_1, VERSION_1 | NET_HDR, VERSION_1 | MRG_RXBUF, MRG_RXBUF),
    *(VERSION_1 | EVENT_IDX | MRG_RXBUF, _LOG_ALL),
)

_VHOST = ("vhost",)
_EVENT = ("event",)
_INDEX = num(0, 1, 0, 1, 2)


def _v(direction: int, number: int, size: int) -> int:
    return direction | size << 16 | 0xAF << 8 | number


def _state(m: Memory, fd: int, number: int, index: int, value: int) -> System:
    """An ioctl with a struct vhost_vring_state; 0x112 is VHOST_GET_VRING_BASE."""
    request = _v(_BOTH if number == 0x112 else _WRITE, number & 0xFF, 8)
    return IOCTL, fd, request, m.put(pack("<II", index, value))


def _mem_table(m: Memory, fd: int, count: int) -> System:
    """Set ``count`` regions; the first maps all of the memory, at the same addresses."""
    regions = [(MEMORY, MEMORY_LEN, MEMORY, 0), *[(END, PAGE, MEMORY, 0)] * 63]
    table = b"".join(pack("<QQQQ", *row) for row in regions)
    return IOCTL, fd, _v(_WRITE, 0x03, 8), m.put(pack("<II", count, 0) + table)


def _vring_addr(m: Memory, fd: int, index: int, how: int, shift: int) -> System:
    at = VHOST + (index & 1) * _RING
    request = pack("<IIQQQQ", index, how, at, at + _USED + shift, at + _AVAIL, _LOG)
    return IOCTL, fd, _v(_WRITE, 0x11, 40), m.put(request)


def _write(at: int, data: bytes) -> None:
    ctypes.memmove(at, data, len(data))


def _offer(_m: Memory, ring: int, count: int, size: int, how: int, first: int) -> System:
    """Write descriptors and make them available; return a system call without effect."""
    at, count = VHOST + (ring & 1) * _RING, count % (SLOTS + 1)
    rows = (
        pack("<QIHH", at + _BUFFERS + n * _BUFFER, size, how, (n + 1) % SLOTS) for n in range(count)
    )
    _write(at, b"".join(rows))
    _write(at + _AVAIL + 4, b"".join(pack("<H", n) for n in range(count)))
    _write(at + _AVAIL, pack("<HH", 0, first + count))
    return (SCHED_YIELD,)


def _fill(_m: Memory, data: bytes) -> System:
    """Put a packet into the first buffers of the TX ring."""
    _write(VHOST + TX * _RING + _BUFFERS, data[: 4 * _BUFFER])
    return (SCHED_YIELD,)


def _signal(m: Memory, fd: int, count: int) -> System:
    return WRITE, fd, m.put(pack("<II", count, 0)), 8


_STATES = exact(*(0x10, 0x10, 0x12, 0x112, 0x13))
"""VHOST_SET_VRING_NUM, _BASE, VHOST_GET_VRING_BASE, VHOST_SET_VRING_ENDIAN."""
_COUNTS = num(0, 1, 2, 3, 5, 8, 63, 64, 1000, 32768, 65535)
_SHIFTS = num(0, 0, 0, 1, 4, -(1 << 20), 1 << 20, bits=40)
_OFFERED = num(_BUFFER, 0, 1, 10, 12, 60, 2000, 65536)
_HOW = num(DESC_WRITE, 0, DESC_WRITE | DESC_NEXT, DESC_NEXT, 4)
_FIRST = num(0, 1, 60, 65535)

VHOST_CALLS: Specs = {
    "open_vhost": Spec(6, (exact(RDWR, RDWR | NONBLOCK),), opens("/dev/vhost-net"), "vhost"),
    "owner": Spec(9, (_VHOST, exact(1, 2)), lambda _m, fd, n: (IOCTL, fd, 0xAF << 8 | n)),
    "set_features": Spec(10, (_VHOST, _FEATURES), ioctl(_v(_WRITE, 0x00, 8), "<Q")),
    "set_mem_table": Spec(6, (_VHOST, num(1, 0, 2, 64, 65)), _mem_table),
    "vring_state": Spec(30, (_VHOST, _STATES, _INDEX, _COUNTS), _state),
    "set_vring_addr": Spec(10, (_VHOST, _INDEX, num(0, 0, 1), _SHIFTS), _vring_addr),
    "set_vring_fd": Spec(20, (_VHOST, exact(0x20, 0x20, 0x21, 0x22), _INDEX, _EVENT), _state),
    "set_busyloop": Spec(5, (_VHOST, exact(0x23), _INDEX, exact(0, 1, 50, 1000)), _state),
    "set_backend": Spec(30, (_VHOST, _INDEX, ("tun",)), ioctl(_v(_WRITE, 0x30, 8), "<II")),
    "eventfd": Spec(3, (exact(NONBLOCK),), lambda _m, how: (EVENTFD2, 0, how), "event"),
    "signal": Spec(20, (_EVENT, num(1, 0, 0xFFFFFFFF)), _signal, repeats=True),
    "offer": Spec(20, (exact(RX, TX), num(1, 2, 8, SLOTS), _OFFERED, _HOW, _FIRST), _offer),
    "fill": Spec(8, (packet,), _fill),
}
