# SPDX-License-Identifier: GPL-2.0-only
"""Runs programs in a guest until something is found, or the time is over."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

from nodrop.guest.drivers import Drivers
from nodrop.guest.environment import Environment
from nodrop.guest.failure import GuestError
from nodrop.guest.fuzz.build import generate
from nodrop.guest.fuzz.execute import UNENDED, Answer, End, Executor
from nodrop.guest.fuzz.program import Program, render
from nodrop.guest.fuzz.watch import Finding, Health, Log
from nodrop.guest.leaks import Leaks
from nodrop.guest.plan import Variant
from nodrop.guest.runner import prepare_system

GUARD = Path("/sys/module/nodrop/parameters/guard_ms")
TRACE = Path("/sys/kernel/tracing/events/nodrop/enable")
RCU = Path("/sys/module/rcutree/parameters")
RUNNING = "running.txt"
"""In NODROP_OUT: the program that runs, written before it runs."""
_HEALTH_EVERY = 200
"""Programs."""
_TELL_S = 2.0
_AGAIN = 5
"""How often a program runs again before its packets count as held."""


@dataclass(frozen=True)
class Kind:
    """How a guest is set up.

    Attributes:
        guard_ms: after how long a reader counts as gone; 0: never.
        trace: with nodrop's tracepoints.
        vhost: whose vhost_net; the kernel's own knows nothing of tun's protocol.
    """

    guard_ms: int = 0
    trace: bool = False
    vhost: Variant = Variant.NODROP


KINDS = (Kind(), Kind(guard_ms=20, trace=True), Kind(vhost=Variant.STOCK))
"""A guard that never trips shows which queue is stuck; one that trips soon is code as well."""


@dataclass
class State:
    """A run so far.

    Attributes:
        programs: that were run.
        unsure: programs whose packets were held once and not again.
        killed: programs whose time was over.
        done: how often each call was made without an error.
        finding: what ended the run; None: nothing.
    """

    programs: int = 0
    unsure: int = 0
    killed: int = 0
    done: Counter[str] = field(default_factory=Counter)
    finding: Finding | None = None

    def __str__(self) -> str:
        return (
            f"{self.programs} programs, {self.done.total()} calls of {len(self.done)} kinds, "
            f"{self.killed} killed, {self.unsure} held once"
        )


def program_of(seed: int, number: int) -> Program:
    """Return a seed's program of this number: always the same."""
    return generate(Random(f"{seed}/{number}"))


class Fuzz:
    """A run.

    Args:
        say: called with the state now and then.
    """

    def __init__(self, kind: Kind, say: Callable[[State], None]) -> None:
        self.state = State()
        self._kind = kind
        self._say = say
        self._environment = Environment.from_environ()
        self._executor = Executor()
        self._leaks = Leaks()

    def run(self, seed: int, *, first: int = 0, programs: int = 0, seconds: float = 60.0) -> State:
        """Run a seed's programs; what is found is in the state.

        Args:
            first: the number of the first one.
            programs: so many at most; 0: no matter.
            seconds: when to end.

        Raises:
            GuestError, OSError: it cannot be run here.
        """
        prepare_system()
        _be_fast()
        drivers = Drivers(self._environment.modules)
        drivers.use(Variant.NODROP, vhost=self._kind.vhost)
        GUARD.write_text(str(self._kind.guard_ms))
        if self._kind.trace:
            TRACE.write_text("1")
        end = time.monotonic() + seconds
        self.state.finding = self._programs(seed, first, programs, end)
        if not self.state.finding:
            try:
                drivers.unload()
                leak = self._leaks.end()
                self.state.finding = Finding("leak", leak) if leak else None
            except GuestError as error:
                self.state.finding = Finding("modules", str(error))
        self._say(self.state)
        return self.state

    def _programs(self, seed: int, first: int, programs: int, end: float) -> Finding | None:
        log, health = Log(), Health()
        told = time.monotonic()
        for number in count(first):
            program = program_of(seed, number)
            text = f"# --seed {seed} --first {number}\n{render(program)}"
            (self._environment.out / RUNNING).write_text(text, encoding="utf-8")
            found = self._look(program, self._executor.run(program), log)
            self.state.programs += 1
            if not found and self.state.programs % _HEALTH_EVERY == 0:
                found = health.finding()
                self._leaks.round_ends()
            if found:
                return found
            if time.monotonic() >= end or self.state.programs == programs:
                return health.finding() or log.finding()
            if time.monotonic() - told >= _TELL_S:
                told = time.monotonic()
                self._say(self.state)
        return None

    def _look(self, program: Program, answer: Answer, log: Log) -> Finding | None:
        """Return what is wrong after a program."""
        calls = list(zip(program, answer.results, strict=True))
        self.state.done.update(call.name for call, result in calls if result >= 0)
        self.state.killed += answer.end is not End.ENDED
        if found := log.finding():
            return found
        if answer.end is End.STUCK:
            names = sorted({call.name for call, result in calls if result == UNENDED})
            where = ", ".join(names) or "its end"
            return Finding("stuck", f"a process that cannot be killed, in {where}")
        if not answer.held:
            return None
        # It may have been late.
        again = sum(self._executor.run(program).held > 0 for _ in range(_AGAIN))
        if found := log.finding():
            return found
        if not again:
            self.state.unsure += 1
            return None
        text = f"{answer.held} bytes; {again} of {_AGAIN} times again"
        return Finding("held", "packets are on the way that no reader gets", text)


def _be_fast() -> None:
    """Let RCU look for the end of a grace period at once: each device that goes waits for some."""
    for name in ("jiffies_till_first_fqs", "jiffies_till_next_fqs"):
        if (knob := RCU / name).exists():
            knob.write_text("0")
