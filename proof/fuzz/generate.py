# SPDX-License-Identifier: GPL-2.0-only
"""The calls, and random programs of them that make sense.

Calls on /dev/net/tun and /dev/tapN, on /dev/vhost-net, and around a device. A virtual machine's
accesses to its rings are calls, too. Numbers of system calls are those of x86-64, the lab's only
architecture.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from random import Random

from guestlib.drivers import IFF_BACKPRESSURE
from guestlib.netlink import ACK, CREATE, REPLACE, REQUEST, attribute, message, nested, text
from guestlib.tundev import (
    IFF_ATTACH_QUEUE,
    IFF_DETACH_QUEUE,
    IFF_MULTI_QUEUE,
    IFF_NO_PI,
    IFF_TAP,
    IFF_TUN,
    IFF_VNET_HDR,
)
from proof.bpf import PROG_LOAD, SOCKET_FILTER, XDP, XDP_DRV_MODE, redirect, returns
from proof.fuzz.program import (
    AWAY,
    END,
    HERE,
    MEMORY,
    MEMORY_LEN,
    MOST_BYTES,
    NAMES,
    PAGE,
    SIZES,
    VHOST,
    Call,
    Data,
    Memory,
    Param,
    Program,
    Ref,
    Spec,
    Specs,
    System,
    Value,
    exact,
    flags,
    name,
    num,
    pack,
    packet,
)

OPENAT, CLOSE, DUP, IOCTL, FCNTL = 257, 3, 32, 16, 72
READ, WRITE, PREADV2, PWRITEV2 = 0, 1, 327, 328
POLL, EPOLL_CREATE1, EPOLL_CTL = 7, 291, 233
AT_FDCWD = -100
RDWR, NONBLOCK, ASYNC = 2, 0x800, 0x2000

_NAPI, _FRAGS = 0x10, 0x20
_ALL = 0xFFF3
"""All IFF_ flags that tun.c knows."""
DEVICES = flags(
    _ALL,
    *(IFF_TAP, IFF_TUN, IFF_TAP | IFF_NO_PI, IFF_TUN | IFF_NO_PI),
    *(IFF_TAP | IFF_MULTI_QUEUE | IFF_NO_PI, IFF_TUN | IFF_MULTI_QUEUE | IFF_NO_PI),
    *(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, IFF_TAP | IFF_MULTI_QUEUE | IFF_NO_PI | IFF_VNET_HDR),
    *(IFF_TUN | IFF_NO_PI | IFF_VNET_HDR, IFF_TAP | IFF_NO_PI | _NAPI),
    *(IFF_TAP | IFF_NO_PI | _NAPI | _FRAGS, IFF_TUN | IFF_NO_PI | IFF_BACKPRESSURE),
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
    "tunsetqueue": Spec(
        30,
        (QUEUE, flags(_ALL, IFF_ATTACH_QUEUE, IFF_DETACH_QUEUE)),
        ioctl(_tun(1, 217), "<16xH22x"),
    ),
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


EVENTFD2, SCHED_YIELD = 290, 24
_IOC_WRITE, _IOC_BOTH = 1 << 30, 3 << 30
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
_RING_INDEX = num(0, 1, 0, 1, 2)


def _v(direction: int, number: int, size: int) -> int:
    return direction | size << 16 | 0xAF << 8 | number


def _state(m: Memory, fd: int, number: int, index: int, value: int) -> System:
    """An ioctl with a struct vhost_vring_state; 0x112 is VHOST_GET_VRING_BASE."""
    request = _v(_IOC_BOTH if number == 0x112 else _IOC_WRITE, number & 0xFF, 8)
    return IOCTL, fd, request, m.put(pack("<II", index, value))


def _mem_table(m: Memory, fd: int, count: int) -> System:
    """Set ``count`` regions; the first maps all of the memory, at the same addresses."""
    regions = [(MEMORY, MEMORY_LEN, MEMORY, 0), *[(END, PAGE, MEMORY, 0)] * 63]
    table = b"".join(pack("<QQQQ", *row) for row in regions)
    return IOCTL, fd, _v(_IOC_WRITE, 0x03, 8), m.put(pack("<II", count, 0) + table)


def _vring_addr(m: Memory, fd: int, index: int, how: int, shift: int) -> System:
    at = VHOST + (index & 1) * _RING
    request = pack("<IIQQQQ", index, how, at, at + _USED + shift, at + _AVAIL, _LOG)
    return IOCTL, fd, _v(_IOC_WRITE, 0x11, 40), m.put(request)


def _store(at: int, data: bytes) -> None:
    ctypes.memmove(at, data, len(data))


def _offer(_m: Memory, ring: int, count: int, size: int, how: int, first: int) -> System:
    """Write descriptors and make them available; return a system call without effect."""
    at, count = VHOST + (ring & 1) * _RING, count % (SLOTS + 1)
    rows = (
        pack("<QIHH", at + _BUFFERS + n * _BUFFER, size, how, (n + 1) % SLOTS) for n in range(count)
    )
    _store(at, b"".join(rows))
    _store(at + _AVAIL + 4, b"".join(pack("<H", n) for n in range(count)))
    _store(at + _AVAIL, pack("<HH", 0, first + count))
    return (SCHED_YIELD,)


def _fill(_m: Memory, data: bytes) -> System:
    _store(VHOST + TX * _RING + _BUFFERS, data[: 4 * _BUFFER])
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
    "set_features": Spec(10, (_VHOST, _FEATURES), ioctl(_v(_IOC_WRITE, 0x00, 8), "<Q")),
    "set_mem_table": Spec(6, (_VHOST, num(1, 0, 2, 64, 65)), _mem_table),
    "vring_state": Spec(30, (_VHOST, _STATES, _RING_INDEX, _COUNTS), _state),
    "set_vring_addr": Spec(10, (_VHOST, _RING_INDEX, num(0, 0, 1), _SHIFTS), _vring_addr),
    "set_vring_fd": Spec(20, (_VHOST, exact(0x20, 0x20, 0x21, 0x22), _RING_INDEX, _EVENT), _state),
    "set_busyloop": Spec(5, (_VHOST, exact(0x23), _RING_INDEX, exact(0, 1, 50, 1000)), _state),
    "set_backend": Spec(30, (_VHOST, _RING_INDEX, ("tun",)), ioctl(_v(_IOC_WRITE, 0x30, 8), "<II")),
    "eventfd": Spec(3, (exact(NONBLOCK),), lambda _m, how: (EVENTFD2, 0, how), "event"),
    "signal": Spec(20, (_EVENT, num(1, 0, 0xFFFFFFFF)), _signal, repeats=True),
    "offer": Spec(20, (exact(RX, TX), num(1, 2, 8, SLOTS), _OFFERED, _HOW, _FIRST), _offer),
    "fill": Spec(8, (packet,), _fill),
}


SOCKET, SENDTO, SETSOCKOPT, SETNS, BPF, NANOSLEEP = 41, 44, 54, 308, 321, 35
_DONTWAIT = 0x40
UP, _NOARP = 0x1, 0x80
"""NOARP: without it senders to a TAP would wait for ARP replies."""
_PROMISC, _ALLMULTI, _MULTICAST = 0x100, 0x200, 0x1000
_SOCKET, _PACKET = ("udp",), ("packet",)
_INDEX = exact(2, 2, 2, 3, 4, 1)
"""Interface indexes: in a new namespace lo is 1, and a program's devices begin at 2."""
_NETLINK, _SPACE = ("netlink",), ("space",)
_ETHTOOL = (
    *(0x03, 0x07, 0x08),  # driver, message level
    *(0x0E, 0x0F, 0x10, 0x11, 0x3C, 0x3D, 0x4C, 0x4D),  # coalescing, rings, channels, link
    *(0x1B, 0x37, 0x41, 0x14, 0x17, 0x19, 0x1F, 0x24, 0x3A),  # strings, features
    *(0x27, 0x28, *(0x28, 0x28, 0x1D) * 8),  # private flags, statistics: as often as all others
)
_NEWLINK, _DELLINK, _NEWQDISC, _DELQDISC = 16, 17, 36, 37
_IFNAME, _LINK, _LINKINFO, _KIND, _NETNS_FD, _TCA_KIND = 3, 5, 18, 1, 28, 1
_QDISCS = ("pfifo", "fq_codel", "pfifo_fast", "noqueue", "mq", "pfifo_head_drop", "fq")


def _ethtool(m: Memory, fd: int, device: bytes, *numbers: int) -> System:
    inner = m.put(pack("<III", *numbers) + bytes(2048))
    return IOCTL, fd, 0x8946, m.put(device + pack("<Q16x", inner))


def _rtnetlink(m: Memory, fd: int, kind: int, how: int, body: bytes) -> System:
    """Send a request to rtnetlink."""
    data = message(kind, how | REQUEST | ACK, 1, body)
    return SENDTO, fd, m.put(data), len(data), _DONTWAIT, 0, 0


def _move(m: Memory, fd: int, device: bytes, space: int) -> System:
    body = bytes(16) + attribute(_IFNAME, device) + attribute(_NETNS_FD, pack("<I", space))
    return _rtnetlink(m, fd, _NEWLINK, 0, body)


def _delete(m: Memory, fd: int, device: bytes) -> System:
    return _rtnetlink(m, fd, _DELLINK, 0, bytes(16) + attribute(_IFNAME, device))


def _macvtap(m: Memory, fd: int, device: bytes, index: int) -> System:
    body = pack("<IIII", 0, tap_index(), 0, 0) + attribute(_IFNAME, device)
    body += attribute(_LINK, pack("<I", index)) + nested(_LINKINFO, text(_KIND, "macvtap"))
    return _rtnetlink(m, fd, _NEWLINK, CREATE, body)


def _qdisc(m: Memory, fd: int, index: int, which: int, child: int) -> System:
    """Replace the root qdisc, or a child of mq."""
    kind = _QDISCS[which % len(_QDISCS)]
    parent = 0x10000 | (child & 0xFFFF) if child else 0xFFFFFFFF
    body = pack("<IIIII", 0, index, 0x10000 if kind == "mq" else 0, parent, 0)
    return _rtnetlink(m, fd, _NEWQDISC, CREATE | REPLACE, body + text(_TCA_KIND, kind))


def _del_qdisc(m: Memory, fd: int, index: int) -> System:
    return _rtnetlink(m, fd, _DELQDISC, 0, pack("<IIIII", 0, index, 0, 0xFFFFFFFF, 0))


def _sendto(m: Memory, fd: int, data: bytes, network: int, how: int) -> System:
    at = m.put(data[:60000])
    to = m.put(pack(">HH4s8x", 0x0200, 9, bytes((10, 9, network & 3, 2))))
    return SENDTO, fd, at, len(data[:60000]), how & _DONTWAIT, to, 16


def _sendll(m: Memory, fd: int, index: int, data: bytes, how: int) -> System:
    at = m.put(data)
    to = m.put(pack("<HHIHBB8s", 17, 0x0008, index, 1, 0, 6, bytes((2, 0, 0, 0, 0, 2, 0, 0))))
    return SENDTO, fd, at, len(data), how & _DONTWAIT, to, 20


def _option(level: int, option: int) -> Callable[..., System]:
    return lambda m, fd, value: (SETSOCKOPT, fd, level, option, m.put(pack("<I", value)), 4)


def _load(kind: int, code: Callable[[int], bytes]) -> Callable[..., System]:
    def make(m: Memory, value: int) -> System:
        given = (m.put(code(value)), m.put(b"GPL\0"))
        attributes = pack("<IIQQ", kind, len(code(value)) // 8, *given).ljust(128, b"\0")
        return BPF, PROG_LOAD, m.put(attributes), 128

    return make


def _xdp_attach(m: Memory, program: int, index: int, how: int) -> System:
    """BPF_LINK_CREATE; closing the link detaches the program."""
    return BPF, 28, m.put(pack("<IIII", program, index, 37, how & 0xFF).ljust(64, b"\0")), 64


def _pause(m: Memory, milliseconds: int) -> System:
    return NANOSLEEP, m.put(pack("<QQ", 0, milliseconds * 1_000_000)), 0


def _socket(*what: int) -> Callable[..., System]:
    return lambda _m: (SOCKET, *what)


_LENGTHS = num(0, 1, 2, 3, 5, 8, 63, 64, 65, 500, 1000, 10000, 1 << 20, 0x7FFFFFFF)
_WAITS = exact(_DONTWAIT, _DONTWAIT, 0)
_LINK_FLAGS = flags(UP | _PROMISC | _ALLMULTI | _MULTICAST, UP | _NOARP, UP | _NOARP, _NOARP)
_NETWORKS = exact(*(0x0100090A | network << 16 for network in range(3)))
"""10.9.N.1; packets to 10.9.N.2 are routed to the device."""

NET_CALLS: Specs = {
    "udp": Spec(3, (), _socket(2, 2, 0), "udp"),
    "packet": Spec(3, (), _socket(17, 3, 0x0300), "packet"),
    "netlink": Spec(2, (), _socket(16, 3, 0), "netlink"),
    "link_flags": Spec(20, (_SOCKET, name, _LINK_FLAGS), ioctl(0x8914, "<16sH22x")),
    "address": Spec(6, (_SOCKET, name, exact(2), _NETWORKS), ioctl(0x8916, "<16sII16x")),
    "netmask": Spec(4, (_SOCKET, name, exact(2), exact(0xFFFFFF)), ioctl(0x891C, "<16sII16x")),
    "txqueuelen": Spec(25, (_SOCKET, name, _LENGTHS), ioctl(0x8943, "<16sI20x")),
    "mtu": Spec(5, (_SOCKET, name, num(68, 1280, 1500, 65521, 0)), ioctl(0x8922, "<16sI20x")),
    "hwaddr": Spec(3, (_SOCKET, name, num(1, 65534), num(2)), ioctl(0x8924, "<16sHI18x")),
    "rename": Spec(4, (_SOCKET, name, name), ioctl(0x8923, "<16s16s8x")),
    "ethtool": Spec(
        20, (_SOCKET, name, exact(*_ETHTOOL), num(0, 1, 2, 4), num(0, 1, 16)), _ethtool
    ),
    "move": Spec(8, (_NETLINK, name, _SPACE), _move),
    "delete": Spec(6, (_NETLINK, name), _delete),
    "macvtap": Spec(3, (_NETLINK, name, _INDEX), _macvtap),
    "qdisc": Spec(10, (_NETLINK, _INDEX, num(*range(7), bits=4), num(0, 0, 0, 1, 2)), _qdisc),
    "del_qdisc": Spec(3, (_NETLINK, _INDEX), _del_qdisc),
    "setns": Spec(3, (_SPACE,), lambda _m, space: (SETNS, space, 0x40000000)),
    "sendto": Spec(40, (_SOCKET, packet, exact(0, 1, 2), _WAITS), _sendto, repeats=True),
    "sendll": Spec(25, (_PACKET, _INDEX, packet, _WAITS), _sendll, repeats=True),
    "bypass": Spec(4, (_PACKET, exact(1, 0)), _option(263, 20)),
    "vnet_hdr": Spec(3, (_PACKET, exact(1, 0)), _option(263, 15)),
    "sndbuf": Spec(4, (("udp", "packet"), num(0, 5000, 100000, 1 << 24)), _option(1, 7)),
    "xdp_program": Spec(3, (exact(2, 1, 3, 0, 4, 7),), _load(XDP, returns), "xdp"),
    "xdp_redirect": Spec(2, (_INDEX,), _load(XDP, redirect), "xdp"),
    "xdp_attach": Spec(8, (("xdp",), _INDEX, exact(XDP_DRV_MODE, 0, 2)), _xdp_attach, "link"),
    "filter_program": Spec(
        3, (exact(0, 1, 2, 60, 0xFFFF),), _load(SOCKET_FILTER, returns), "filter"
    ),
    "pause": Spec(6, (exact(1, 2, 5, 9),), _pause),
}

SPECS = {**TUN_CALLS, **VHOST_CALLS, **NET_CALLS}
MAKERS = {
    kind: [name for name, spec in SPECS.items() if spec.makes == kind]
    for kind in dict.fromkeys(spec.makes for spec in SPECS.values() if spec.makes)
}
"""Kind -> the calls that create it."""


MOST = 40
"""Most calls of a program."""
_NO_FDS = (-1, 0, 9999)
"""Descriptors to use instead of an open file: closed, /dev/null, closed."""
_TIMES = (2, 5, 20, 70, 200)
_SCENES = (
    *("nothing", "device", "device", "full", "queues", "queues", "two devices", "vhost", "vhost"),
    *("wire", "frames", "macvtap"),
)


class _Maker:
    """Append calls to a program; ``names`` are those to choose from."""

    def __init__(self, rng: Random, names: Sequence[str]) -> None:
        self.rng = rng
        self.calls: list[Call] = []
        self._names = names
        self._weights = [SPECS[name].weight for name in names]

    def call(self, name: str, *values: Value, times: int = 1) -> Ref:
        self.calls.append(Call(name, values, times=times))
        return Ref(len(self.calls) - 1)

    def any_call(self, name: str = "") -> Ref:
        """Append a call, by default any, and before it the calls that create its arguments."""
        name = name or self.rng.choices(self._names, self._weights)[0]
        spec = SPECS[name]
        values = tuple(self._value(param) for param in spec.params)
        times = self.rng.choice(_TIMES) if spec.repeats and self.rng.random() < 0.4 else 1
        background = self.rng.random() < (0.03 if spec.makes else 0.14)
        self.calls.append(Call(name, values, background, times))
        return Ref(len(self.calls) - 1)

    def _value(self, param: Param) -> Value:
        """Return an argument; append the call that creates it if need be."""
        if not isinstance(param, tuple):
            return param(self.rng)
        draw = self.rng.random()
        if draw < 0.02:
            return self.rng.choice(_NO_FDS)
        there = self._references(*(MAKERS if draw < 0.05 else param))
        if there and draw < 0.95:
            return self.rng.choice(there)
        kinds = [kind for kind in param if kind in MAKERS]
        if not kinds or len(self.calls) >= MOST:
            return self.rng.choice(there) if there else -1
        return self._make(self.rng.choice(kinds))

    def _references(self, *kinds: str) -> list[Ref]:
        """Return references to all results of these kinds."""
        found = [Ref(at) for at, call in enumerate(self.calls) if SPECS[call.name].makes in kinds]
        return found + ([Ref(HERE), Ref(AWAY)] if "space" in kinds else [])

    def _make(self, kind: str) -> Ref:
        if kind == "tun":
            return self.queue(self.rng.choice(NAMES), DEVICES(self.rng))
        return self.vhost() if kind == "vhost" else self.any_call(self.rng.choice(MAKERS[kind]))

    def one(self, kind: str) -> Ref:
        """Return the last result of a kind; create one if there is none."""
        there = self._references(kind)
        return there[-1] if there else self._make(kind)

    def queue(self, name: str, flags: Value) -> Ref:
        """Append the calls that open a queue of a device."""
        opened = self.call("open_tun", RDWR | self.rng.choice((0, *[NONBLOCK] * 4)))
        self.call("tunsetiff", opened, name, flags)
        return opened

    def up(self, name: str, network: int = 0) -> None:
        """Append the calls that bring a device up and route a network to it."""
        udp = self.one("udp")
        if self.rng.random() < 0.5:
            self.call("txqueuelen", udp, name, self.rng.choice((1, 2, 3, 8, 64)))
        self.call("address", udp, name, 2, 0x0100090A | network << 16)
        self.call("netmask", udp, name, 2, 0xFFFFFF)
        self.call("link_flags", udp, name, 0x81)

    def vhost(self, queues: Sequence[Ref] = ()) -> Ref:
        """Append the set-up of a vhost-net, and give it these queues as backends."""
        made = self.call("open_vhost", RDWR)
        self.call("owner", made, 1)
        modern = [VERSION_1 | bit for bit in (0, MRG_RXBUF, EVENT_IDX)]
        self.call("set_features", made, self.rng.choice((0, NET_HDR, *modern)))
        self.call("set_mem_table", made, 1)
        for ring in (RX, TX):
            self.call("vring_state", made, 0x10, ring, self.rng.choice((64, 64, 2, 8)))
            self.call("vring_state", made, 0x12, ring, 0)
            self.call("set_vring_addr", made, ring, 0, 0)
            if self.rng.random() < 0.8:
                self.call("set_vring_fd", made, 0x20, ring, self.one("event"))
            write = DESC_WRITE if ring == RX else 0
            self.call("offer", ring, self.rng.choice((1, 8, SLOTS)), 0x200, write, 0)
        for ring, queue in enumerate(queues):
            self.call("set_backend", made, ring, queue)
        if queues and self.rng.random() < 0.7:
            self.call("signal", self.one("event"), 1)
        return made


def _begin(make: _Maker, scene: str) -> None:
    """Append the beginning of a program: a device that is up, and the rest of its scene."""
    if scene == "nothing":
        return
    rng, flags, count = make.rng, DEVICES(make.rng), 1
    if scene == "queues":
        flags, count = (
            rng.choice((IFF_TAP, IFF_TUN)) | IFF_MULTI_QUEUE | IFF_NO_PI,
            rng.choice((2, 3)),
        )
    elif scene in ("vhost", "wire", "macvtap"):
        flags = IFF_TAP | IFF_NO_PI | (rng.choice((0, IFF_VNET_HDR)) if scene == "vhost" else 0)
    queues = [make.queue(NAMES[0], flags) for _ in range(count)]
    make.up(NAMES[0])
    if scene == "two devices":
        make.queue(NAMES[1], DEVICES(rng))
        make.up(NAMES[1], 1)
    elif scene == "vhost":
        make.vhost((queues * 2)[: rng.choice((1, 2))])
    elif scene == "wire":
        make.call("sendll", make.one("packet"), 2, Data("eth4", 100), 0x40, times=20)
    elif scene == "frames":
        # Frames written to the device are redirected to it or sent back, dropped or passed.
        program = make.call("xdp_redirect", 2)
        if rng.random() < 0.5:
            program = make.call("xdp_program", rng.choice((1, 2, 3)))
        make.call("xdp_attach", program, 2, XDP_DRV_MODE)
        make.call("pwritev2", queues[0], Data("eth4", 100), 1, 8, times=5)
    elif scene == "macvtap":
        make.call("macvtap", make.one("netlink"), NAMES[1], 2)
        make.call("open_tap", RDWR | NONBLOCK)
        make.up(NAMES[1], 1)
    if scene in ("full", "vhost", "macvtap"):
        network = int(scene == "macvtap")
        make.call("sendto", make.one("udp"), Data("zero", 60), network, 0x40, times=80)


def program_of(seed: int, number: int) -> Program:
    """Return a seed's program of a number: a pure function."""
    rng = Random(f"{seed}/{number}")
    names = list(SPECS)
    if rng.random() < 0.4:
        # Only a few kinds of calls, so that they race often.
        names = rng.sample(names, rng.randint(4, 12))
    make = _Maker(rng, names)
    _begin(make, rng.choice(_SCENES))
    most = min(len(make.calls) + rng.randint(3, 18), MOST)
    while len(make.calls) < most:
        make.any_call()
    return tuple(make.calls[:MOST])
