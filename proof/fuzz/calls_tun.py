# SPDX-License-Identifier: GPL-2.0-only
"""Calls on /dev/net/tun and /dev/tapN: their ioctls, read, write, poll and the like."""

from __future__ import annotations

import os
from collections.abc import Callable

from proof.fuzz.memory import MOST_BYTES, SIZES, Memory, pack
from proof.fuzz.program import Spec, Specs, System, exact, flags, name, num, packet

OPENAT, CLOSE, DUP, IOCTL, FCNTL = 257, 3, 32, 16, 72
READ, WRITE, PREADV2, PWRITEV2 = 0, 1, 327, 328
POLL, EPOLL_CREATE1, EPOLL_CTL = 7, 291, 233
"""System call numbers on x86-64, the lab's only architecture."""
AT_FDCWD = -100
RDWR, NONBLOCK, ASYNC = 2, 0x800, 0x2000

TUN, TAP, MULTI, NO_PI, VNET = 0x0001, 0x0002, 0x0100, 0x1000, 0x4000
_NAPI, _FRAGS, _BACKPRESSURE = 0x10, 0x20, 0x80
ATTACH, DETACH = 0x0200, 0x0400
_ALL = 0xFFF3
"""All IFF_ flags that tun.c knows."""
DEVICES = flags(
    _ALL,
    *(TAP, TUN, TAP | NO_PI, TUN | NO_PI, TAP | MULTI | NO_PI, TUN | MULTI | NO_PI),
    *(TAP | NO_PI | VNET, TAP | MULTI | NO_PI | VNET, TUN | NO_PI | VNET),
    *(TAP | NO_PI | _NAPI, TAP | NO_PI | _NAPI | _FRAGS, TUN | NO_PI | _BACKPRESSURE),
)
QUEUE = ("tun",)
ANY = ("tun", "vhost", "event", "epoll", "udp", "packet", "filter", "link")


def _tun(direction: int, number: int, size: int = 4) -> int:
    return direction << 30 | size << 16 | ord("T") << 8 | number


def ioctl(request: int, form: str) -> Callable[..., System]:
    """Return the maker of an ioctl on a file, with a structure of the arguments."""
    return lambda m, fd, *values: (IOCTL, fd, request, m.put(pack(form, *values)))


def opens(path: str) -> Callable[..., System]:
    """Return the maker of an openat() of a file."""
    return lambda m, how: (OPENAT, AT_FDCWD, m.put(path.encode() + b"\0"), how)


def tap_index() -> int:
    """Return the index of this program's macvtap and its /dev/tapN: unique, by the pid."""
    return 1000 + os.getpid()


def _open_tap(m: Memory, how: int) -> System:
    return opens(f"/dev/tap{tap_index()}")(m, how)


def _set(_m: Memory, fd: int, number: int, value: int) -> System:
    return IOCTL, fd, _tun(1, number & 0xFF), value


def _set_at(m: Memory, fd: int, number: int, value: int) -> System:
    return IOCTL, fd, _tun(1, number), m.put(pack("<I", value))


def _get(m: Memory, fd: int, number: int) -> System:
    return IOCTL, fd, _tun(2, number & 0xFF, 16 if number == 219 else 4), m.buffer(40)


def _filter(m: Memory, fd: int, number: int, count: int, value: int) -> System:
    """An ioctl with a struct sock_fprog: one instruction, which returns a number."""
    code = m.put(pack("<HBBI", 6, 0, 0, value))
    return IOCTL, fd, _tun(1, number, 16), m.put(pack("<H6xQ", count, code))


def _bytes(size: int) -> int:
    return min(size & 0xFFFFFFFF, MOST_BYTES)


def _read(m: Memory, fd: int, size: int) -> System:
    return READ, fd, m.buffer(_bytes(size)), _bytes(size)


def _write(m: Memory, fd: int, data: bytes) -> System:
    return WRITE, fd, m.put(data), len(data)


def _vector(m: Memory, at: int, size: int, parts: int) -> tuple[int, int]:
    """Write a struct iovec for each part; return the address of the first, and their number."""
    each = size // parts
    rows = [(at + n * each, each if n < parts - 1 else size - n * each) for n in range(parts)]
    return m.put(b"".join(pack("<QQ", *row) for row in rows)), parts


def _preadv2(m: Memory, fd: int, size: int, parts: int, how: int) -> System:
    return PREADV2, fd, *_vector(m, m.buffer(_bytes(size)), _bytes(size), parts), -1, -1, how


def _pwritev2(m: Memory, fd: int, data: bytes, parts: int, how: int) -> System:
    return PWRITEV2, fd, *_vector(m, m.put(data), len(data), parts), -1, -1, how


def _poll(m: Memory, fd: int, events: int, timeout: int) -> System:
    return POLL, m.put(pack("<IHH", fd, events, 0)), 1, timeout


def _epoll_add(m: Memory, epoll: int, fd: int, events: int) -> System:
    return EPOLL_CTL, epoll, 1, fd, m.put(pack("<IQ", events, 0))


_OPENED = flags(NONBLOCK | ASYNC, RDWR | NONBLOCK, RDWR | NONBLOCK, RDWR)
_NUMBERS = num(*(203, 203, 204, 206, 205, 208, 208), *range(199, 230))
"""TUNSETPERSIST, OWNER, GROUP, LINK, OFFLOAD, and ioctls that take no number."""
_POINTERS = exact(*(212, 216, 216, 220, 222, 218, 226, 226))
"""TUNSETSNDBUF, VNETHDRSZ, VNETLE, VNETBE, IFINDEX, CARRIER."""
_VALUES = num(0, 1, 3, 9, 10, 12, 24, 77, 0x67, 0x1FF, 1000, 4096, 100000)
_SIZE = num(*SIZES)
_PARTS = exact(1, 1, 2, 3, 64)
_RWF = num(8, 0, 1, 0x10, 0x18)
"""8 is RWF_NOWAIT: only such a write goes through the driver's own XDP."""
_POLL = flags(0x8000000D, 1, 5)
_MODES = flags(0xFFFF, 0, NONBLOCK, ASYNC, NONBLOCK | ASYNC)

TUN_CALLS: Specs = {
    "open_tun": Spec(10, (_OPENED,), opens("/dev/net/tun"), "tun"),
    "open_tap": Spec(3, (_OPENED,), _open_tap, "tun"),
    "close": Spec(10, (ANY,), lambda _m, fd: (CLOSE, fd)),
    "dup_tun": Spec(3, (QUEUE,), lambda _m, fd: (DUP, fd), "tun"),
    "tunsetiff": Spec(20, (QUEUE, name, DEVICES), ioctl(_tun(1, 202), "<16sH22x")),
    "tunsetqueue": Spec(30, (QUEUE, flags(_ALL, ATTACH, DETACH)), ioctl(_tun(1, 217), "<16xH22x")),
    "tunset": Spec(25, (QUEUE, _NUMBERS, _VALUES), _set),
    "tunset_at": Spec(25, (QUEUE, _POINTERS, _VALUES), _set_at),
    "tunget": Spec(8, (QUEUE, num(210, 210, 207, 211, 215, 219, 221, 223)), _get),
    "tungetdevnetns": Spec(2, (QUEUE,), lambda _m, fd: (IOCTL, fd, _tun(0, 227, 0)), "space"),
    "tunfilter": Spec(6, (QUEUE, exact(213, 213, 214), num(1, 0, 2), num(0, 20, 65535)), _filter),
    "tunsetsteering": Spec(6, (QUEUE, ("filter",)), ioctl(_tun(2, 224), "<I")),
    "tunsetfilter": Spec(6, (QUEUE, ("filter",)), ioctl(_tun(2, 225), "<I")),
    "read": Spec(40, (ANY, _SIZE), _read, repeats=True),
    "preadv2": Spec(12, (QUEUE, _SIZE, _PARTS, _RWF), _preadv2, repeats=True),
    "write": Spec(15, (QUEUE, packet), _write, repeats=True),
    "pwritev2": Spec(14, (QUEUE, packet, _PARTS, _RWF), _pwritev2, repeats=True),
    "poll": Spec(8, (ANY, _POLL, exact(0, 1, 5)), _poll),
    "epoll_create": Spec(2, (), lambda _m: (EPOLL_CREATE1, 0), "epoll"),
    "epoll_add": Spec(4, (("epoll",), ANY, _POLL), _epoll_add),
    "set_flags": Spec(5, (ANY, _MODES), lambda _m, fd, value: (FCNTL, fd, 4, value)),
}
