# SPDX-License-Identifier: GPL-2.0-only
"""Calls around a device: its administrator's settings, and its senders."""

from __future__ import annotations

from collections.abc import Callable

from proof.bpf import PROG_LOAD, SOCKET_FILTER, XDP, XDP_DRV_MODE, redirect, returns
from proof.fuzz.calls_tun import IOCTL, ioctl, tap_index
from proof.fuzz.memory import Memory, pack
from proof.fuzz.program import Spec, Specs, System, exact, flags, name, num, packet
from proof.netlink import ACK, CREATE, REPLACE, REQUEST, attribute, message, nested, text

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
    """Create a macvtap above the device of an index."""
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
