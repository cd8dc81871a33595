# SPDX-License-Identifier: GPL-2.0-only
"""The calls of /dev/vhost-net, and what a virtual machine does with its rings."""

from __future__ import annotations

import struct

from nodrop.guest.fuzz.calls_tun import AT_FDCWD, IOCTL, OPENAT, RDWR, WRITE
from nodrop.guest.fuzz.grammar import Args, Exact, Fd, Flags, Made, Make, Num, Packet, Spec
from nodrop.guest.fuzz.memory import END, VHOST, Memory
from nodrop.guest.fuzz.wire import MEMORY, MEMORY_LEN

EVENTFD2, SCHED_YIELD = 290, 24
_NONE, _WRITE, _READ, _BOTH = 0, 1 << 30, 2 << 30, 3 << 30
_RING = 0x10000
"""Bytes between two rings in the virtual machine's memory."""
_AVAIL, _USED, _BUFFERS = 0x1000, 0x2000, 0x4000
_BUFFER = 0x200
SLOTS = 64
"""Of a ring, at most."""
RX, TX = 0, 1
DESC_NEXT, DESC_WRITE = 1, 2

FEATURES = {
    "LOG_ALL": 1 << 26,
    "NET_HDR": 1 << 27,
    "MRG_RXBUF": 1 << 15,
    "INDIRECT": 1 << 28,
    "EVENT_IDX": 1 << 29,
    "VERSION_1": 1 << 32,
    "IOMMU": 1 << 33,
    "IN_ORDER": 1 << 35,
    "NOTIFY_ON_EMPTY": 1 << 24,
}
_SETS = (
    *(0, 1 << 27, 1 << 32, 1 << 32 | 1 << 27, 1 << 32 | 1 << 15, 1 << 32 | 1 << 29 | 1 << 15),
    *(1 << 15, 1 << 26, 1 << 33 | 1 << 32),
)

_VHOST = Fd(("vhost",))
_EVENT = Fd(("event",))
_INDEX = Num((0, 1, 0, 1, 2))


def _number(direction: int, number: int, size: int = 0) -> int:
    return direction | size << 16 | 0xAF << 8 | number


def _plain(number: int) -> Make:
    return lambda _m, v: Made(IOCTL, (v.fd(0), _number(_NONE, number)))


def _by_pointer(direction: int, number: int, form: str) -> Make:
    """An ioctl with a structure of numbers, each an argument."""
    size = struct.calcsize(form)
    widths = [8 if letter == "Q" else 4 for letter in form.strip("<")]

    def make(m: Memory, v: Args) -> Made:
        numbers = [v.num(1 + n) & ((1 << width * 8) - 1) for n, width in enumerate(widths)]
        return Made(
            IOCTL, (v.fd(0), _number(direction, number, size), m.put(struct.pack(form, *numbers)))
        )

    return make


def _file(number: int) -> Make:
    """An ioctl with a struct vhost_vring_file."""

    def make(m: Memory, v: Args) -> Made:
        data = m.put(struct.pack("<Ii", v.num(1) & 0xFFFFFFFF, 0), {4: v.fd(2)})
        return Made(IOCTL, (v.fd(0), _number(_WRITE, number, 8), data))

    return make


def _log_fd(m: Memory, v: Args) -> Made:
    return Made(IOCTL, (v.fd(0), _number(_WRITE, 0x07, 4), m.put(bytes(4), {0: v.fd(1)})))


def _open_vhost(m: Memory, v: Args) -> Made:
    return Made(OPENAT, (AT_FDCWD, m.put(b"/dev/vhost-net\0"), v.num(0)))


def _mem_table(m: Memory, v: Args) -> Made:
    """So many regions; the first one is all of the memory, at the same addresses."""
    count = v.num(1) & 0xFFFFFFFF
    regions = [(MEMORY, MEMORY_LEN, MEMORY, 0)]
    regions += [(END + n * 4096, v.num(2) & 0xFFFFFFFF, MEMORY, 0) for n in range(1, 4)]
    rows = b"".join(struct.pack("<4Q", *row) for row in regions[: min(count, 4)])
    return Made(
        IOCTL,
        (v.fd(0), _number(_WRITE, 0x03, 8), m.put(struct.pack("<II", count, 0) + rows)),
    )


def _vring_addr(m: Memory, v: Args) -> Made:
    index = v.num(1) & 0xFFFFFFFF
    at = VHOST + (index & 1) * _RING
    used = at + _USED + v.num(3)
    request = struct.pack(
        "<IIQQQQ",
        index,
        v.num(2) & 0xFFFFFFFF,
        at,
        used & ((1 << 64) - 1),
        at + _AVAIL,
        VHOST + 0x80000,
    )
    return Made(IOCTL, (v.fd(0), _number(_WRITE, 0x11, 40), m.put(request)))


def _offer(m: Memory, v: Args) -> Made:
    """Write descriptors and offer them; a system call is made that does nothing."""
    ring, count, size = v.num(0) & 1, v.num(1) % (SLOTS + 1), v.num(2) & 0xFFFFFFFF
    flags, first = v.num(3) & 0xFFFF, v.num(4) & 0xFFFF
    at = VHOST + ring * _RING
    rows = (
        struct.pack(
            "<QIHH",
            at + _BUFFERS + n * _BUFFER,
            size,
            flags,
            (n + 1) % SLOTS,
        )
        for n in range(count)
    )
    m.at(at, b"".join(rows))
    m.at(at + _AVAIL + 4, b"".join(struct.pack("<H", n) for n in range(count)))
    m.at(at + _AVAIL, struct.pack("<HH", 0, (first + count) & 0xFFFF))
    return Made(SCHED_YIELD)


def _fill(m: Memory, v: Args) -> Made:
    """Put a packet into the first buffers of the ring that sends."""
    packet = v.bytes(0)[: 4 * _BUFFER]
    m.at(VHOST + TX * _RING + _BUFFERS, packet)
    return Made(SCHED_YIELD)


def _signal(m: Memory, v: Args) -> Made:
    return Made(WRITE, (v.fd(0), m.put(struct.pack("<Q", v.num(1) & 0xFFFFFFFF)), 8))


def _iotlb(m: Memory, v: Args) -> Made:
    """A struct vhost_msg_v2: update, invalidate or miss of a part of the memory."""
    kind, size = v.num(1) & 0xFF, v.num(2) & 0xFFFFFFFF
    body = struct.pack("<QQQBB6x", MEMORY, size, MEMORY, 3, kind)
    message = struct.pack("<II", 2, 0) + body.ljust(64, b"\0")
    return Made(WRITE, (v.fd(0), m.put(message), len(message)))


VHOST_CALLS = (
    Spec("open_vhost", (Exact((RDWR, RDWR | 0x800)),), _open_vhost, makes="vhost", weight=6),
    Spec("set_owner", (_VHOST,), _plain(0x01), weight=4),
    Spec("reset_owner", (_VHOST,), _plain(0x02), weight=5),
    Spec("get_features", (_VHOST, Num((0,), 64)), _by_pointer(_READ, 0x00, "<Q"), weight=1),
    Spec("set_features", (_VHOST, Flags(FEATURES, _SETS)), _by_pointer(_WRITE, 0x00, "<Q")),
    Spec(
        "set_backend_features",
        (_VHOST, Num((2, 0, 1), 64)),
        _by_pointer(_WRITE, 0x25, "<Q"),
        weight=3,
    ),
    Spec("get_backend_features", (_VHOST, Num((0,), 64)), _by_pointer(_READ, 0x26, "<Q"), weight=1),
    Spec("set_mem_table", (_VHOST, Num((1, 0, 2, 4, 65)), Num((4096, 0, 1))), _mem_table, weight=6),
    Spec("set_log_base", (_VHOST, Num((VHOST + 0x80000, 0), 64)), _by_pointer(_WRITE, 4, "<Q")),
    Spec("set_log_fd", (_VHOST, _EVENT), _log_fd, weight=2),
    Spec(
        "set_vring_num",
        (_VHOST, _INDEX, Num((SLOTS, 1, 2, 8, 0, 3, 32768, 65536))),
        _by_pointer(_WRITE, 0x10, "<II"),
    ),
    Spec(
        "set_vring_base",
        (_VHOST, _INDEX, Num((0, 1, 5, 63, 65535))),
        _by_pointer(_WRITE, 0x12, "<II"),
    ),
    Spec("get_vring_base", (_VHOST, _INDEX, Num((0,))), _by_pointer(_BOTH, 0x12, "<II"), weight=3),
    Spec(
        "set_vring_addr",
        (_VHOST, _INDEX, Num((0, 0, 1)), Num((0, 0, 0, 1, 4, -(1 << 20), 1 << 20), 40)),
        _vring_addr,
    ),
    Spec(
        "set_vring_endian",
        (_VHOST, _INDEX, Num((0, 1))),
        _by_pointer(_WRITE, 0x13, "<II"),
        weight=2,
    ),
    Spec(
        "get_vring_endian", (_VHOST, _INDEX, Num((0,))), _by_pointer(_WRITE, 0x14, "<II"), weight=1
    ),
    Spec(
        "set_busyloop",
        (_VHOST, _INDEX, Exact((0, 1, 50, 1000))),
        _by_pointer(_WRITE, 0x23, "<II"),
        weight=5,
    ),
    Spec("set_vring_kick", (_VHOST, _INDEX, _EVENT), _file(0x20), weight=12),
    Spec("set_vring_call", (_VHOST, _INDEX, _EVENT), _file(0x21), weight=6),
    Spec("set_vring_err", (_VHOST, _INDEX, _EVENT), _file(0x22), weight=3),
    Spec("new_worker", (_VHOST, Num((0,))), _by_pointer(_READ, 0x08, "<I"), weight=3),
    Spec("free_worker", (_VHOST, Num((0, 1, 2))), _by_pointer(_WRITE, 0x09, "<I"), weight=2),
    Spec(
        "attach_worker",
        (_VHOST, _INDEX, Num((0, 1, 2))),
        _by_pointer(_WRITE, 0x15, "<II"),
        weight=3,
    ),
    Spec("get_worker", (_VHOST, _INDEX, Num((0,))), _by_pointer(_BOTH, 0x16, "<II"), weight=1),
    Spec("set_backend", (_VHOST, _INDEX, Fd(("tun",))), _file(0x30), weight=30),
    Spec("write_iotlb", (_VHOST, Num((2, 3, 1, 4)), Num((MEMORY_LEN, 0, 4096))), _iotlb, weight=3),
    Spec(
        "eventfd",
        (Exact((0x800,)),),
        lambda _m, v: Made(EVENTFD2, (0, v.num(0))),
        makes="event",
        weight=3,
    ),
    Spec("signal", (_EVENT, Num((1, 0, 0xFFFFFFFF))), _signal, weight=20, repeats=True),
    Spec(
        "offer",
        (
            Exact((RX, TX)),
            Num((1, 2, 8, SLOTS)),
            Num((_BUFFER, 0, 1, 10, 12, 60, 2000, 65536)),
            Num((DESC_WRITE, 0, DESC_WRITE | DESC_NEXT, DESC_NEXT, 4)),
            Num((0, 1, 60, 65535)),
        ),
        _offer,
        weight=20,
    ),
    Spec("fill", (Packet(),), _fill, weight=8),
)
