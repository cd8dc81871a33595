# SPDX-License-Identifier: GPL-2.0-only
"""All calls that there are, and a program's way from them to the executor."""

from __future__ import annotations

from nodrop.guest.fuzz import wire
from nodrop.guest.fuzz.calls_net import NET_CALLS
from nodrop.guest.fuzz.calls_tun import ASYNC, NONBLOCK, RDWR, TUN_CALLS
from nodrop.guest.fuzz.calls_vhost import VHOST_CALLS
from nodrop.guest.fuzz.grammar import Args, Spec
from nodrop.guest.fuzz.memory import Memory
from nodrop.guest.fuzz.program import AWAY, HERE, Call, Program, Ref
from nodrop.guest.fuzz.wire import Raw

SPECS: dict[str, Spec] = {spec.name: spec for spec in (*TUN_CALLS, *VHOST_CALLS, *NET_CALLS)}
MAKERS: dict[str, tuple[str, ...]] = {
    kind: tuple(spec.name for spec in SPECS.values() if spec.makes == kind)
    for kind in sorted({spec.makes for spec in SPECS.values() if spec.makes})
}
"""Kind -> the calls that make such a thing."""
_FLAGS = {"tun": wire.QUEUE, "udp": wire.SENDER, "packet": wire.SENDER}
_READABLE = tuple(
    mode | rest for mode in (0, RDWR) for rest in (0, NONBLOCK, ASYNC, NONBLOCK | ASYNC)
)
SETTLE_MS, LIMIT_MS = 1500, 6000


def kind_of(program: Program, number: int) -> str:
    """Return what kind of thing a reference is to; "": to nothing."""
    if number in (HERE, AWAY):
        return "space"
    return SPECS[program[number].name].makes


def mistake(program: Program) -> str:
    """Return what is wrong with the form of a program; "": nothing."""
    if len(program) > wire.MOST_CALLS:
        return f"{len(program)} calls"
    for number, call in enumerate(program):
        spec = SPECS.get(call.name)
        if spec is None:
            return f"{call.name}: no such call"
        if len(call.values) != len(spec.params):
            return f"{call.name} takes {len(spec.params)} arguments"
        if not 1 <= call.times <= 1000:
            return f"{call.name}: {call.times} times"
        for used in call.refs():
            if used not in (HERE, AWAY) and (not 0 <= used < number or not kind_of(program, used)):
                return f"{call.name} uses r{used}, which is nothing"
    return ""


def _raw(number: int, call: Call) -> Raw:
    spec = SPECS[call.name]
    raw = Raw(0, keeps=bool(spec.makes), times=call.times, flags=_FLAGS.get(spec.makes, 0))
    raw.flags |= wire.ASYNC if call.aside else 0
    made = spec.make(Memory(raw, number, call.where), Args(call.values))
    raw.number, raw.args, raw.load = made.number, made.args, made.load
    if not wire.MEMORY <= raw.load <= wire.MEMORY + wire.MEMORY_LEN - 4:
        raw.load = 0
    return raw


def settles(program: Program) -> bool:
    """Whether its senders must be rid of their packets once its queues are read.

    Not when somebody else has a queue, or it was opened by who may not read.
    """
    return not any(
        call.name == "set_backend" or (call.name == "open_tun" and call.values[0] not in _READABLE)
        for call in program
    )


def encode(program: Program, *, settle: bool | None = None) -> bytes:
    """Return what the executor is told.

    Args:
        settle: read its queues in the end until nothing is on the way; None: as it should be.
    """
    wanted = settles(program) if settle is None else settle
    raws = [_raw(number, call) for number, call in enumerate(program)]
    return wire.frame(raws, limit_ms=LIMIT_MS, settle_ms=SETTLE_MS if wanted else 0)


def references(program: Program, number: int, kinds: tuple[str, ...]) -> list[Ref]:
    """Return what a call of this number can be given of these kinds."""
    found = [Ref(at) for at in range(number) if SPECS[program[at].name].makes in kinds]
    return found + ([Ref(HERE), Ref(AWAY)] if "space" in kinds else [])
