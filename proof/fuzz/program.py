# SPDX-License-Identifier: GPL-2.0-only
"""Programs of system calls: memory at fixed addresses, packets, calls, random arguments."""

from __future__ import annotations

import ctypes
import errno
import mmap
import struct
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import NamedTuple

MEMORY, MEMORY_LEN = 0x200000000, 0x200000
"""Address and size of the memory, bytes; a virtual machine's memory is the same.

Nothing is mapped directly above it. The heap, randomized within 1 GB, is not here either.
"""
END = MEMORY + MEMORY_LEN
PAGE = 4096
_BULK, _ROOM = MEMORY + 0x40000, MEMORY + 0x80000
"""Areas for data that exceeds a call's own page: for writes, and for reads."""
MOST_BYTES = 0x40000
VHOST = MEMORY + 0x100000
"""Address of a virtual machine's rings."""
_FIXED_NOREPLACE = 0x100000
_BITS = {"B": 8, "H": 16, "I": 32, "Q": 64}

_MAC = bytes.fromhex("020000000001 020000000002")
_IP4 = bytes.fromhex("4500001c 00010000 40110000 0a090002 0a090001 00090009 00080000")
_TCP4 = bytes.fromhex("4500003c 00010000 40060000 0a090002 0a090001 00090009 00000001 00000001")
_TCP4 += bytes.fromhex("50100400 00000000")
_IP6 = bytes.fromhex("60000000 00081140 fd" + "00" * 14 + "02fd" + "00" * 14 + "01") + _IP4[20:]
_ETH4 = _MAC + b"\x08\x00" + _IP4
PACKETS = {
    "zero": b"\0",
    "ones": b"\xff" * 64,
    "ip4": _IP4,
    "ip6": _IP6,
    "eth4": _ETH4,
    "eth6": _MAC + b"\x86\xdd" + _IP6,
    "vlan4": _MAC + b"\x81\x00\x00\x07\x08\x00" + _IP4,
    "arp": b"\xff" * 6 + _MAC[6:] + bytes.fromhex("0806 0001080006040001"),
    "pi4": b"\x00\x00\x08\x00" + _IP4,
    "vnet-ip4": bytes(10) + _IP4,
    "vnet-eth4": bytes(10) + _ETH4,
    "mrg-eth4": bytes(12) + _ETH4,
    # GSO packets of TCP and UDP; partial checksums.
    "gso-tcp4": struct.pack("<BBHHHH", 1, 1, 40, 100, 20, 16) + _TCP4,
    "gso-udp4": struct.pack("<BBHHHH", 1, 5, 28, 100, 20, 6) + _IP4,
    "gso-eth4": struct.pack("<BBHHHH", 1, 1, 54, 100, 34, 16) + _MAC + b"\x08\x00" + _TCP4,
    "gso-bad": struct.pack("<BBHHHH", 1, 3, 0xFFFF, 1, 0xFFF0, 0xFFF0) + _IP4,
    "csum-bad": struct.pack("<BBHHHH", 1, 0, 0, 0, 60, 4000) + _ETH4,
}
"""Kind -> the first bytes of such a packet."""
SIZES = (
    *(0, 1, 3, 4, 9, 10, 12, 13, 14, 20, 28, 34, 42, 60, 64, 100, 128, 500, 1000, 1500, 1514),
    *(1600, 4095, 4096, 4097, 9000, 16384, 65521, 65535, 65536, 70000),
)


def content(kind: str, size: int) -> bytes:
    """Return ``size`` bytes that begin like a kind of packet."""
    data = bytearray(PACKETS[kind][:size].ljust(size, b"\xa5"))
    at = data.find(b"\x0a\x09\x00\x02") - 12
    if at >= 0 and at + 20 <= size:
        # Set the true length, and the header's checksum.
        struct.pack_into(">H", data, at + 2, min(size - at, 0xFFFF))
        total = sum(struct.unpack_from(">10H", data, at))
        total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into(">H", data, at + 10, ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
    return bytes(data)


def pack(form: str, *values: int | bytes) -> bytes:
    """Pack as :func:`struct.pack`, but truncate numbers to their widths (B, H, I, Q, s, x)."""
    letters = [letter for letter in form if letter in "BHIQs"]
    cut = [
        value if isinstance(value, bytes) else value & ((1 << _BITS[letter]) - 1)
        for letter, value in zip(letters, values, strict=True)
    ]
    return struct.pack(form, *cut)


@cache
def allocate() -> None:
    """Map the memory, once; children of this process inherit it.

    Raises:
        OSError: the addresses are in use.
    """
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED_NOREPLACE
    if libc.mmap(MEMORY, MEMORY_LEN, mmap.PROT_READ | mmap.PROT_WRITE, kind, -1, 0) != MEMORY:
        raise OSError(errno.ENOMEM, "the fuzzer's memory cannot be mapped")


class Memory:
    """Allocate addresses for a call, by the call's number in its program."""

    def __init__(self, number: int) -> None:
        self._at = MEMORY + number * PAGE
        self._end = self._at + PAGE

    def put(self, data: bytes) -> int:
        """Copy bytes into the memory; return their address."""
        at = self._place(len(data), _BULK)
        ctypes.memmove(at, data, min(len(data), MOST_BYTES))
        return at

    def buffer(self, size: int) -> int:
        """Return the address of ``size`` bytes for the kernel to write to."""
        return self._place(size, _ROOM)

    def _place(self, size: int, bulk: int) -> int:
        if size > self._end - self._at:
            return bulk
        self._at += (size + 15) & ~15
        return self._at - ((size + 15) & ~15)


HERE, AWAY = -2, -1
"""As ``Ref``: the network namespace in which a program starts, and a second one."""
NAMES = ("fz0", "fz1", "fz2")
_ODD_NAMES = ("fz%d", "", "fz0123456789abcd", "fz0/x", "lo")
_ODD = (-1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF)


class Ref(NamedTuple):
    """The result of an earlier call, by its number in the program; HERE or AWAY."""

    call: int

    def __str__(self) -> str:
        return {HERE: "here", AWAY: "away"}.get(self.call, f"r{self.call}")


class Data(NamedTuple):
    """``size`` bytes that begin like a kind of packet (see content())."""

    kind: str
    size: int

    def __str__(self) -> str:
        return f"{self.kind}/{self.size}"


Value = int | str | Ref | Data
"""An argument. A string is a device's name."""


class Call(NamedTuple):
    """A call, made ``times`` times or until it fails; the next call may run meanwhile."""

    name: str
    values: tuple[Value, ...] = ()
    background: bool = False
    times: int = 1

    def __str__(self) -> str:
        words = [hex(one) if isinstance(one, int) and one > 9 else str(one) for one in self.values]
        text = f"{'& ' if self.background else ''}{self.name}({', '.join(words)})"
        return text + (f" *{self.times}" if self.times > 1 else "")


Program = tuple[Call, ...]
Choose = Callable[[Random], Value]
Param = tuple[str, ...] | Choose
"""An argument: the result of a call that makes one of these kinds, or a random choice."""


def exact(*usual: int) -> Choose:
    """Return a parameter with only these values: others might harm the guest."""
    return lambda rng: rng.choice(usual)


def num(*usual: int, bits: int = 32) -> Choose:
    """Return a parameter with mostly these values, else any number of ``bits`` bits."""

    def choose(rng: Random) -> Value:
        if rng.random() < 0.85:
            return rng.choice(usual)
        return rng.choice((rng.getrandbits(bits), 1 << rng.randrange(bits), rng.choice(_ODD)))

    return choose


def flags(names: int, *usual: int) -> Choose:
    """Return a parameter of flags: a usual combination, often with others of ``names`` flipped."""
    bits = [1 << at for at in range(names.bit_length()) if names >> at & 1]

    def choose(rng: Random) -> Value:
        value = rng.choice(usual)
        while rng.random() < 0.3:
            value ^= rng.choice(bits)
        return value

    return choose


def name(rng: Random) -> Value:
    """Choose a device's name: mostly the first one, else another, or an odd one."""
    draw = rng.random()
    return NAMES[0] if draw < 0.75 else rng.choice(NAMES if draw < 0.95 else _ODD_NAMES)


def packet(rng: Random) -> Value:
    """Choose the data to write or send, of any kind and size."""
    return Data(rng.choice(tuple(PACKETS)), rng.choice(SIZES))


System = tuple[int, ...]
"""A system call's number and arguments."""


class Spec(NamedTuple):
    """A kind of call.

    Attributes:
        weight: its relative frequency.
        params: its arguments.
        make: takes the memory and the arguments (names as 16 bytes, packets as bytes, all else as
            numbers) and returns the system call.
        makes: the kind of its result; "": other calls cannot use it.
        repeats: whether to repeat it makes sense.
    """

    weight: int
    params: tuple[Param, ...]
    make: Callable[..., System]
    makes: str = ""
    repeats: bool = False


Specs = Mapping[str, Spec]
