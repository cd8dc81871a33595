# SPDX-License-Identifier: GPL-2.0-only
"""What a call is: its name, what it takes, what it makes, and the system call that it becomes."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nodrop.guest.fuzz import packets
from nodrop.guest.fuzz.memory import Memory
from nodrop.guest.fuzz.program import Data, Ref, Value

NAMES = ("fz0", "fz1", "fz2")
"""What devices are called, mostly."""
_ODD_NAMES = ("fz%d", "", "fz0123456789abcd", "fz0/x", "lo")
NO_FDS = (-1, 0, 9999)
"""In place of an open file: none, /dev/null, none."""


class Param(ABC):
    """What an argument may be."""

    @abstractmethod
    def choose(self, rng: random.Random) -> Value:
        """Return one that makes sense without other calls."""

    def change(self, rng: random.Random, value: Value) -> Value:
        """Return another one, which may be near to this one."""
        del value
        return self.choose(rng)

    def words(self) -> Mapping[str, int]:
        """Return the names of bits, for the text form."""
        return {}


@dataclass(frozen=True)
class Fd(Param):
    """What another call has made.

    Attributes:
        kinds: which kinds are meant; others are taken now and then.
    """

    kinds: tuple[str, ...]

    def choose(self, rng: random.Random) -> Value:
        """Return a number that is no open file of use."""
        return rng.choice(NO_FDS)


@dataclass(frozen=True)
class Num(Param):
    """A number.

    Attributes:
        usual: what it is, mostly.
        bits: its width.
    """

    usual: tuple[int, ...]
    bits: int = 32

    def choose(self, rng: random.Random) -> Value:
        """Return a usual one, or any of the width."""
        if rng.random() < 0.85:
            return rng.choice(self.usual)
        return rng.choice(
            (rng.getrandbits(self.bits), 1 << rng.randrange(self.bits), rng.choice(ODD))
        )

    def change(self, rng: random.Random, value: Value) -> Value:
        """Return one nearby, or any."""
        if not isinstance(value, int) or rng.random() < 0.5:
            return self.choose(rng)
        return rng.choice((value + 1, max(value - 1, 0), value ^ (1 << rng.randrange(self.bits))))


ODD = (-1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Exact(Num):
    """A number that must not be any other, for the guest's sake."""

    def choose(self, rng: random.Random) -> Value:
        """Return a usual one."""
        return rng.choice(self.usual)

    def change(self, rng: random.Random, value: Value) -> Value:
        """Return a usual one."""
        del value
        return rng.choice(self.usual)


@dataclass(frozen=True)
class Flags(Param):
    """Bits with names.

    Attributes:
        names: of the bits.
        usual: combinations that make sense.
    """

    names: Mapping[str, int]
    usual: tuple[int, ...]

    def choose(self, rng: random.Random) -> Value:
        """Return a combination that makes sense, often with others."""
        value = rng.choice(self.usual)
        while rng.random() < 0.3:
            value ^= rng.choice(tuple(self.names.values()))
        return value

    def change(self, rng: random.Random, value: Value) -> Value:
        """Flip a bit."""
        if not isinstance(value, int) or rng.random() < 0.4:
            return self.choose(rng)
        return value ^ rng.choice(tuple(self.names.values()))

    def words(self) -> Mapping[str, int]:
        """Return the names of the bits."""
        return self.names


@dataclass(frozen=True)
class Choice(Param):
    """One of several numbers with names."""

    names: Mapping[str, int]
    usual: tuple[int, ...] = ()

    def choose(self, rng: random.Random) -> Value:
        """Return a usual one, or any."""
        if self.usual and rng.random() < 0.5:
            return rng.choice(self.usual)
        return rng.choice(tuple(self.names.values()))

    def words(self) -> Mapping[str, int]:
        """Return the names."""
        return self.names


@dataclass(frozen=True)
class Name(Param):
    """The name of a device."""

    def choose(self, rng: random.Random) -> Value:
        """Return one of a few, the first one mostly, or an odd one."""
        draw = rng.random()
        if draw < 0.75:
            return NAMES[0]
        return rng.choice(NAMES if draw < 0.95 else _ODD_NAMES)


@dataclass(frozen=True)
class Packet(Param):
    """What is written or sent."""

    def choose(self, rng: random.Random) -> Value:
        """Return one of any kind, of any size."""
        return Data(rng.choice(packets.KINDS), rng.choice(packets.SIZES))

    def change(self, rng: random.Random, value: Value) -> Value:
        """Keep its kind or its size."""
        fresh = self.choose(rng)
        if not isinstance(value, Data) or not isinstance(fresh, Data):
            return fresh
        return rng.choice((Data(value.kind, fresh.size), Data(fresh.kind, value.size)))


class Args:
    """The values of a call, each as what the grammar says it is."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values = values

    def num(self, at: int) -> int:
        """Return a number; whatever else there is counts as 0."""
        value = self._values[at]
        return value if isinstance(value, int) else 0

    def fd(self, at: int) -> int | Ref:
        """Return what another call has made, or a number in its place."""
        value = self._values[at]
        return value if isinstance(value, int | Ref) else -1

    def name(self, at: int) -> bytes:
        """Return a device's name as the kernel takes it, 16 bytes."""
        value = self._values[at]
        text = value if isinstance(value, str) else ""
        return text.encode()[:16].ljust(16, b"\0")

    def bytes(self, at: int) -> bytes:
        """Return what is written."""
        value = self._values[at]
        return packets.content(value) if isinstance(value, Data) else b""


@dataclass(frozen=True)
class Made:
    """The system call that a call becomes.

    Attributes:
        number: the system call's.
        load: the address of its result, when that is not what it returns; 0: it is.
    """

    number: int
    args: tuple[int | Ref, ...] = ()
    load: int = 0


Make = Callable[[Memory, Args], Made]


@dataclass(frozen=True)
class Spec:
    """A kind of call.

    Attributes:
        make: makes the system call of it.
        makes: what kind of thing its result is; "": nothing that others use.
        weight: how often it is chosen.
        repeats: it makes sense many times.
    """

    name: str
    params: tuple[Param, ...]
    make: Make
    makes: str = ""
    weight: int = 10
    repeats: bool = False
