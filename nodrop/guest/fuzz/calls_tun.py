# SPDX-License-Identifier: GPL-2.0-only
"""The calls of /dev/net/tun: its ioctls, and what one does with such a file."""

from __future__ import annotations

import struct

from nodrop.guest.fuzz.grammar import Args, Exact, Fd, Flags, Made, Make, Name, Num, Packet, Spec
from nodrop.guest.fuzz.memory import MOST_BYTES, Memory
from nodrop.guest.fuzz.packets import SIZES

OPENAT, CLOSE, DUP, IOCTL, FCNTL = 257, 3, 32, 16, 72
READV, WRITEV, READ, WRITE, PREADV2, PWRITEV2 = 19, 20, 0, 1, 327, 328
POLL, EPOLL_CREATE1, EPOLL_CTL, MMAP, SENDFILE = 7, 291, 233, 9, 40
"""Numbers on x86-64, which is what the lab runs on."""
AT_FDCWD = -100
RDWR, NONBLOCK, ASYNC = 2, 0x800, 0x2000
OPEN = {"RDONLY": 0, "WRONLY": 1, "RDWR": RDWR, "NONBLOCK": NONBLOCK, "ASYNC": ASYNC}

IFF = {
    "TUN": 0x0001,
    "TAP": 0x0002,
    "NAPI": 0x0010,
    "NAPI_FRAGS": 0x0020,
    "NO_CARRIER": 0x0040,
    "BACKPRESSURE": 0x0080,
    "MULTI_QUEUE": 0x0100,
    "ATTACH": 0x0200,
    "DETACH": 0x0400,
    "PERSIST": 0x0800,
    "NO_PI": 0x1000,
    "ONE_QUEUE": 0x2000,
    "VNET_HDR": 0x4000,
    "EXCL": 0x8000,
}
TAP, TUN, MULTI, NO_PI, VNET = 0x0002, 0x0001, 0x0100, 0x1000, 0x4000
_KINDS = (
    *(TAP, TUN, TAP | NO_PI, TUN | NO_PI, TAP | MULTI | NO_PI, TUN | MULTI | NO_PI),
    *(TAP | NO_PI | VNET, TAP | MULTI | NO_PI | VNET, TUN | NO_PI | VNET),
    *(TAP | NO_PI | 0x10, TAP | NO_PI | 0x30, TUN | NO_PI | 0x80),
)
SETIFF_FLAGS = Flags(IFF, _KINDS)

_WRITE, _READ = 1 << 30, 2 << 30


def _number(direction: int, number: int, size: int = 4) -> int:
    return direction | size << 16 | ord("T") << 8 | number


TUNSETIFF = _number(_WRITE, 202)
TUNSETQUEUE = _number(_WRITE, 217)
QUEUE = Fd(("tun",))
ANY = Fd(("tun", "vhost", "event", "epoll", "udp", "packet", "filter", "link", "text"))
_SIZE = Num(SIZES)
_BOOL = Num((0, 1))


def _open_tun(m: Memory, v: Args) -> Made:
    return Made(OPENAT, (AT_FDCWD, m.put(b"/dev/net/tun\0"), v.num(0)))


def _setiff(m: Memory, v: Args) -> Made:
    request = v.name(1) + struct.pack("<H22x", v.num(2) & 0xFFFF)
    return Made(IOCTL, (v.fd(0), TUNSETIFF, m.put(request)))


def _getiff(m: Memory, v: Args) -> Made:
    return Made(IOCTL, (v.fd(0), _number(_READ, 210), m.room(40)))


def _setqueue(m: Memory, v: Args) -> Made:
    request = bytes(16) + struct.pack("<H22x", v.num(1) & 0xFFFF)
    return Made(IOCTL, (v.fd(0), TUNSETQUEUE, m.put(request)))


def _by_value(direction: int, number: int) -> Make:
    """An ioctl whose argument is the number itself."""
    return lambda _m, v: Made(IOCTL, (v.fd(0), _number(direction, number), v.num(1)))


def _by_pointer(direction: int, number: int) -> Make:
    """An ioctl whose argument is the address of a number."""

    def make(m: Memory, v: Args) -> Made:
        data = m.put(struct.pack("<I", v.num(1) & 0xFFFFFFFF))
        return Made(IOCTL, (v.fd(0), _number(direction, number), data))

    return make


def _get(number: int) -> Make:
    """An ioctl that writes a number."""
    return lambda m, v: Made(IOCTL, (v.fd(0), _number(_READ, number), m.room(4)))


def _program(number: int) -> Make:
    """An ioctl that takes the address of an open BPF program."""

    def make(m: Memory, v: Args) -> Made:
        data = m.put(bytes(4), {0: v.fd(1)})
        return Made(IOCTL, (v.fd(0), _number(_READ, number), data))

    return make


def _filter(number: int) -> Make:
    """An ioctl with a struct sock_fprog: one instruction that returns a number."""

    def make(m: Memory, v: Args) -> Made:
        code = struct.pack("<HBBI", 6, 0, 0, v.num(2) & 0xFFFFFFFF)
        inner = m.put(code)
        fprog = m.put(struct.pack("<H6xQ", v.num(1) & 0xFFFF, inner))
        return Made(IOCTL, (v.fd(0), _number(_WRITE, number, 16), fprog))

    return make


def _getfilter(m: Memory, v: Args) -> Made:
    return Made(IOCTL, (v.fd(0), _number(_READ, 219, 16), m.room(16)))


def _txfilter(m: Memory, v: Args) -> Made:
    count = v.num(2) & 0xFFFF
    addresses = b"".join(bytes((2, 0, 0, 0, 0, n & 0xFF)) for n in range(min(count, 64)))
    data = m.put(struct.pack("<HH", v.num(1) & 0xFFFF, count) + addresses)
    return Made(IOCTL, (v.fd(0), _number(_WRITE, 209), data))


def _read(m: Memory, v: Args) -> Made:
    return Made(READ, (v.fd(0), m.room(v.num(1)), min(v.num(1) & 0xFFFFFFFF, MOST_BYTES)))


def _write(m: Memory, v: Args) -> Made:
    data = v.bytes(1)
    return Made(WRITE, (v.fd(0), m.put(data), len(data)))


def _vector(m: Memory, at: int, size: int, parts: int) -> int:
    """Return the address of a struct iovec for each part; the last one has the rest."""
    each = size // parts
    rows = [(at + n * each, each) for n in range(parts - 1)]
    rows.append((at + each * (parts - 1), size - each * (parts - 1)))
    return m.put(b"".join(struct.pack("<QQ", *row) for row in rows))


def _parts(number: int) -> int:
    return min(max(number, 1), 64)


def _readv(m: Memory, v: Args) -> Made:
    size, parts = min(v.num(1) & 0xFFFFFFFF, MOST_BYTES), _parts(v.num(2))
    return Made(READV, (v.fd(0), _vector(m, m.room(size), size, parts), parts))


def _writev(m: Memory, v: Args) -> Made:
    data, parts = v.bytes(1), _parts(v.num(2))
    return Made(WRITEV, (v.fd(0), _vector(m, m.put(data), len(data), parts), parts))


def _pwritev2(m: Memory, v: Args) -> Made:
    data = v.bytes(1)
    vector = _vector(m, m.put(data), len(data), 1)
    return Made(PWRITEV2, (v.fd(0), vector, 1, -1, -1, v.num(2)))


def _preadv2(m: Memory, v: Args) -> Made:
    size = min(v.num(1) & 0xFFFFFFFF, MOST_BYTES)
    vector = _vector(m, m.room(size), size, 1)
    return Made(PREADV2, (v.fd(0), vector, 1, -1, -1, v.num(2)))


def _poll(m: Memory, v: Args) -> Made:
    data = m.put(struct.pack("<iHH", 0, v.num(1) & 0xFFFF, 0), {0: v.fd(0)})
    return Made(POLL, (data, 1, v.num(2)))


def _epoll_add(m: Memory, v: Args) -> Made:
    event = m.put(struct.pack("<IQ", v.num(2) & 0xFFFFFFFF, 0))
    return Made(EPOLL_CTL, (v.fd(0), 1, v.fd(1), event))


_UNITS = {"IN": 1, "OUT": 4, "ERR": 8, "ET": 0x80000000}
RWF_NOWAIT = 8
"""Only then a write goes through the driver's own XDP."""
_RWF = Num((RWF_NOWAIT, 0, 1, 0x10, 0x18))

TUN_CALLS = (
    Spec(
        "open_tun",
        (Flags(OPEN, (RDWR | NONBLOCK, RDWR | NONBLOCK, RDWR)),),
        _open_tun,
        makes="tun",
    ),
    Spec("close", (ANY,), lambda _m, v: Made(CLOSE, (v.fd(0),))),
    Spec("dup_tun", (QUEUE,), lambda _m, v: Made(DUP, (v.fd(0),)), makes="tun", weight=3),
    Spec("tunsetiff", (QUEUE, Name(), SETIFF_FLAGS), _setiff, weight=20),
    Spec("tungetiff", (QUEUE,), _getiff, weight=3),
    Spec("tunsetqueue", (QUEUE, Flags(IFF, (0x200, 0x400))), _setqueue, weight=30),
    Spec("tunsetpersist", (QUEUE, _BOOL), _by_value(_WRITE, 203)),
    Spec("tunsetowner", (QUEUE, Num((0, 1000))), _by_value(_WRITE, 204), weight=2),
    Spec("tunsetgroup", (QUEUE, Num((0, 1000))), _by_value(_WRITE, 206), weight=2),
    Spec("tunsetlink", (QUEUE, Num((1, 512, 65534))), _by_value(_WRITE, 205), weight=2),
    Spec("tunsetnocsum", (QUEUE, _BOOL), _by_value(_WRITE, 200), weight=1),
    Spec("tunsetdebug", (QUEUE, Num((0,))), _by_value(_WRITE, 201), weight=1),
    Spec("tunsetoffload", (QUEUE, Num((0, 1, 3, 7, 0xF, 0x67, 0x1FF))), _by_value(_WRITE, 208)),
    Spec("tunsettxfilter", (QUEUE, Num((0, 1)), Num((0, 1, 8, 9, 600))), _txfilter, weight=5),
    Spec("tunsetsndbuf", (QUEUE, Num((0, 1, 1000, 100000))), _by_pointer(_WRITE, 212), weight=6),
    Spec("tunsetvnethdrsz", (QUEUE, Num((10, 12, 0, 9, 24, 4096))), _by_pointer(_WRITE, 216)),
    Spec("tunsetvnetle", (QUEUE, _BOOL), _by_pointer(_WRITE, 220), weight=3),
    Spec("tunsetvnetbe", (QUEUE, _BOOL), _by_pointer(_WRITE, 222), weight=3),
    Spec("tunsetifindex", (QUEUE, Num((0, 1, 77, 1000))), _by_pointer(_WRITE, 218), weight=3),
    Spec("tunsetcarrier", (QUEUE, _BOOL), _by_pointer(_WRITE, 226), weight=8),
    Spec("tungetfeatures", (QUEUE,), _get(207), weight=2),
    Spec("tungetsndbuf", (QUEUE,), _get(211), weight=2),
    Spec("tungetvnethdrsz", (QUEUE,), _get(215), weight=2),
    Spec("tungetvnetle", (QUEUE,), _get(221), weight=1),
    Spec("tungetvnetbe", (QUEUE,), _get(223), weight=1),
    Spec(
        "tungetdevnetns",
        (QUEUE,),
        lambda _m, v: Made(IOCTL, (v.fd(0), _number(0, 227, 0))),
        makes="space",
        weight=2,
    ),
    Spec("tunattachfilter", (QUEUE, Num((1, 0, 2)), Num((0, 20, 65535))), _filter(213), weight=5),
    Spec("tundetachfilter", (QUEUE, Num((1, 0)), Num((0,))), _filter(214), weight=3),
    Spec("tungetfilter", (QUEUE,), _getfilter, weight=1),
    Spec("tunsetsteeringebpf", (QUEUE, Fd(("filter",))), _program(224), weight=6),
    Spec("tunsetfilterebpf", (QUEUE, Fd(("filter",))), _program(225), weight=6),
    Spec(
        "tunioctl",
        (QUEUE, Num(tuple(_number(_WRITE, n) for n in range(199, 230))), Num((0, 1, 4096))),
        lambda _m, v: Made(IOCTL, (v.fd(0), v.num(1) & 0xFFFFFFFF, v.num(2))),
        weight=3,
    ),
    Spec("read", (ANY, _SIZE), _read, weight=40, repeats=True),
    Spec("readv", (QUEUE, _SIZE, Num((1, 2, 3, 64))), _readv, weight=6, repeats=True),
    Spec("preadv2", (QUEUE, _SIZE, _RWF), _preadv2, weight=6, repeats=True),
    Spec("write", (QUEUE, Packet()), _write, weight=15, repeats=True),
    Spec("writev", (QUEUE, Packet(), Num((1, 2, 3, 64))), _writev, weight=6, repeats=True),
    Spec("pwritev2", (QUEUE, Packet(), _RWF), _pwritev2, weight=8, repeats=True),
    Spec("poll", (ANY, Flags(_UNITS, (1, 5)), Exact((0, 1, 5))), _poll, weight=8),
    Spec(
        "epoll_create",
        (),
        lambda _m, _v: Made(EPOLL_CREATE1, (0,)),
        makes="epoll",
        weight=2,
    ),
    Spec("epoll_add", (Fd(("epoll",)), ANY, Flags(_UNITS, (1, 5))), _epoll_add, weight=4),
    Spec(
        "set_flags",
        (ANY, Flags(OPEN, (0, NONBLOCK, 0x2000, NONBLOCK | 0x2000))),
        lambda _m, v: Made(FCNTL, (v.fd(0), 4, v.num(1) & 0xFFFFFFFF)),
        weight=5,
    ),
    Spec(
        "mmap",
        (ANY,),
        lambda _m, v: Made(MMAP, (0, 4096, 3, 1, v.fd(0), 0)),
        weight=1,
    ),
    Spec(
        "sendfile",
        (ANY, ANY, _SIZE),
        lambda _m, v: Made(SENDFILE, (v.fd(0), v.fd(1), 0, min(v.num(2) & 0xFFFFFFFF, MOST_BYTES))),
        weight=2,
    ),
)
