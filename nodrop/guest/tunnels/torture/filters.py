# SPDX-License-Identifier: GPL-2.0-only
"""Netfilter in a packet's way: rules that drop, mark, turn or queue, and a program that dawdles.

The rules go to nf_tables by netlink, since nft need not be installed.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from nodrop.guest import bpf
from nodrop.guest.command import netns_path
from nodrop.guest.netlink import CREATE, attribute, attributes, nested, text
from nodrop.guest.netns import inside
from nodrop.guest.tunnels.torture.netlink import NETFILTER, Netlink, be32
from nodrop.guest.tunnels.torture.traffic import Body, Counts

TABLE = "ndtorture"
RULES = ("drop", "mark", "queue", "turn")
"""Drop some, change marks, hand some to a program, mark in a chain that then asks for another
route."""
QUEUE = 7

_BATCH_BEGIN, _BATCH_END = 16, 17
_NFT = 10 << 8
_NEWTABLE, _DELTABLE, _NEWCHAIN, _NEWRULE = _NFT, _NFT | 2, _NFT | 3, _NFT | 6
_IPV4, _IPV6 = 2, 10
_LOCAL_OUT, _POST_ROUTING = 3, 4
_META_MARK, _META_RANDOM, _LESS = 3, 24, 2
_VERDICT_REGISTER, _REGISTER = 0, 8
_DROP = 0
_QUEUE_MESSAGE = 3 << 8
_Q_PACKET, _Q_VERDICT, _Q_CONFIG = 0, 1, 2
_BIND, _COPY_META = 1, 1
_ACCEPT = 1
_NETFILTER_PROGRAM, _NETFILTER_LINK = 32, 45
_LOOPS = 6000


def _head(family: int, resource: int = 0) -> bytes:
    return struct.pack("!BBH", family, 0, resource)


def _expression(name: str, *parts: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, *parts))


def _verdict(code: int) -> bytes:
    data = nested(2, nested(2, be32(1, code)))
    return _expression("immediate", be32(1, _VERDICT_REGISTER), data)


def _mark(value: int) -> list[bytes]:
    data = nested(2, attribute(1, struct.pack("=I", value)))
    return [
        _expression("immediate", be32(1, _REGISTER), data),
        _expression("meta", be32(2, _META_MARK), be32(3, _REGISTER)),
    ]


def _sometimes(of_256: int) -> list[bytes]:
    """Go on with the rule for so many packets of 256, by chance."""
    bound = nested(3, attribute(1, struct.pack("4B", of_256, 0, 0, 0)))
    return [
        _expression("meta", be32(1, _REGISTER), be32(2, _META_RANDOM)),
        _expression("cmp", be32(1, _REGISTER), be32(2, _LESS), bound),
    ]


def _rule(what: str) -> list[bytes]:
    if what == "drop":
        return [*_sometimes(80), _verdict(_DROP)]
    if what == "queue":
        number = attribute(1, struct.pack("!H", QUEUE)) + attribute(2, struct.pack("!H", 1))
        # Nobody there: the packet goes on.
        return [*_sometimes(50), _expression("queue", number, attribute(3, struct.pack("!H", 1)))]
    return [*_sometimes(128), *_mark(7)]


def add(netns: str, what: str, *, six: bool, late: bool) -> None:
    """Put a rule in the way.

    Args:
        what: one of RULES.
        late: behind the route's choice of a device, where there is a choice.

    Raises:
        OSError: the kernel did not take it.
    """
    family = _IPV6 if six else _IPV4
    hook = _POST_ROUTING if late and what != "turn" else _LOCAL_OUT
    kind = "route" if what == "turn" else "filter"
    chain = text(1, TABLE) + text(3, "c")
    chain += nested(4, be32(1, hook), be32(2, 0)) + text(7, kind)
    rule = text(1, TABLE) + text(2, "c") + nested(4, *_rule(what))
    head = _head(family)
    wanted = [
        (_NEWTABLE, CREATE, head + text(1, TABLE)),
        (_NEWCHAIN, CREATE, head + chain),
        (_NEWRULE, CREATE | 0x800, head + rule),
    ]
    _transact(netns, wanted)


def remove(netns: str, *, six: bool) -> None:
    """Take the rules out of the way.

    Raises:
        OSError: there are none.
    """
    head = _head(_IPV6 if six else _IPV4)
    _transact(netns, [(_DELTABLE, 0, head + text(1, TABLE))])


def _transact(netns: str, wanted: list[tuple[int, int, bytes]]) -> None:
    batch = _head(0, 10)
    with inside(netns_path(netns)), Netlink(NETFILTER) as netlink:
        messages = [(kind, flags | 0x4, body) for kind, flags, body in wanted]
        netlink.requests([(_BATCH_BEGIN, 0, batch), *messages, (_BATCH_END, 0, batch)])


def verdicts(value: int) -> Body:
    """Take the packets that a rule queues, keep each for a while, and let it go on."""

    def body(counts: Counts, number: int) -> None:
        chance = random.Random(f"{value}/verdicts")
        with Netlink(NETFILTER) as netlink:
            config = struct.pack("!BBH", _BIND, 0, 0)
            head = _head(0, QUEUE)
            netlink.request(_QUEUE_MESSAGE | _Q_CONFIG, 0, head + attribute(1, config))
            copy = attribute(2, struct.pack("!IB", 0, _COPY_META))
            netlink.request(_QUEUE_MESSAGE | _Q_CONFIG, 0, head + copy)
            netlink.socket.settimeout(None)
            done = 0
            while True:
                for packet in _packets(netlink.socket):
                    if chance.random() < 0.02:
                        time.sleep(0.02)
                    verdict = attribute(2, struct.pack("!II", _ACCEPT, packet))
                    message = (_QUEUE_MESSAGE | _Q_VERDICT, 0, head + verdict)
                    netlink.requests([message])
                    done += 1
                    counts.put(number, done, 0)

    return body


def _packets(sock: socket.socket) -> Iterator[int]:
    """Give the number of each packet that waits for a verdict."""
    try:
        data = sock.recv(1 << 16)
    except OSError:  # more came than there was room for
        return
    at = 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if kind == _QUEUE_MESSAGE | _Q_PACKET:
            for name, content in attributes(data[at + 20 : at + length]):
                if name == 1:
                    yield struct.unpack_from("!I", content)[0]
        at += (length + 3) & ~3


@contextmanager
def dawdling(netns: str, *, six: bool, late: bool) -> Iterator[None]:
    """Have every packet take its time in a hook, with its route in its hands.

    Raises:
        OSError: the kernel has no BPF programs for netfilter.
    """
    code = bpf.mov(1, _LOOPS) + bpf.insn(0x17, 1, imm=1) + bpf.insn(0x55, 1, off=-2)
    code += bpf.answer(_ACCEPT)
    with (
        inside(netns_path(netns)),
        bpf.program(_NETFILTER_PROGRAM, code, _NETFILTER_LINK) as program,
    ):
        family, hook = (_IPV6 if six else _IPV4), (_POST_ROUTING if late else _LOCAL_OUT)
        link = bpf.link(program, _NETFILTER_LINK, struct.pack("<IIiI", family, hook, -100, 0))
    try:
        yield
    finally:
        os.close(link)
