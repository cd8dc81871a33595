# SPDX-License-Identifier: GPL-2.0-only
"""A program of system calls: what its calls are, and how each is made up at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from nodrop.guest.fuzz import packets

HERE, AWAY = -2, -1
"""As ``Ref``: the network namespace that a program begins in, and another one."""
NAMES = ("fz0", "fz1", "fz2")
"""Names of devices, mostly."""
_ODD_NAMES = ("fz%d", "", "fz0123456789abcd", "fz0/x", "lo")
_ODD = (-1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF)
NO_FDS = (-1, 0, 9999)
"""In place of an open file: none, /dev/null, none."""


@dataclass(frozen=True)
class Ref:
    """The result of an earlier call.

    Attributes:
        call: its number in the program; HERE or AWAY.
    """

    call: int

    def __str__(self) -> str:
        return {HERE: "here", AWAY: "away"}.get(self.call, f"r{self.call}")


@dataclass(frozen=True)
class Data:
    """Bytes of a packet (:mod:`nodrop.guest.fuzz.packets`).

    Attributes:
        kind: what they begin like.
        size: how many there are.
    """

    kind: str
    size: int

    def __str__(self) -> str:
        return f"{self.kind}/{self.size}"


Value = int | str | Ref | Data
"""An argument. Text is the name of a device."""


@dataclass(frozen=True)
class Call:
    """A call.

    Attributes:
        name: in the tables.
        aside: the next call does not wait for this one.
        where: which memory it gets: "" (good), "null", "bad" (none), "edge" (ends after 8 bytes).
        times: how often it is made, until it fails.
    """

    name: str
    values: tuple[Value, ...] = ()
    aside: bool = False
    where: str = ""
    times: int = 1

    def __str__(self) -> str:
        words = [hex(one) if isinstance(one, int) and one > 9 else str(one) for one in self.values]
        text = f"{'& ' if self.aside else ''}{self.name}({', '.join(words)})"
        text += f" @{self.where}" if self.where else ""
        return text + (f" *{self.times}" if self.times > 1 else "")


Program = tuple[Call, ...]


def render(program: Program) -> str:
    """Return a program as text, a numbered call a line."""
    return "".join(f"r{number} = {call}\n" for number, call in enumerate(program))


@dataclass(frozen=True)
class Fd:
    """An argument that is the result of another call.

    Attributes:
        kinds: the kinds that are meant; others are taken now and then.
    """

    kinds: tuple[str, ...]


Choose = Callable[[Random], Value]
Param = Fd | Choose


def of(*kinds: str) -> Fd:
    """Return the parameter that takes results of these kinds."""
    return Fd(kinds)


def exact(*usual: int) -> Choose:
    """Return the parameter that is one of these numbers: another might harm the guest."""
    return lambda rng: rng.choice(usual)


def num(*usual: int, bits: int = 32) -> Choose:
    """Return the parameter that is mostly one of these numbers, else any of the width."""

    def choose(rng: Random) -> Value:
        if rng.random() < 0.85:
            return rng.choice(usual)
        return rng.choice((rng.getrandbits(bits), 1 << rng.randrange(bits), rng.choice(_ODD)))

    return choose


def flags(names: int, usual: tuple[int, ...]) -> Choose:
    """Return the parameter of bits: a usual combination, often with others of ``names``."""
    bits = [1 << at for at in range(names.bit_length()) if names >> at & 1]

    def choose(rng: Random) -> Value:
        value = rng.choice(usual)
        while rng.random() < 0.3:
            value ^= rng.choice(bits)
        return value

    return choose


def name(rng: Random) -> Value:
    """Choose the name of a device: the first one mostly, others, or an odd one."""
    draw = rng.random()
    return NAMES[0] if draw < 0.75 else rng.choice(NAMES if draw < 0.95 else _ODD_NAMES)


def packet(rng: Random) -> Value:
    """Choose what is written or sent, of any kind and size."""
    return Data(rng.choice(packets.KINDS), rng.choice(packets.SIZES))


@dataclass(frozen=True)
class Spec:
    """A kind of call.

    Attributes:
        make: gets the memory and the arguments (names as 16 bytes, packets as bytes, all else as
            numbers) and returns the system call's number and arguments.
        makes: what kind of thing its result is; "": nothing that others use.
        weight: how often it is chosen.
        repeats: it makes sense many times.
    """

    name: str
    params: tuple[Param, ...]
    make: Callable[..., tuple[int, ...]]
    makes: str = ""
    weight: int = 10
    repeats: bool = False
