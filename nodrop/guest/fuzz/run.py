# SPDX-License-Identifier: GPL-2.0-only
"""Runs programs in a guest until something is found, or the time is over."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nodrop.guest.command import tool
from nodrop.guest.drivers import Drivers
from nodrop.guest.environment import Environment
from nodrop.guest.failure import GuestError
from nodrop.guest.fuzz.build import generate
from nodrop.guest.fuzz.corpus import Corpus, keep, kept, outcomes
from nodrop.guest.fuzz.cover import Cover, addresses, places, sections
from nodrop.guest.fuzz.executor import Executor
from nodrop.guest.fuzz.mutate import mutate
from nodrop.guest.fuzz.program import Program
from nodrop.guest.fuzz.state import Recent, State, read_states
from nodrop.guest.fuzz.text import parse_all, render
from nodrop.guest.fuzz.watch import Finding, Health, Log
from nodrop.guest.fuzz.wire import NOT_MADE, UNENDED, Answer, End
from nodrop.guest.leaks import Leaks
from nodrop.guest.plan import Variant
from nodrop.guest.runner import prepare_system

GUARD = Path("/sys/module/nodrop/parameters/guard_ms")
TRACE = Path("/sys/kernel/tracing/events/nodrop/enable")
RCU = Path("/sys/module/rcutree/parameters")
CORPUS = "corpus"
_HEALTH_EVERY = 200
"""Programs."""
_TELL_S = 2.0
_FRESH = 0.3
"""How many programs are made of nothing."""
_AGAIN = 5
"""How often a program runs again before its packets count as held."""


@dataclass(frozen=True)
class Settings:
    """What to run.

    Attributes:
        seed: of the programs that are made up.
        seconds: when to end.
        programs: so many at most; 0: no matter.
        blind: do not learn from what is reached, so that a seed gives the same programs again.
        replay: run those of these files instead, one file after another.
        times: each of these so often.
        guard_ms: after how long a reader counts as gone; 0: never.
        trace: with nodrop's tracepoints.
        stock_vhost: with the kernel's own vhost_net, which knows nothing of tun's protocol.
        guest: the number of this guest.
    """

    seed: int = 1
    seconds: float = 60.0
    programs: int = 0
    blind: bool = False
    replay: tuple[Path, ...] = ()
    times: int = 1
    guard_ms: int = 0
    trace: bool = False
    stock_vhost: bool = False
    guest: int = 0


class Fuzz:
    """A run.

    Args:
        say: called with the state now and then.
    """

    def __init__(self, settings: Settings, say: Callable[[State], None]) -> None:
        self.settings = settings
        self.state = State(settings.guest, settings.seed)
        self.corpus = Corpus()
        self._say = say
        self._environment = Environment.from_environ()
        self._rng = random.Random(settings.seed)
        self._started = self._told = time.monotonic()
        self._leaks = Leaks()

    def run(self) -> State:
        """Run it all; what is found is in the state.

        Raises:
            GuestError: it cannot be run here.
        """
        prepare_system()
        _be_fast()
        with _covered(self._environment.modules) as cover:
            drivers = Drivers(self._environment.modules)
            vhost = Variant.STOCK if self.settings.stock_vhost else Variant.NODROP
            drivers.use(Variant.NODROP, vhost=vhost)
            GUARD.write_text(str(self.settings.guard_ms))
            if self.settings.trace:
                TRACE.write_text("1")
            self._sections = sections()
            self._run(cover)
            self._tell()
            if self.state.finding:
                # Who knows what can still be unloaded.
                cover.close()
                return self.state
            try:
                drivers.unload()
                leak = self._leaks.end()
                self.state.finding = Finding("leak", leak, leak) if leak else None
            except GuestError as error:
                self.state.finding = Finding("modules", str(error), str(error))
        self._tell()
        return self.state

    def _run(self, cover: Cover) -> None:
        with ExitStack() as stack:
            executor = stack.enter_context(Executor(self._environment.bin))
            recent = Recent(self._environment.out)
            stack.callback(recent.close)
            log, health = Log(), Health()
            # What the modules did when they were loaded.
            self.corpus.passed |= cover.take()
            for program in self._programs():
                recent.begins(self.state.programs, render(program))
                answer = executor.run(program)
                self._account(program, answer, cover)
                self.state.finding = self._look(program, answer, executor, log)
                if not self.state.finding and self.state.programs % _HEALTH_EVERY == 0:
                    self.state.finding = log.finding() or health.finding()
                    self._leaks.round_ends()
                if self.state.finding or self._over:
                    break
                if time.monotonic() - self._told >= _TELL_S:
                    self._tell()
            if not self.state.finding:
                self.state.finding = health.finding() or log.finding()

    @property
    def _over(self) -> bool:
        wanted, state = self.settings, self.state
        return bool(
            time.monotonic() - self._started >= wanted.seconds
            or (wanted.programs and state.programs >= wanted.programs)
        )

    def _programs(self) -> Iterator[Program]:
        if self.settings.replay:
            yield from self._replayed()
            return
        if not self.settings.blind:
            yield from self._earlier()
        while True:
            known = self.corpus.programs
            if self.settings.blind or not known or self._rng.random() < _FRESH:
                yield generate(self._rng)
            else:
                choose = self.corpus.choose
                yield mutate(self._rng, choose(self._rng), choose(self._rng))

    def _earlier(self) -> Iterator[Program]:
        """Take over what other guests have reached; if there were none, run the corpus."""
        programs = kept(self._environment.out / CORPUS)
        if states := read_states(self._environment.out):
            for state in states:
                self.corpus.passed |= addresses(state.places, self._sections)
                self.corpus.ended |= set(state.ended)
            self.corpus.programs += programs
        else:
            yield from programs

    def _replayed(self) -> Iterator[Program]:
        for path in self.settings.replay:
            programs = parse_all(path.read_text(encoding="utf-8"))
            for _ in range(self.settings.times):
                yield from programs

    def _account(self, program: Program, answer: Answer, cover: Cover) -> None:
        state = self.state
        state.programs += 1
        state.calls += sum(result not in (NOT_MADE, UNENDED) for result in answer.results)
        state.killed += answer.end is not End.ENDED
        state.seconds = time.monotonic() - self._started
        ended = outcomes(program, answer.results)
        fresh = self.corpus.consider(program, cover.take(), ended)
        if fresh and cover.there and answer.end is End.ENDED and not self.settings.replay:
            keep(self._environment.out / CORPUS, program)

    def _look(
        self, program: Program, answer: Answer, executor: Executor, log: Log
    ) -> Finding | None:
        """Return what is wrong after a program."""
        if answer.end is End.STUCK:
            return log.finding() or Finding("stuck", _stuck_line(program, answer), render(program))
        if found := log.finding():
            return found
        if not answer.held:
            return None
        # It may have been late.
        again = sum(executor.run(program).held > 0 for _ in range(_AGAIN))
        if found := log.finding():
            return found
        if not again:
            self.state.unsure += 1
            return None
        line = "packets are on the way that no reader gets"
        return Finding("held", line, f"{answer.held} bytes; {again} of {_AGAIN} times again")

    def _tell(self) -> None:
        self._told = time.monotonic()
        self.state.seconds = self._told - self._started
        self.state.corpus = len(self.corpus.programs)
        self.state.ended = sorted(self.corpus.ended)
        self.state.places = places(self.corpus.passed, self._sections)
        self.state.write(self._environment.out)
        self._say(self.state)


def _stuck_line(program: Program, answer: Answer) -> str:
    names = {
        call.name for call, result in zip(program, answer.results, strict=True) if result == UNENDED
    }
    return f"a process that cannot be killed, in {', '.join(sorted(names)) or 'its end'}"


def _be_fast() -> None:
    """Let RCU look for the end of a grace period at once: each device that goes waits for some."""
    for name in ("jiffies_till_first_fqs", "jiffies_till_next_fqs"):
        if (knob := RCU / name).exists():
            knob.write_text("0")


@contextmanager
def _covered(modules: Path) -> Iterator[Cover]:
    """Load what sees which code is executed, where it was built."""
    module = modules / "kcover.ko"
    # Only modules that were built for it call it.
    wanted = (
        module.exists() and b"sanitizer_cov_trace_pc" in (modules / "nodrop/nodrop.ko").read_bytes()
    )
    if wanted:
        tool(["insmod", str(module)])
    cover = Cover()
    try:
        yield cover
    finally:
        cover.close()
        if wanted:
            with suppress(GuestError):
                tool(["rmmod", "kcover"])
