# SPDX-License-Identifier: GPL-2.0-only
"""Runs the rounds of a seed until enough has happened or an invariant does not hold."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from nodrop.guest.command import netns_path
from nodrop.guest.failure import GuestError
from nodrop.guest.rtnetlink import Rtnetlink
from nodrop.guest.slow import patience
from nodrop.guest.tunnels.torture import (
    encrypt,
    filters,
    hammer,
    place,
    slabs,
    sockets,
    traffic,
)
from nodrop.guest.tunnels.torture.chaos import KINDS, Chaos
from nodrop.guest.tunnels.torture.place import APART, FAR, NEAR
from nodrop.guest.tunnels.torture.plan import Ending, Event, Round, rounds
from nodrop.guest.tunnels.torture.victims import INNER4, INNER6, NAME, VICTIMS

FLOWS_S = 20.0
"""How soon after everything was undone packets have to arrive again."""
FLOWING = 20
"""How many."""
_STEP_S = 0.05
REPORT_S = 10.0


class Violation(Exception):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Settings:
    """What to run.

    Attributes:
        kind: of tunnel.
        seed: of the plan.
        seconds: when to end, about; a round is finished.
        only: kinds of events; empty: all.
        first_round: begin with this one.
    """

    kind: str
    seed: int
    seconds: float = 20.0
    only: frozenset[str] = frozenset()
    first_round: int = 0


@dataclass
class Result:
    """What happened.

    Attributes:
        sent, refused: packets, by the senders' count.
        received: packets that came out at the far end.
        hammered, errors: changes of routes and ICMP errors by the processes that make them fast.
        verdicts: packets that a program let go on.
        events: how many, by kind; without_effect: those of which no command worked.
        failed: why commands failed, one of each kind.
        slowest_s: how long it took at most until packets flowed again.
        grown: caches that had more in use at the end than at the start.
        look: what was in the way of packets that did not arrive.
    """

    kind: str
    seed: int
    seconds: float = 0.0
    rounds: int = 0
    last_event: int = 0
    sent: int = 0
    refused: int = 0
    received: int = 0
    hammered: int = 0
    errors: int = 0
    verdicts: int = 0
    cryptd: int = 0
    events: Counter[str] = field(default_factory=Counter)
    without_effect: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    endings: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    slabs: dict[str, int] = field(default_factory=dict)
    grown: dict[str, int] = field(default_factory=dict)
    violation: str = ""
    look: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return what goes into the file."""
        found = dict(vars(self))
        return {name: dict(v) if isinstance(v, Counter) else v for name, v in found.items()}


class Torture:
    """A run.

    Args:
        say: called with a line of text now and then.
    """

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.result = Result(settings.kind, settings.seed)
        self.victim = VICTIMS[settings.kind]
        self._say = say
        self._began = time.monotonic()

    def run(self) -> Result:
        """Run it all; what is wrong is in the result.

        Raises:
            GuestError: it cannot be run here.
        """
        # What the kernel allocates once, it has now.
        self._warm_up()
        start = slabs.settled()
        self.result.slabs = start
        self._began = time.monotonic()
        kinds = sorted(self.settings.only or KINDS)
        if self.victim.sockets:
            kinds = [kind for kind in kinds if not kind.startswith("tunnel_")]
        try:
            for plan in rounds(self.settings.seed, kinds):
                if plan.number < self.settings.first_round:
                    continue
                self._round(plan)
                self.result.rounds += 1
                self._say(self._told(plan))
                self._leaks(start)
                if self._over:
                    break
        except (Violation, GuestError, OSError) as error:
            kind = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
            self.result.violation = f"{kind}{error}"
        self.result.seconds = round(time.monotonic() - self._began, 1)
        return self.result

    @property
    def _over(self) -> bool:
        return time.monotonic() - self._began >= self.settings.seconds

    def _warm_up(self) -> None:
        with place.place(apart=False):
            self.victim.create(apart=False)
            with traffic.Crew(self._senders(NEAR, 1)) as crew:
                self._flows(crew, NEAR)

    def _leaks(self, start: dict[str, int]) -> None:
        now = slabs.settled(start)
        self.result.grown = slabs.grown(start, now)
        if self.result.grown:
            raise Violation(f"not given back: {self.result.grown}")

    def _senders(self, home: str, value: int) -> list[tuple[str, int | None, traffic.Body]]:
        if self.victim.sockets:
            return sockets.jobs(self.victim.sockets, value)
        inner = self.victim.inner
        addresses = [f"{INNER4}.2"] * inner.ipv4 + [f"{INNER6}:2"] * inner.ipv6
        return [
            (home, cpu, traffic.udp(addresses[cpu % len(addresses)], value)) for cpu in range(2)
        ]

    def _others(self, plan: Round) -> dict[str, tuple[str, int | None, traffic.Body]]:
        jobs: dict[str, tuple[str, int | None, traffic.Body]] = {}
        if plan.hammer:
            jobs["hammered"] = (NEAR, None, hammer.routes(self.victim.outer6, plan.value))
        if plan.icmp:
            jobs["errors"] = (FAR, None, hammer.errors(self.victim, plan.value))
        jobs["verdicts"] = (NEAR, None, filters.verdicts(plan.value))
        return jobs

    def _round(self, plan: Round) -> None:
        home = APART if plan.apart and not self.victim.sockets else NEAR
        with place.place(apart=home == APART):
            if plan.cryptd:
                self.result.cryptd += encrypt.asynchronous()
            self.victim.create(apart=home == APART)
            with traffic.Crew(self._senders(home, plan.value)) as senders:
                self._flows(senders, home)
                chaos = Chaos(self.victim, home)
                for bout in plan.bouts:
                    self._bout(plan, bout, chaos, senders)
                self._end(plan, home, senders)

    def _bout(
        self, plan: Round, bout: tuple[Event, ...], chaos: Chaos, senders: traffic.Crew
    ) -> None:
        jobs = self._others(plan)
        with ExitStack() as stack:
            crews = {name: stack.enter_context(traffic.Crew([job])) for name, job in jobs.items()}
            try:
                for event in bout:
                    self.result.last_event = event.number
                    self.result.events[event.kind] += 1
                    told = chaos.run(event)
                    if told.failed:
                        self.result.failed.setdefault(event.kind, told.failed[0])
                    self.result.without_effect[event.kind] += not told.worked
            finally:
                for name, crew in crews.items():
                    done, _ = crew.counts.sums()
                    setattr(self.result, name, getattr(self.result, name) + done)
        chaos.undo_all()
        self._flows(senders, chaos.home)

    def _received(self, senders: traffic.Crew) -> int:
        """How many packets came out at the far end, since what receives them is there."""
        if self.victim.sockets:
            return senders.counts.of(0)
        try:
            with Rtnetlink(netns_path(FAR)) as netlink:
                return netlink.stats(netlink.index(NAME)).rx_packets
        except OSError:
            return 0

    def _flows(self, senders: traffic.Crew, home: str) -> None:
        """Make sure that packets arrive, now that nothing is in their way."""
        began = time.monotonic()
        deadline = began + patience(FLOWS_S)
        first = self._received(senders)
        while True:
            now = self._received(senders)
            if now - first >= FLOWING:
                break
            if time.monotonic() > deadline:
                self.result.look = place.look()
                raise Violation(
                    f"{now - first} packets have arrived in {time.monotonic() - began:.0f} s, "
                    f"with nothing in their way ({home})"
                )
            time.sleep(_STEP_S)
        self.result.slowest_s = max(self.result.slowest_s, round(time.monotonic() - began, 2))
        self.result.received += now - first
        if senders.dead():
            raise Violation("a sender has ended")

    def _end(self, plan: Round, home: str, senders: traffic.Crew) -> None:
        """Let what the plan says go while packets are sent, then all the rest."""
        self.result.endings[plan.ending] += 1
        if plan.ending is Ending.TUNNEL:
            place.lines(home, [f"link delete {NAME}"])
        elif plan.ending is Ending.LOWER:
            place.lines(NEAR, [f"link delete {name}" for name in place.LOWER])
        elif plan.ending is Ending.APART and home != APART:
            place.delete(NEAR)
        else:
            place.delete({"near": NEAR, "far": FAR, "apart": APART}[plan.ending])
        # What goes goes in the background, while packets come.
        time.sleep(0.2)
        sent, refused = senders.counts.sums()
        self.result.sent += sent - (senders.counts.of(0) if self.victim.sockets else 0)
        self.result.refused += refused
        senders.kill()

    def _told(self, plan: Round) -> str:
        result = self.result
        return (
            f"{time.monotonic() - self._began:.0f} s: round {plan.number}, event "
            f"{result.last_event}, {result.sent} packets, slowest {result.slowest_s} s"
        )


def replay(result: Result, settings: Settings) -> str:
    """Return the command that makes the same events happen again."""
    first = settings.first_round + result.rounds
    words = f"--type {settings.kind} --seed {settings.seed} --first-round {first}"
    return f"python3 -m nodrop.guest.tunnels.torture {words}"
