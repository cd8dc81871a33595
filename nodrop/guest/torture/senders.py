# SPDX-License-Identifier: GPL-2.0-only
"""The senders: a process each, as fast as it goes, paused at every account.

Each packet of ours is IPv4 and UDP. Its payload says who sent it, tells its number, and is filled
with a byte that depends on both: a reader sees what was changed on the way.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from nodrop.guest.torture.crew import Asked, Crew
from nodrop.guest.torture.shared import Field, Memory, State
from nodrop.guest.torture.tcp import connection

HERE, THERE = "198.18.0.1", "198.18.0.2"
PORT = 9
FLOWS = 8
"""Ports of a sender to a device of several queues."""
MARK = struct.Struct("!IIQ")
MAGIC = 0x6E6F6472
FILLS = tuple(bytes((number,)) * 24 for number in range(256))
"""What follows it. A route whose device has gone leads to one with an MTU of 68: what is longer
ends there in pieces, and each of them is freed."""
ETH_P_IP = 0x0800
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
FRAME = bytes.fromhex("020000000002 020000000003 88b5") + bytes(64)
"""For XDP: to nobody, of a type for experiments."""
_SEND_TIMEOUT = struct.pack("ll", 0, 100_000)
"""How often a sender that is held looks for orders."""
_PAUSE_S, _ERROR_S = 0.0005, 0.001

NOT_MADE = frozenset(
    {
        errno.EAGAIN,
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENODEV,
        errno.ENXIO,
        errno.EADDRNOTAVAIL,
    }
)
"""Errors before a packet is made."""


def payload(slot: int, number: int) -> bytes:
    """Return what a packet of a sender says."""
    return MARK.pack(MAGIC, slot, number) + FILLS[(slot + number) & 0xFF]


def wrong(data: bytes | memoryview) -> bool:
    """Whether a payload that begins with MAGIC is not what its sender wrote."""
    _, slot, number = MARK.unpack_from(data)
    expected: bytes = FILLS[(slot + number) & 0xFF]
    return bytes(data[MARK.size :]) != expected


@dataclass(frozen=True)
class Target:
    """Where senders send to.

    Attributes:
        device: the device's name.
        tap: frames are sent with an Ethernet header.
        flows: ports to send to.
        frames_to: the device that frames for XDP are sent to; "": none.
        gap_s: pause after each packet, seconds.
    """

    device: str
    tap: bool
    flows: int
    frames_to: str = ""
    gap_s: float = 0.0


def _packet(contents: bytes, port: int, tap: bool) -> bytes:
    """An IPv4 packet with its headers; nobody looks at checksums."""
    here, there = socket.inet_aton(HERE), socket.inet_aton(THERE)
    length = 28 + len(contents)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, 0, 0, 64, 17, 0, here, there)
    udp = struct.pack("!HHHH", 1, port, length - 20, 0)
    ethernet = bytes.fromhex("020000000002 020000000001 0800") if tap else b""
    return ethernet + ip + udp + contents


def _loop(
    memory: Memory, slot: int, asked: Asked, send: Callable[[int], object], gap_s: float = 0.0
) -> None:
    """Send numbered packets; ``send`` raises OSError when it cannot."""
    number = 0
    while not asked.stop:
        if memory.pause:
            memory.set(slot, Field.STATE, State.PAUSED)
            time.sleep(_PAUSE_S)
            continue
        memory.set(slot, Field.STATE, State.BUSY)
        # Once more: who saw PAUSED must have seen the last packet's count.
        if memory.pause:
            continue
        try:
            send(number)
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                memory.add(slot, Field.REFUSED)
                memory.add(slot, Field.COUNT)
                number += 1
                time.sleep(_PAUSE_S)
            elif error.errno in NOT_MADE:
                memory.add(slot, Field.ERRORS)
                if error.errno != errno.EAGAIN:
                    time.sleep(_ERROR_S)
            else:
                memory.add(slot, Field.UNSURE)
                number += 1
                time.sleep(_ERROR_S)
            continue
        memory.add(slot, Field.COUNT)
        number += 1
        if gap_s:
            time.sleep(gap_s)


def _udp(memory: Memory, target: Target) -> Callable[[int, Asked], None]:
    def run(slot: int, asked: Asked) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
            ports = [PORT + flow for flow in range(target.flows)]
            _loop(
                memory,
                slot,
                asked,
                lambda number: sock.sendto(
                    payload(slot, number), (THERE, ports[number % len(ports)])
                ),
                target.gap_s,
            )

    return run


def _packets(memory: Memory, target: Target, *, bypass: bool) -> Callable[[int, Asked], None]:
    def run(slot: int, asked: Asked) -> None:
        # Protocol 0: it receives nothing.
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
            if bypass:
                sock.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
            to = (target.device, ETH_P_IP)
            _loop(
                memory,
                slot,
                asked,
                lambda number: sock.sendto(
                    _packet(payload(slot, number), PORT + number % target.flows, target.tap), to
                ),
            )

    return run


def _frames(memory: Memory, target: Target) -> Callable[[int, Asked], None]:
    def run(slot: int, asked: Asked) -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
            sock.bind((target.frames_to, 0))

            def send(number: int) -> None:
                # They would fill the device by themselves.
                if number % 16 == 15:
                    time.sleep(0.001)
                sock.send(FRAME)

            _loop(memory, slot, asked, send)

    return run


class Sender:
    """A sender of a kind.

    Args:
        kind: "udp", "tcp", "packet", "bypass" (past the qdisc) or "xdp" (frames that are
            redirected).
    """

    def __init__(self, crew: Crew, kind: str, target: Target) -> None:
        self.kind = kind
        self.job = crew.begin("send", (kind, target))

    @property
    def paused(self) -> bool:
        """Whether it sends nothing now."""
        return self.job.get(Field.STATE) == State.PAUSED


def send(
    memory: Memory, slot: int, asked: Asked, _files: list[int], kind: str, target: Target
) -> None:
    """Be a sender: the job "send"."""
    runs = {
        "udp": lambda: _udp(memory, target),
        "tcp": lambda: connection(memory, HERE, THERE),
        "packet": lambda: _packets(memory, target, bypass=False),
        "bypass": lambda: _packets(memory, target, bypass=True),
        "xdp": lambda: _frames(memory, target),
    }
    runs[kind]()(slot, asked)
