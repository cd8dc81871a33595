# SPDX-License-Identifier: GPL-2.0-only
"""The calls around a device: its settings as an administrator changes them, and its senders."""

from __future__ import annotations

import struct

from nodrop.guest.bpf import EXIT, REDIRECT, XDP, XDP_DRV_MODE, answer, call, mov
from nodrop.guest.bpf import SOCKET_FILTER as FILTER
from nodrop.guest.fuzz.calls_tun import ANY, AT_FDCWD, FCNTL, IOCTL, OPENAT, WRITE
from nodrop.guest.fuzz.grammar import (
    Args,
    Choice,
    Exact,
    Fd,
    Flags,
    Made,
    Make,
    Name,
    Num,
    Packet,
    Spec,
)
from nodrop.guest.fuzz.memory import Memory
from nodrop.guest.fuzz.program import Ref

SOCKET, SENDTO, SETSOCKOPT, SETNS, BPF, GETPID, NANOSLEEP = 41, 44, 54, 308, 321, 39, 35
_DONTWAIT = 0x40
_NOARP = 0x80
"""Without it a TAP would ask for addresses, and its senders would wait for an answer."""

_SOCKET = Fd(("udp",))
_PACKET = Fd(("packet",))
_INDEX = Fd(("index",))
_NETLINK = Fd(("netlink",))
_LINK_FLAGS = {"UP": 0x1, "PROMISC": 0x100, "ALLMULTI": 0x200, "MULTICAST": 0x1000}

_ETHTOOL = {
    "GDRVINFO": 0x03,
    "GMSGLVL": 0x07,
    "SMSGLVL": 0x08,
    "GCOALESCE": 0x0E,
    "SCOALESCE": 0x0F,
    "GRINGPARAM": 0x10,
    "SRINGPARAM": 0x11,
    "GSTRINGS": 0x1B,
    "GSTATS": 0x1D,
    "STSO": 0x1F,
    "SGSO": 0x24,
    "GPFLAGS": 0x27,
    "SPFLAGS": 0x28,
    "GRXCSUM": 0x14,
    "STXCSUM": 0x17,
    "SSG": 0x19,
    "GSSET_INFO": 0x37,
    "GFEATURES": 0x3A,
    "GCHANNELS": 0x3C,
    "SCHANNELS": 0x3D,
    "GET_TS_INFO": 0x41,
    "GLINKSETTINGS": 0x4C,
    "SLINKSETTINGS": 0x4D,
}
_SIOCETHTOOL = 0x8946

_NEWLINK, _DELLINK, _NEWQDISC, _DELQDISC = 16, 17, 36, 37
_REQUEST, _ACK, _REPLACE, _CREATE = 0x1, 0x4, 0x100, 0x400
_IFNAME, _NETNS_FD, _TXQLEN, _TCA_KIND = 3, 28, 13, 1
QDISCS = ("pfifo", "fq_codel", "pfifo_fast", "noqueue", "mq", "pfifo_head_drop", "fq")


def _ifreq(request: int, form: str) -> Make:
    """An ioctl of a socket that sets something of a device: a number behind its name."""

    def make(m: Memory, v: Args) -> Made:
        width = struct.calcsize(form) * 8
        value = v.num(2) & ((1 << width) - 1)
        data = m.put((v.name(1) + struct.pack(form, value)).ljust(40, b"\0"))
        return Made(IOCTL, (v.fd(0), request, data))

    return make


def _link_flags(m: Memory, v: Args) -> Made:
    data = v.name(1) + struct.pack("<H22x", (v.num(2) & 0xFFFF) | _NOARP)
    return Made(IOCTL, (v.fd(0), 0x8914, m.put(data)))


def _address(m: Memory, v: Args) -> Made:
    """10.9.N.1; what is sent to 10.9.N.x goes there."""
    data = v.name(1) + struct.pack("<HH4s16x", 2, 0, bytes((10, 9, v.num(2) & 3, 1)))
    return Made(IOCTL, (v.fd(0), 0x8916, m.put(data)))


def _netmask(m: Memory, v: Args) -> Made:
    data = v.name(1) + struct.pack("<HH4s16x", 2, 0, bytes((255, 255, 255, 0)))
    return Made(IOCTL, (v.fd(0), 0x891C, m.put(data)))


def _hwaddr(m: Memory, v: Args) -> Made:
    data = v.name(1) + struct.pack("<H6s16x", v.num(2) & 0xFFFF, bytes((2, 0, 0, 0, 0, 9)))
    return Made(IOCTL, (v.fd(0), 0x8924, m.put(data)))


def _rename(m: Memory, v: Args) -> Made:
    return Made(IOCTL, (v.fd(0), 0x8923, m.put(v.name(1) + v.name(2) + bytes(8))))


def _ifindex(m: Memory, v: Args) -> Made:
    at = m.put(v.name(1) + bytes(24))
    return Made(IOCTL, (v.fd(0), 0x8933, at), load=at + 16 if at else 0)


def _ethtool(m: Memory, v: Args) -> Made:
    numbers = [v.num(at) & 0xFFFFFFFF for at in (2, 3, 4)]
    inner = m.put(struct.pack("<III", *numbers) + bytes(2048))
    request = v.name(1) + struct.pack("<Q16x", inner)
    return Made(IOCTL, (v.fd(0), _SIOCETHTOOL, m.put(request)))


def _attribute(kind: int, data: bytes) -> bytes:
    head = struct.pack("<HH", 4 + len(data), kind)
    return head + data + bytes(-len(data) % 4)


def _tell(m: Memory, fd: int | Ref, message: bytes, fds: dict[int, int | Ref]) -> Made:
    return Made(SENDTO, (fd, m.put(message, fds), len(message), _DONTWAIT, 0, 0))


def _header(kind: int, flags: int, body: bytes) -> bytes:
    return struct.pack("<IHHII", 16 + len(body), kind, flags | _REQUEST | _ACK, 1, 0) + body


def _move(m: Memory, v: Args) -> Made:
    named = struct.pack("<BxHiII", 0, 0, 0, 0, 0) + _attribute(_IFNAME, v.name(1))
    message = _header(_NEWLINK, 0, named + _attribute(_NETNS_FD, bytes(4)))
    return _tell(m, v.fd(0), message, {len(message) - 4: v.fd(2)})


def _delete(m: Memory, v: Args) -> Made:
    named = struct.pack("<BxHiII", 0, 0, 0, 0, 0) + _attribute(_IFNAME, v.name(1))
    return _tell(m, v.fd(0), _header(_DELLINK, 0, named), {})


def _qdisc(m: Memory, v: Args) -> Made:
    """Another root qdisc, or another child of mq."""
    kind = QDISCS[v.num(2) % len(QDISCS)]
    parent = 0xFFFFFFFF if not v.num(3) else 0x10000 | (v.num(3) & 0xFFFF)
    handle = 0x10000 if kind == "mq" else 0
    body = struct.pack("<BxxxiIII", 0, 0, handle, parent, 0)
    message = _header(
        _NEWQDISC, _CREATE | _REPLACE, body + _attribute(_TCA_KIND, kind.encode() + b"\0")
    )
    return _tell(m, v.fd(0), message, {20: v.fd(1)})


def _del_qdisc(m: Memory, v: Args) -> Made:
    body = struct.pack("<BxxxiIII", 0, 0, 0, 0xFFFFFFFF, 0)
    return _tell(m, v.fd(0), _header(_DELQDISC, 0, body), {20: v.fd(1)})


def _sendto(m: Memory, v: Args) -> Made:
    data = v.bytes(1)[:60000]
    at = m.put(data)
    to = m.put(struct.pack(">HH4s8x", 0x0200, 9, bytes((10, 9, v.num(2) & 3, 2))))
    return Made(SENDTO, (v.fd(0), at, len(data), v.num(3) & _DONTWAIT, to, 16))


def _sendll(m: Memory, v: Args) -> Made:
    data = v.bytes(2)
    at = m.put(data)
    to = struct.pack("<HHiHBB8s", 17, 0x0008, 0, 1, 0, 6, bytes((2, 0, 0, 0, 0, 2, 0, 0)))
    place = m.put(to, {4: v.fd(1)})
    return Made(SENDTO, (v.fd(0), at, len(data), v.num(3) & _DONTWAIT, place, 20))


def _option(level: int, name: int) -> Make:
    def make(m: Memory, v: Args) -> Made:
        data = m.put(struct.pack("<I", v.num(1) & 0xFFFFFFFF))
        return Made(SETSOCKOPT, (v.fd(0), level, name, data, 4))

    return make


def _load(m: Memory, kind: int, code: bytes, fds: dict[int, int | Ref] | None = None) -> Made:
    text, licence = m.put(code, fds), m.put(b"GPL\0")
    attributes = struct.pack("<IIQQ", kind, len(code) // 8, text, licence).ljust(128, b"\0")
    return Made(BPF, (5, m.put(attributes), 128))


def _xdp_program(m: Memory, v: Args) -> Made:
    return _load(m, XDP, answer(v.num(0) & 0x7FFFFFFF))


def _xdp_redirect(m: Memory, v: Args) -> Made:
    return _load(m, XDP, mov(1, 0) + mov(2, 0) + call(REDIRECT) + EXIT, {4: v.fd(0)})


def _filter_program(m: Memory, v: Args) -> Made:
    return _load(m, FILTER, answer(v.num(0) & 0x7FFFFFFF))


def _xdp_attach(m: Memory, v: Args) -> Made:
    """BPF_LINK_CREATE; the program goes when the link is closed."""
    attributes = struct.pack("<IIII", 0, 0, 37, v.num(2) & 0xFF).ljust(64, b"\0")
    return Made(BPF, (28, m.put(attributes, {0: v.fd(0), 4: v.fd(1)}), 64))


def _limit_file(m: Memory, v: Args) -> Made:
    name = v.name(0).rstrip(b"\0").decode(errors="replace")
    which = ("limit_max", "limit_min", "limit", "hold_time")[v.num(2) % 4]
    path = f"/sys/class/net/{name}/queues/tx-{v.num(1) & 3}/byte_queue_limits/{which}"
    return Made(OPENAT, (AT_FDCWD, m.put(path.encode() + b"\0"), 2))


def _write_number(m: Memory, v: Args) -> Made:
    text = b"%d\n" % v.num(1)
    return Made(WRITE, (v.fd(0), m.put(text), len(text)))


def _pause(m: Memory, v: Args) -> Made:
    """Some milliseconds; one that lasts is interrupted soon."""
    return Made(NANOSLEEP, (m.put(struct.pack("<qq", 0, v.num(0) * 1_000_000)), 0))


_LENGTHS = Num((0, 1, 2, 3, 5, 8, 63, 64, 65, 500, 1000, 10000, 1 << 20, 0x7FFFFFFF))
_WAITS = Exact((_DONTWAIT, _DONTWAIT, 0))
_UDP, _RAW, _ROUTE = (2, 2, 0), (17, 3, 0x0300), (16, 3, 0)
_SPACE = Fd(("space",))


def _socket(family: int, kind: int, protocol: int) -> Make:
    return lambda _m, _v: Made(SOCKET, (family, kind, protocol))


NET_CALLS = (
    Spec("udp", (), _socket(*_UDP), makes="udp", weight=3),
    Spec("packet", (), _socket(*_RAW), makes="packet", weight=3),
    Spec("netlink", (), _socket(*_ROUTE), makes="netlink", weight=2),
    Spec("ifindex", (_SOCKET, Name()), _ifindex, makes="index", weight=4),
    Spec("link_flags", (_SOCKET, Name(), Flags(_LINK_FLAGS, (1, 1, 0))), _link_flags, weight=20),
    Spec("address", (_SOCKET, Name(), Exact((0, 1, 2))), _address, weight=6),
    Spec("netmask", (_SOCKET, Name()), _netmask, weight=4),
    Spec("txqueuelen", (_SOCKET, Name(), _LENGTHS), _ifreq(0x8943, "<I"), weight=25),
    Spec("mtu", (_SOCKET, Name(), Num((68, 1280, 1500, 65521, 0))), _ifreq(0x8922, "<I"), weight=5),
    Spec("hwaddr", (_SOCKET, Name(), Num((1, 0xFFFE))), _hwaddr, weight=3),
    Spec("rename", (_SOCKET, Name(), Name()), _rename, weight=4),
    Spec(
        "ethtool",
        (
            _SOCKET,
            Name(),
            Choice(_ETHTOOL, (0x28, 0x28, 0x1D)),
            Num((0, 1, 2, 4)),
            Num((0, 1, 16)),
        ),
        _ethtool,
        weight=20,
    ),
    Spec("move", (_NETLINK, Name(), _SPACE), _move, weight=8),
    Spec("delete", (_NETLINK, Name()), _delete, weight=6),
    Spec(
        "qdisc", (_NETLINK, _INDEX, Num(tuple(range(len(QDISCS))), 4), Num((0, 0, 0, 1, 2))), _qdisc
    ),
    Spec("del_qdisc", (_NETLINK, _INDEX), _del_qdisc, weight=3),
    Spec("setns", (_SPACE,), lambda _m, v: Made(SETNS, (v.fd(0), 0x40000000)), weight=3),
    Spec(
        "sendto",
        (_SOCKET, Packet(), Exact((0, 1, 2)), _WAITS),
        _sendto,
        weight=40,
        repeats=True,
    ),
    Spec("sendll", (_PACKET, _INDEX, Packet(), _WAITS), _sendll, weight=25, repeats=True),
    Spec("bypass", (_PACKET, Exact((1, 0))), _option(263, 20), weight=4),
    Spec("vnet_hdr", (_PACKET, Exact((1, 0))), _option(263, 15), weight=3),
    Spec(
        "sndbuf", (Fd(("udp", "packet")), Num((0, 5000, 100000, 1 << 24))), _option(1, 7), weight=4
    ),
    Spec("xdp_program", (Num((2, 1, 3, 0, 4, 7)),), _xdp_program, makes="xdp", weight=3),
    Spec("xdp_redirect", (_INDEX,), _xdp_redirect, makes="xdp", weight=2),
    Spec(
        "xdp_attach",
        (Fd(("xdp",)), _INDEX, Exact((XDP_DRV_MODE, 0, 2))),
        _xdp_attach,
        makes="link",
        weight=8,
    ),
    Spec(
        "filter_program", (Num((0, 1, 2, 60, 0xFFFF)),), _filter_program, makes="filter", weight=3
    ),
    Spec("limit_file", (Name(), Exact((0, 1)), Exact((0, 1, 2, 3))), _limit_file, makes="text"),
    Spec(
        "write_number",
        (Fd(("text",)), Num((0, 1, 1500, 3000, 1 << 20, -1, 0xFFFFFFFF))),
        _write_number,
    ),
    Spec("getpid", (), lambda _m, _v: Made(GETPID), makes="pid", weight=1),
    Spec(
        "set_signalled",
        (ANY, Fd(("pid",))),
        lambda _m, v: Made(FCNTL, (v.fd(0), 8, v.fd(1))),
        weight=3,
    ),
    Spec("pause", (Exact((1, 2, 5, 9)),), _pause, weight=6),
)
