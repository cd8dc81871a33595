# SPDX-License-Identifier: GPL-2.0-only
"""The calls of /dev/net/tun: its ioctls, and what one does with such a file."""

from __future__ import annotations

from collections.abc import Callable

from nodrop.guest.fuzz.memory import MOST_BYTES, Memory, pack
from nodrop.guest.fuzz.packets import SIZES
from nodrop.guest.fuzz.program import Spec, exact, flags, name, num, of, packet

System = tuple[int, ...]
"""The number of a system call, and its arguments."""
OPENAT, CLOSE, DUP, IOCTL, FCNTL = 257, 3, 32, 16, 72
READV, WRITEV, READ, WRITE, PREADV2, PWRITEV2 = 19, 20, 0, 1, 327, 328
POLL, EPOLL_CREATE1, EPOLL_CTL, MMAP, SENDFILE = 7, 291, 233, 9, 40
"""Numbers on x86-64, on which the lab runs."""
AT_FDCWD = -100
RDWR, NONBLOCK, ASYNC = 2, 0x800, 0x2000
_OPEN = 3 | NONBLOCK | ASYNC

TUN, TAP, MULTI, NO_PI, VNET = 0x0001, 0x0002, 0x0100, 0x1000, 0x4000
_NAPI, _FRAGS, _BACKPRESSURE = 0x10, 0x20, 0x80
ATTACH, DETACH = 0x0200, 0x0400
_ALL = 0xFFF3
"""All IFF_ flags of tun.c."""
DEVICES = flags(
    _ALL,
    (
        *(TAP, TUN, TAP | NO_PI, TUN | NO_PI, TAP | MULTI | NO_PI, TUN | MULTI | NO_PI),
        *(TAP | NO_PI | VNET, TAP | MULTI | NO_PI | VNET, TUN | NO_PI | VNET),
        *(TAP | NO_PI | _NAPI, TAP | NO_PI | _NAPI | _FRAGS, TUN | NO_PI | _BACKPRESSURE),
    ),
)

_WRITE, _READ = 1 << 30, 2 << 30
QUEUE = of("tun")
ANY = of("tun", "vhost", "event", "epoll", "udp", "packet", "filter", "link", "text")
_SIZE = num(*SIZES)
_BOOL = num(0, 1)
_PARTS = num(1, 2, 3, 64)
_RWF = num(8, 0, 1, 0x10, 0x18)
"""8 is RWF_NOWAIT: only then a write goes through the driver's own XDP."""
_POLL = flags(0x8000000D, (1, 5))


def _tun(direction: int, number: int, size: int = 4) -> int:
    return direction | size << 16 | ord("T") << 8 | number


def _value(number: int) -> Callable[..., System]:
    """An ioctl whose argument is the number itself."""
    return lambda _m, fd, value: (IOCTL, fd, _tun(_WRITE, number), value)


def _pointer(number: int, direction: int = _WRITE) -> Callable[..., System]:
    """An ioctl whose argument is the address of a number."""
    return lambda m, fd, value: (IOCTL, fd, _tun(direction, number), m.put(pack("<I", value)))


def _get(number: int, size: int = 4) -> Callable[..., System]:
    """An ioctl that writes."""
    return lambda m, fd: (IOCTL, fd, _tun(_READ, number, size), m.room(40))


def _filter(number: int) -> Callable[..., System]:
    """An ioctl with a struct sock_fprog: one instruction that returns a number."""

    def make(m: Memory, fd: int, count: int, value: int) -> System:
        code = m.put(pack("<HBBI", 6, 0, 0, value))
        return IOCTL, fd, _tun(_WRITE, number, 16), m.put(pack("<H6xQ", count, code))

    return make


def _setiff(m: Memory, fd: int, device: bytes, value: int) -> System:
    return IOCTL, fd, _tun(_WRITE, 202), m.put(device + pack("<H22x", value))


def _setqueue(m: Memory, fd: int, value: int) -> System:
    return IOCTL, fd, _tun(_WRITE, 217), m.put(bytes(16) + pack("<H22x", value))


def _txfilter(m: Memory, fd: int, value: int, count: int) -> System:
    addresses = b"".join(bytes((2, 0, 0, 0, 0, n)) for n in range(min(count & 0xFFFF, 64)))
    return IOCTL, fd, _tun(_WRITE, 209), m.put(pack("<HH", value, count) + addresses)


def _bytes(size: int) -> int:
    return min(size & 0xFFFFFFFF, MOST_BYTES)


def _vector(m: Memory, at: int, size: int, parts: int) -> tuple[int, int]:
    """Return the address of a struct iovec for each part, and their number."""
    parts = min(max(parts, 1), 64)
    each = size // parts
    rows = [(at + n * each, each) for n in range(parts - 1)]
    rows.append((at + each * (parts - 1), size - each * (parts - 1)))
    return m.put(b"".join(pack("<QQ", *row) for row in rows)), parts


def _readv(m: Memory, fd: int, size: int, parts: int) -> System:
    return READV, fd, *_vector(m, m.room(_bytes(size)), _bytes(size), parts)


def _preadv2(m: Memory, fd: int, size: int, how: int) -> System:
    return PREADV2, fd, *_vector(m, m.room(_bytes(size)), _bytes(size), 1), -1, -1, how


def _writev(m: Memory, fd: int, data: bytes, parts: int) -> System:
    return WRITEV, fd, *_vector(m, m.put(data), len(data), parts)


def _pwritev2(m: Memory, fd: int, data: bytes, how: int) -> System:
    return PWRITEV2, fd, *_vector(m, m.put(data), len(data), 1), -1, -1, how


def _poll(m: Memory, fd: int, events: int, timeout: int) -> System:
    return POLL, m.put(pack("<IHH", fd, events, 0)), 1, timeout


def _epoll_add(m: Memory, epoll: int, fd: int, events: int) -> System:
    return EPOLL_CTL, epoll, 1, fd, m.put(pack("<IQ", events, 0))


TUN_CALLS = (
    Spec(
        "open_tun",
        (flags(_OPEN, (RDWR | NONBLOCK, RDWR | NONBLOCK, RDWR)),),
        lambda m, how: (OPENAT, AT_FDCWD, m.put(b"/dev/net/tun\0"), how),
        makes="tun",
    ),
    Spec("close", (ANY,), lambda _m, fd: (CLOSE, fd)),
    Spec("dup_tun", (QUEUE,), lambda _m, fd: (DUP, fd), makes="tun", weight=3),
    Spec("tunsetiff", (QUEUE, name, DEVICES), _setiff, weight=20),
    Spec("tungetiff", (QUEUE,), _get(210), weight=3),
    Spec("tunsetqueue", (QUEUE, flags(_ALL, (ATTACH, DETACH))), _setqueue, weight=30),
    Spec("tunsetpersist", (QUEUE, _BOOL), _value(203)),
    Spec("tunsetowner", (QUEUE, num(0, 1000)), _value(204), weight=2),
    Spec("tunsetgroup", (QUEUE, num(0, 1000)), _value(206), weight=2),
    Spec("tunsetlink", (QUEUE, num(1, 512, 65534)), _value(205), weight=2),
    Spec("tunsetnocsum", (QUEUE, _BOOL), _value(200), weight=1),
    Spec("tunsetdebug", (QUEUE, num(0)), _value(201), weight=1),
    Spec("tunsetoffload", (QUEUE, num(0, 1, 3, 7, 0xF, 0x67, 0x1FF)), _value(208)),
    Spec("tunsettxfilter", (QUEUE, num(0, 1), num(0, 1, 8, 9, 600)), _txfilter, weight=5),
    Spec("tunsetsndbuf", (QUEUE, num(0, 1, 1000, 100000)), _pointer(212), weight=6),
    Spec("tunsetvnethdrsz", (QUEUE, num(10, 12, 0, 9, 24, 4096)), _pointer(216)),
    Spec("tunsetvnetle", (QUEUE, _BOOL), _pointer(220), weight=3),
    Spec("tunsetvnetbe", (QUEUE, _BOOL), _pointer(222), weight=3),
    Spec("tunsetifindex", (QUEUE, num(0, 1, 77, 1000)), _pointer(218), weight=3),
    Spec("tunsetcarrier", (QUEUE, _BOOL), _pointer(226), weight=8),
    Spec("tungetfeatures", (QUEUE,), _get(207), weight=2),
    Spec("tungetsndbuf", (QUEUE,), _get(211), weight=2),
    Spec("tungetvnethdrsz", (QUEUE,), _get(215), weight=2),
    Spec("tungetvnetle", (QUEUE,), _get(221), weight=1),
    Spec("tungetvnetbe", (QUEUE,), _get(223), weight=1),
    Spec(
        "tungetdevnetns",
        (QUEUE,),
        lambda _m, fd: (IOCTL, fd, _tun(0, 227, 0)),
        makes="space",
        weight=2,
    ),
    Spec("tunattachfilter", (QUEUE, num(1, 0, 2), num(0, 20, 65535)), _filter(213), weight=5),
    Spec("tundetachfilter", (QUEUE, num(1, 0), num(0)), _filter(214), weight=3),
    Spec("tungetfilter", (QUEUE,), _get(219, 16), weight=1),
    Spec("tunsetsteeringebpf", (QUEUE, of("filter")), _pointer(224, _READ), weight=6),
    Spec("tunsetfilterebpf", (QUEUE, of("filter")), _pointer(225, _READ), weight=6),
    Spec(
        "tunioctl",
        (QUEUE, num(*(_tun(_WRITE, n) for n in range(199, 230))), num(0, 1, 4096)),
        lambda _m, fd, number, value: (IOCTL, fd, number & 0xFFFFFFFF, value),
        weight=3,
    ),
    Spec(
        "read",
        (ANY, _SIZE),
        lambda m, fd, size: (READ, fd, m.room(_bytes(size)), _bytes(size)),
        weight=40,
        repeats=True,
    ),
    Spec("readv", (QUEUE, _SIZE, _PARTS), _readv, weight=6, repeats=True),
    Spec("preadv2", (QUEUE, _SIZE, _RWF), _preadv2, weight=6, repeats=True),
    Spec(
        "write",
        (QUEUE, packet),
        lambda m, fd, data: (WRITE, fd, m.put(data), len(data)),
        weight=15,
        repeats=True,
    ),
    Spec("writev", (QUEUE, packet, _PARTS), _writev, weight=6, repeats=True),
    Spec("pwritev2", (QUEUE, packet, _RWF), _pwritev2, weight=8, repeats=True),
    Spec("poll", (ANY, _POLL, exact(0, 1, 5)), _poll, weight=8),
    Spec("epoll_create", (), lambda _m: (EPOLL_CREATE1, 0), makes="epoll", weight=2),
    Spec("epoll_add", (of("epoll"), ANY, _POLL), _epoll_add, weight=4),
    Spec(
        "set_flags",
        (ANY, flags(_OPEN, (0, NONBLOCK, ASYNC, NONBLOCK | ASYNC))),
        lambda _m, fd, value: (FCNTL, fd, 4, value),
        weight=5,
    ),
    Spec("mmap", (ANY,), lambda _m, fd: (MMAP, 0, 4096, 3, 1, fd, 0), weight=1),
    Spec(
        "sendfile",
        (ANY, ANY, _SIZE),
        lambda _m, to, source, size: (SENDFILE, to, source, 0, _bytes(size)),
        weight=2,
    ),
)
