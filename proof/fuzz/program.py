# SPDX-License-Identifier: GPL-2.0-only
"""A program of system calls: its calls, and the random choice of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from proof.fuzz.memory import PACKETS, SIZES

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
    """``size`` bytes that begin like a kind of packet (:mod:`proof.fuzz.memory`)."""

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
