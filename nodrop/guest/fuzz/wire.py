# SPDX-License-Identifier: GPL-2.0-only
"""What fuzz_exec is told and what it answers (traffic/fuzz_wire.h)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from nodrop.guest.fuzz.program import HERE, Ref

MEMORY, MEMORY_LEN = 0x20000000, 0x200000
"""The memory of a program; behind it there is none."""
MOST_CALLS = 64

ASYNC, QUEUE, SENDER = 1, 2, 4
"""Flags of a call; see enum fuzz_flags."""
NOT_MADE, UNENDED = -0x10000, -0x10001
"""Results beside numbers and negative errnos."""

_HEAD = struct.Struct("<4I")
_CALL = struct.Struct("<IHHhHHHQ6Q")
_COPY = struct.Struct("<QQ")
_PATCH = struct.Struct("<QQ")
ANSWER = struct.Struct("<4I")
_NOWHERE = -1
_U64 = (1 << 64) - 1


class End(IntEnum):
    """How a program ended."""

    ENDED = 0
    KILLED = 1
    """Its time was over."""
    STUCK = 2
    """And it cannot be killed."""


@dataclass
class Raw:
    """A system call as the executor makes it.

    Attributes:
        number: the system call's.
        args: numbers, or what an earlier call has made.
        flags: ASYNC, QUEUE, SENDER.
        keeps: others may use its result.
        copies: what is written to memory before: (address, bytes).
        patches: where in memory what an earlier call has made is written, 32 bits.
        load: the address of the 32-bit number that is its result; 0: what it returns.
    """

    number: int
    args: Sequence[int | Ref] = ()
    flags: int = 0
    keeps: bool = False
    times: int = 1
    copies: list[tuple[int, bytes]] = field(default_factory=list)
    patches: list[tuple[int, Ref]] = field(default_factory=list)
    load: int = 0


@dataclass(frozen=True)
class Answer:
    """What became of a program.

    Attributes:
        results: of each call: what it returned, a negative errno, NOT_MADE or UNENDED.
        held: bytes that its senders had on the way in the end.
        removed: devices that it left behind.
    """

    end: End
    results: tuple[int, ...]
    held: int
    removed: int


def slot(ref: Ref) -> int:
    """Return the number of the executor's slot that holds what a call has made."""
    return ref.call - HERE


def frame(calls: Sequence[Raw], *, limit_ms: int, settle_ms: int) -> bytes:
    """Return a program as the executor reads it."""
    body = b"".join(_call(number, raw) for number, raw in enumerate(calls))
    return _HEAD.pack(len(body), len(calls), limit_ms, settle_ms) + body


def _call(number: int, raw: Raw) -> bytes:
    given = [*raw.args, *[0] * (6 - len(raw.args))]
    slots = sum(1 << at for at, value in enumerate(given) if isinstance(value, Ref))
    values = [slot(value) if isinstance(value, Ref) else value & _U64 for value in given]
    keep = slot(Ref(number)) if raw.keeps else _NOWHERE
    counts = (keep, raw.times, len(raw.copies), len(raw.patches))
    parts = [_CALL.pack(raw.number, raw.flags, slots, *counts, raw.load, *values)]
    for at, data in raw.copies:
        parts += [_COPY.pack(at, len(data)), data, bytes(-len(data) % 8)]
    parts += [_PATCH.pack(at, slot(ref)) for at, ref in raw.patches]
    return b"".join(parts)


def answer(head: bytes, results: bytes) -> Answer:
    """Read an answer."""
    end, calls, held, removed = ANSWER.unpack(head)
    return Answer(End(end), struct.unpack(f"<{calls}q", results), held, removed)
