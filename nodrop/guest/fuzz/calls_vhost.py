# SPDX-License-Identifier: GPL-2.0-only
"""The calls of /dev/vhost-net, and what a virtual machine does with its rings."""

from __future__ import annotations

from collections.abc import Callable

from nodrop.guest.fuzz.calls_tun import AT_FDCWD, IOCTL, NONBLOCK, OPENAT, RDWR, WRITE, System
from nodrop.guest.fuzz.memory import END, MEMORY, MEMORY_LEN, PAGE, VHOST, Memory, pack
from nodrop.guest.fuzz.program import Spec, exact, flags, num, of, packet

EVENTFD2, SCHED_YIELD = 290, 24
_WRITE, _READ, _BOTH = 1 << 30, 2 << 30, 3 << 30
_RING = 0x10000
"""Bytes between two rings in the virtual machine's memory."""
_AVAIL, _USED, _BUFFERS = 0x1000, 0x2000, 0x4000
_BUFFER = 0x200
_LOG = VHOST + 0x80000
SLOTS = 64
"""Of a ring, at most."""
RX, TX = 0, 1
DESC_NEXT, DESC_WRITE = 1, 2

MRG_RXBUF, EVENT_IDX = 1 << 15, 1 << 29
VERSION_1, IOMMU, NET_HDR = 1 << 32, 1 << 33, 1 << 27
_LOG_ALL, _INDIRECT, _IN_ORDER, _NOTIFY_ON_EMPTY = 1 << 26, 1 << 28, 1 << 35, 1 << 24
_FEATURES = flags(
    MRG_RXBUF
    | EVENT_IDX
    | VERSION_1
    | IOMMU
    | NET_HDR
    | _LOG_ALL
    | _INDIRECT
    | _IN_ORDER
    | _NOTIFY_ON_EMPTY,
    (
        *(0, NET_HDR, VERSION_1, VERSION_1 | NET_HDR, VERSION_1 | MRG_RXBUF, MRG_RXBUF),
        *(VERSION_1 | EVENT_IDX | MRG_RXBUF, _LOG_ALL, VERSION_1 | IOMMU),
    ),
)

_VHOST = of("vhost")
_EVENT = of("event")
_INDEX = num(0, 1, 0, 1, 2)


def _ioctl(direction: int, number: int, form: str) -> Callable[..., System]:
    """An ioctl with a structure of numbers, each an argument."""
    size = len(pack(form, *[0] * (len(form) - 1)))

    def make(m: Memory, fd: int, *values: int) -> System:
        return IOCTL, fd, direction | size << 16 | 0xAF << 8 | number, m.put(pack(form, *values))

    return make


def _plain(number: int) -> Callable[..., System]:
    return lambda _m, fd: (IOCTL, fd, 0xAF << 8 | number)


def _mem_table(m: Memory, fd: int, count: int, size: int) -> System:
    """So many regions; the first one is all of the memory, at the same addresses."""
    regions = [(MEMORY, MEMORY_LEN, MEMORY, 0)]
    regions += [(END + n * PAGE, size & 0xFFFFFFFF, MEMORY, 0) for n in range(1, 4)]
    rows = b"".join(pack("<QQQQ", *row) for row in regions[: min(count & 0xFFFFFFFF, 4)])
    return IOCTL, fd, _WRITE | 8 << 16 | 0xAF << 8 | 0x03, m.put(pack("<II", count, 0) + rows)


def _vring_addr(m: Memory, fd: int, index: int, how: int, shift: int) -> System:
    at = VHOST + (index & 1) * _RING
    request = pack("<IIQQQQ", index, how, at, at + _USED + shift, at + _AVAIL, _LOG)
    return IOCTL, fd, _WRITE | 40 << 16 | 0xAF << 8 | 0x11, m.put(request)


def _offer(m: Memory, ring: int, count: int, size: int, how: int, first: int) -> System:
    """Write descriptors and offer them; a system call is made that does nothing."""
    at, count = VHOST + (ring & 1) * _RING, count % (SLOTS + 1)
    rows = (
        pack("<QIHH", at + _BUFFERS + n * _BUFFER, size, how, (n + 1) % SLOTS) for n in range(count)
    )
    m.at(at, b"".join(rows))
    m.at(at + _AVAIL + 4, b"".join(pack("<H", n) for n in range(count)))
    m.at(at + _AVAIL, pack("<HH", 0, first + count))
    return (SCHED_YIELD,)


def _fill(m: Memory, data: bytes) -> System:
    """Put a packet into the first buffers of the ring that sends."""
    m.at(VHOST + TX * _RING + _BUFFERS, data[: 4 * _BUFFER])
    return (SCHED_YIELD,)


def _iotlb(m: Memory, fd: int, kind: int, size: int) -> System:
    """A struct vhost_msg_v2: update, invalidate or miss of a part of the memory."""
    body = pack("<QQQBB6x", MEMORY, size & 0xFFFFFFFF, MEMORY, 3, kind)
    message = pack("<II", 2, 0) + body.ljust(64, b"\0")
    return WRITE, fd, m.put(message), len(message)


VHOST_CALLS = (
    Spec(
        "open_vhost",
        (exact(RDWR, RDWR | NONBLOCK),),
        lambda m, how: (OPENAT, AT_FDCWD, m.put(b"/dev/vhost-net\0"), how),
        makes="vhost",
        weight=6,
    ),
    Spec("set_owner", (_VHOST,), _plain(0x01), weight=4),
    Spec("reset_owner", (_VHOST,), _plain(0x02), weight=5),
    Spec("get_features", (_VHOST, num(0)), _ioctl(_READ, 0x00, "<Q"), weight=1),
    Spec("set_features", (_VHOST, _FEATURES), _ioctl(_WRITE, 0x00, "<Q")),
    Spec(
        "set_backend_features",
        (_VHOST, num(2, 0, 1, bits=64)),
        _ioctl(_WRITE, 0x25, "<Q"),
        weight=3,
    ),
    Spec("get_backend_features", (_VHOST, num(0)), _ioctl(_READ, 0x26, "<Q"), weight=1),
    Spec("set_mem_table", (_VHOST, num(1, 0, 2, 4, 65), num(4096, 0, 1)), _mem_table, weight=6),
    Spec("set_log_base", (_VHOST, num(_LOG, 0, bits=64)), _ioctl(_WRITE, 0x04, "<Q")),
    Spec("set_log_fd", (_VHOST, _EVENT), _ioctl(_WRITE, 0x07, "<I"), weight=2),
    Spec(
        "set_vring_num",
        (_VHOST, _INDEX, num(SLOTS, 1, 2, 8, 0, 3, 32768, 65536)),
        _ioctl(_WRITE, 0x10, "<II"),
    ),
    Spec("set_vring_base", (_VHOST, _INDEX, num(0, 1, 5, 63, 65535)), _ioctl(_WRITE, 0x12, "<II")),
    Spec("get_vring_base", (_VHOST, _INDEX, num(0)), _ioctl(_BOTH, 0x12, "<II"), weight=3),
    Spec(
        "set_vring_addr",
        (_VHOST, _INDEX, num(0, 0, 1), num(0, 0, 0, 1, 4, -(1 << 20), 1 << 20, bits=40)),
        _vring_addr,
    ),
    Spec("set_vring_endian", (_VHOST, _INDEX, num(0, 1)), _ioctl(_WRITE, 0x13, "<II"), weight=2),
    Spec("get_vring_endian", (_VHOST, _INDEX, num(0)), _ioctl(_WRITE, 0x14, "<II"), weight=1),
    Spec(
        "set_busyloop",
        (_VHOST, _INDEX, exact(0, 1, 50, 1000)),
        _ioctl(_WRITE, 0x23, "<II"),
        weight=5,
    ),
    Spec("set_vring_kick", (_VHOST, _INDEX, _EVENT), _ioctl(_WRITE, 0x20, "<II"), weight=12),
    Spec("set_vring_call", (_VHOST, _INDEX, _EVENT), _ioctl(_WRITE, 0x21, "<II"), weight=6),
    Spec("set_vring_err", (_VHOST, _INDEX, _EVENT), _ioctl(_WRITE, 0x22, "<II"), weight=3),
    Spec("new_worker", (_VHOST, num(0)), _ioctl(_READ, 0x08, "<I"), weight=3),
    Spec("free_worker", (_VHOST, num(0, 1, 2)), _ioctl(_WRITE, 0x09, "<I"), weight=2),
    Spec("attach_worker", (_VHOST, _INDEX, num(0, 1, 2)), _ioctl(_WRITE, 0x15, "<II"), weight=3),
    Spec("get_worker", (_VHOST, _INDEX, num(0)), _ioctl(_BOTH, 0x16, "<II"), weight=1),
    Spec("set_backend", (_VHOST, _INDEX, of("tun")), _ioctl(_WRITE, 0x30, "<II"), weight=30),
    Spec("write_iotlb", (_VHOST, num(2, 3, 1, 4), num(MEMORY_LEN, 0, 4096)), _iotlb, weight=3),
    Spec(
        "eventfd", (exact(NONBLOCK),), lambda _m, how: (EVENTFD2, 0, how), makes="event", weight=3
    ),
    Spec(
        "signal",
        (_EVENT, num(1, 0, 0xFFFFFFFF)),
        lambda m, fd, count: (WRITE, fd, m.put(pack("<Q", count & 0xFFFFFFFF)), 8),
        weight=20,
        repeats=True,
    ),
    Spec(
        "offer",
        (
            exact(RX, TX),
            num(1, 2, 8, SLOTS),
            num(_BUFFER, 0, 1, 10, 12, 60, 2000, 65536),
            num(DESC_WRITE, 0, DESC_WRITE | DESC_NEXT, DESC_NEXT, 4),
            num(0, 1, 60, 65535),
        ),
        _offer,
        weight=20,
    ),
    Spec("fill", (packet,), _fill, weight=8),
)
