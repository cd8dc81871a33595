# SPDX-License-Identifier: GPL-2.0-only
"""The calls around a device: its settings as an administrator changes them, and its senders."""

from __future__ import annotations

from collections.abc import Callable

from nodrop.guest.bpf import PROG_LOAD, SOCKET_FILTER, XDP, XDP_DRV_MODE, answer, redirect
from nodrop.guest.fuzz.calls_tun import ANY, AT_FDCWD, FCNTL, IOCTL, OPENAT, WRITE, System
from nodrop.guest.fuzz.memory import Memory, pack
from nodrop.guest.fuzz.program import Spec, exact, flags, name, num, of, packet

SOCKET, SENDTO, SETSOCKOPT, SETNS, BPF, GETPID, NANOSLEEP = 41, 44, 54, 308, 321, 39, 35
_DONTWAIT = 0x40
_NOARP = 0x80
"""Without it a TAP would ask for addresses, and its senders would wait for an answer."""
_UP, _PROMISC, _ALLMULTI, _MULTICAST = 0x1, 0x100, 0x200, 0x1000

_SOCKET = of("udp")
_PACKET = of("packet")
_INDEX = of("index")
_NETLINK = of("netlink")
_SPACE = of("space")

_PFLAGS = (0x27, 0x28)
_STRINGS, _STATS = 0x1B, 0x1D
_ETHTOOL = (
    *(0x03, 0x07, 0x08),  # driver, message level
    *(0x0E, 0x0F, 0x10, 0x11, 0x3C, 0x3D, 0x4C, 0x4D),  # coalescing, rings, channels, link
    *(_STRINGS, _STATS, 0x37, 0x41),
    *(0x14, 0x17, 0x19, 0x1F, 0x24, 0x3A),  # features
    *(*_PFLAGS, *(0x28, 0x28, _STATS) * 8),  # as often as all others
)

_NEWLINK, _DELLINK, _NEWQDISC, _DELQDISC = 16, 17, 36, 37
_REQUEST, _ACK, _REPLACE, _CREATE = 0x1, 0x4, 0x100, 0x400
_IFNAME, _NETNS_FD, _TCA_KIND = 3, 28, 1
QDISCS = ("pfifo", "fq_codel", "pfifo_fast", "noqueue", "mq", "pfifo_head_drop", "fq")
_LIMITS = ("limit_max", "limit_min", "limit", "hold_time")


def _ifreq(request: int, form: str) -> Callable[..., System]:
    """An ioctl of a socket that sets something of a device: a number behind its name."""

    def make(m: Memory, fd: int, device: bytes, value: int) -> System:
        return IOCTL, fd, request, m.put((device + pack(form, value)).ljust(40, b"\0"))

    return make


def _link_flags(m: Memory, fd: int, device: bytes, value: int) -> System:
    return IOCTL, fd, 0x8914, m.put(device + pack("<H22x", value | _NOARP))


def _address(m: Memory, fd: int, device: bytes, network: int) -> System:
    """10.9.N.1; what is sent to 10.9.N.x goes there."""
    where = pack("<HH4s16x", 2, 0, bytes((10, 9, network & 3, 1)))
    return IOCTL, fd, 0x8916, m.put(device + where)


def _netmask(m: Memory, fd: int, device: bytes) -> System:
    return IOCTL, fd, 0x891C, m.put(device + pack("<HH4s16x", 2, 0, bytes((255, 255, 255, 0))))


def _hwaddr(m: Memory, fd: int, device: bytes, kind: int) -> System:
    return IOCTL, fd, 0x8924, m.put(device + pack("<H6s16x", kind, bytes((2, 0, 0, 0, 0, 9))))


def _rename(m: Memory, fd: int, device: bytes, other: bytes) -> System:
    return IOCTL, fd, 0x8923, m.put(device + other + bytes(8))


def _ifindex(m: Memory, fd: int, device: bytes) -> System:
    at = m.put(device + bytes(24))
    m.load = at + 16
    return IOCTL, fd, 0x8933, at


def _ethtool(m: Memory, fd: int, device: bytes, *numbers: int) -> System:
    inner = m.put(pack("<III", *numbers) + bytes(2048))
    return IOCTL, fd, 0x8946, m.put(device + pack("<Q16x", inner))


def _attribute(kind: int, data: bytes) -> bytes:
    return pack("<HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _tell(m: Memory, fd: int, kind: int, how: int, body: bytes) -> System:
    """Send a message to rtnetlink."""
    message = pack("<IHHII", 16 + len(body), kind, how | _REQUEST | _ACK, 1, 0) + body
    return SENDTO, fd, m.put(message), len(message), _DONTWAIT, 0, 0


def _link(device: bytes) -> bytes:
    return bytes(16) + _attribute(_IFNAME, device)


def _move(m: Memory, fd: int, device: bytes, space: int) -> System:
    body = _link(device) + _attribute(_NETNS_FD, pack("<I", space))
    return _tell(m, fd, _NEWLINK, 0, body)


def _delete(m: Memory, fd: int, device: bytes) -> System:
    return _tell(m, fd, _DELLINK, 0, _link(device))


def _qdisc(m: Memory, fd: int, index: int, which: int, child: int) -> System:
    """Another root qdisc, or another child of mq."""
    kind = QDISCS[which % len(QDISCS)]
    parent = 0x10000 | (child & 0xFFFF) if child else 0xFFFFFFFF
    body = pack("<B3xIIII", 0, index, 0x10000 if kind == "mq" else 0, parent, 0)
    body += _attribute(_TCA_KIND, kind.encode() + b"\0")
    return _tell(m, fd, _NEWQDISC, _CREATE | _REPLACE, body)


def _del_qdisc(m: Memory, fd: int, index: int) -> System:
    return _tell(m, fd, _DELQDISC, 0, pack("<B3xIIII", 0, index, 0, 0xFFFFFFFF, 0))


def _sendto(m: Memory, fd: int, data: bytes, network: int, how: int) -> System:
    data = data[:60000]
    at = m.put(data)
    to = m.put(pack(">HH4s8x", 0x0200, 9, bytes((10, 9, network & 3, 2))))
    return SENDTO, fd, at, len(data), how & _DONTWAIT, to, 16


def _sendll(m: Memory, fd: int, index: int, data: bytes, how: int) -> System:
    at = m.put(data)
    to = m.put(pack("<HHIHBB8s", 17, 0x0008, index, 1, 0, 6, bytes((2, 0, 0, 0, 0, 2, 0, 0))))
    return SENDTO, fd, at, len(data), how & _DONTWAIT, to, 20


def _option(level: int, option: int) -> Callable[..., System]:
    return lambda m, fd, value: (SETSOCKOPT, fd, level, option, m.put(pack("<I", value)), 4)


def _load(m: Memory, kind: int, code: bytes) -> System:
    text, licence = m.put(code), m.put(b"GPL\0")
    attributes = pack("<IIQQ", kind, len(code) // 8, text, licence).ljust(128, b"\0")
    return BPF, PROG_LOAD, m.put(attributes), 128


def _xdp_attach(m: Memory, program: int, index: int, how: int) -> System:
    """BPF_LINK_CREATE; the program goes when the link is closed."""
    return BPF, 28, m.put(pack("<IIII", program, index, 37, how & 0xFF).ljust(64, b"\0")), 64


def _limit_file(m: Memory, device: bytes, queue: int, which: int) -> System:
    place = device.rstrip(b"\0").decode(errors="replace")
    limit = _LIMITS[which % len(_LIMITS)]
    path = f"/sys/class/net/{place}/queues/tx-{queue & 3}/byte_queue_limits/{limit}"
    return OPENAT, AT_FDCWD, m.put(path.encode() + b"\0"), 2


def _write_number(m: Memory, fd: int, value: int) -> System:
    text = b"%d\n" % value
    return WRITE, fd, m.put(text), len(text)


def _pause(m: Memory, milliseconds: int) -> System:
    """A pause that lasts is interrupted soon."""
    return NANOSLEEP, m.put(pack("<QQ", 0, milliseconds * 1_000_000)), 0


def _socket(*what: int) -> Callable[..., System]:
    return lambda _m: (SOCKET, *what)


_LENGTHS = num(0, 1, 2, 3, 5, 8, 63, 64, 65, 500, 1000, 10000, 1 << 20, 0x7FFFFFFF)
_WAITS = exact(_DONTWAIT, _DONTWAIT, 0)
_LINK_FLAGS = flags(_UP | _PROMISC | _ALLMULTI | _MULTICAST, (_UP, _UP, 0))

NET_CALLS = (
    Spec("udp", (), _socket(2, 2, 0), makes="udp", weight=3),
    Spec("packet", (), _socket(17, 3, 0x0300), makes="packet", weight=3),
    Spec("netlink", (), _socket(16, 3, 0), makes="netlink", weight=2),
    Spec("ifindex", (_SOCKET, name), _ifindex, makes="index", weight=4),
    Spec("link_flags", (_SOCKET, name, _LINK_FLAGS), _link_flags, weight=20),
    Spec("address", (_SOCKET, name, exact(0, 1, 2)), _address, weight=6),
    Spec("netmask", (_SOCKET, name), _netmask, weight=4),
    Spec("txqueuelen", (_SOCKET, name, _LENGTHS), _ifreq(0x8943, "<I"), weight=25),
    Spec("mtu", (_SOCKET, name, num(68, 1280, 1500, 65521, 0)), _ifreq(0x8922, "<I"), weight=5),
    Spec("hwaddr", (_SOCKET, name, num(1, 0xFFFE)), _hwaddr, weight=3),
    Spec("rename", (_SOCKET, name, name), _rename, weight=4),
    Spec(
        "ethtool",
        (_SOCKET, name, exact(*_ETHTOOL), num(0, 1, 2, 4), num(0, 1, 16)),
        _ethtool,
        weight=20,
    ),
    Spec("move", (_NETLINK, name, _SPACE), _move, weight=8),
    Spec("delete", (_NETLINK, name), _delete, weight=6),
    Spec("qdisc", (_NETLINK, _INDEX, num(*range(len(QDISCS)), bits=4), num(0, 0, 0, 1, 2)), _qdisc),
    Spec("del_qdisc", (_NETLINK, _INDEX), _del_qdisc, weight=3),
    Spec("setns", (_SPACE,), lambda _m, space: (SETNS, space, 0x40000000), weight=3),
    Spec("sendto", (_SOCKET, packet, exact(0, 1, 2), _WAITS), _sendto, weight=40, repeats=True),
    Spec("sendll", (_PACKET, _INDEX, packet, _WAITS), _sendll, weight=25, repeats=True),
    Spec("bypass", (_PACKET, exact(1, 0)), _option(263, 20), weight=4),
    Spec("vnet_hdr", (_PACKET, exact(1, 0)), _option(263, 15), weight=3),
    Spec("sndbuf", (of("udp", "packet"), num(0, 5000, 100000, 1 << 24)), _option(1, 7), weight=4),
    Spec(
        "xdp_program",
        (exact(2, 1, 3, 0, 4, 7),),
        lambda m, value: _load(m, XDP, answer(value)),
        makes="xdp",
        weight=3,
    ),
    Spec(
        "xdp_redirect",
        (_INDEX,),
        lambda m, index: _load(m, XDP, redirect(index)),
        makes="xdp",
        weight=2,
    ),
    Spec(
        "xdp_attach",
        (of("xdp"), _INDEX, exact(XDP_DRV_MODE, 0, 2)),
        _xdp_attach,
        makes="link",
        weight=8,
    ),
    Spec(
        "filter_program",
        (exact(0, 1, 2, 60, 0xFFFF),),
        lambda m, value: _load(m, SOCKET_FILTER, answer(value)),
        makes="filter",
        weight=3,
    ),
    Spec("limit_file", (name, exact(0, 1), exact(0, 1, 2, 3)), _limit_file, makes="text"),
    Spec(
        "write_number", (of("text"), num(0, 1, 1500, 3000, 1 << 20, -1, 0xFFFFFFFF)), _write_number
    ),
    Spec("getpid", (), lambda _m: (GETPID,), makes="pid", weight=1),
    Spec("set_signalled", (ANY, of("pid")), lambda _m, fd, pid: (FCNTL, fd, 8, pid), weight=3),
    Spec("pause", (exact(1, 2, 5, 9),), _pause, weight=6),
)
