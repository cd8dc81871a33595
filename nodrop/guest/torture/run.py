# SPDX-License-Identifier: GPL-2.0-only
"""Runs the rounds of a seed until enough has happened or an invariant does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from nodrop.guest import kmemleak
from nodrop.guest.drivers import Drivers
from nodrop.guest.environment import Environment
from nodrop.guest.failure import GuestError
from nodrop.guest.leaks import Leaks
from nodrop.guest.pktgen import Pktgen
from nodrop.guest.plan import Variant
from nodrop.guest.runner import prepare_system
from nodrop.guest.slow import stretched
from nodrop.guest.torture.balance import Balance, Sums, Violation, pause
from nodrop.guest.torture.crew import Crew
from nodrop.guest.torture.events import PARAMETERS, Events
from nodrop.guest.torture.plan import Event, Mode, Round, rounds
from nodrop.guest.torture.result import Result
from nodrop.guest.torture.senders import FLOWS, Sender, Target
from nodrop.guest.torture.shared import Memory
from nodrop.guest.torture.tools import VETH, Tools, all_tools, queued_packets, redirected
from nodrop.guest.torture.victim import NAME, Victim

PKTGEN_BYTES = 60
REPORT_S = 10.0
FLOOD_GAP_S = 0.002
"""Between the packets of a process beside pktgen."""
FLOOD_NICE = 19
"""Of pktgen: who reads comes before who sends, or a small ring's packets come a tick apart."""


@dataclass(frozen=True)
class Settings:
    """What to run.

    Attributes:
        seed: of the plan.
        seconds: when to end, about.
        events: end when so many changed something; 0: no matter.
        packets: end when so many were sent; 0: no matter.
        until: the number of the last event; 0: no matter.
        first_round: begin with this one.
        modes: rounds of other kinds are left out; empty: none are.
        flood: rounds that do not flood are left out, and kmemleak is switched off: many
            packets, few events.
        calmer: see Chaos.
        driver: whose modules.
        label, source: go into the result.
    """

    seed: int
    seconds: float = 20.0
    events: int = 0
    packets: int = 0
    until: int = 0
    first_round: int = 0
    modes: frozenset[Mode] = frozenset()
    flood: bool = False
    calmer: int = 1
    driver: Variant = Variant.NODROP
    label: str = ""
    source: str = ""


class Torture:
    """A run.

    Args:
        say: called with a line of text now and then.
        keep: called with the result after each round, so that it outlives the guest.
    """

    def __init__(
        self,
        settings: Settings,
        say: Callable[[str], None],
        keep: Callable[[Result], None] = lambda _result: None,
    ) -> None:
        self.settings = settings
        self.result = Result(
            settings.seed,
            settings.first_round,
            str(settings.driver),
            settings.label,
            source=settings.source,
        )
        self._say = say
        self._keep = keep
        self._said = 0.0
        self._leaks = Leaks()

    def run(self) -> Result:
        """Run it all; what is wrong is in the result.

        Raises:
            GuestError: it cannot be run here.
        """
        drivers = Drivers(Environment.from_environ().modules)
        prepare_system()
        if self.settings.flood:
            kmemleak.off()
        drivers.use(self.settings.driver, vhost=self.settings.driver)
        try:
            with all_tools() as tools:
                self._say(f"io_uring: {'yes' if tools.uring else 'no, poll instead'}")
                self._rounds(tools)
        finally:
            drivers.unload()
        if not self.result.violation:
            self.result.violation = self._leaks.end()
        self.result.slab_kb = self._leaks.slab_kb
        self.result.ended = True
        return self.result

    @property
    def _over(self) -> bool:
        wanted, result = self.settings, self.result
        return bool(
            result.seconds >= wanted.seconds
            or (wanted.events and result.life_events >= wanted.events)
            or (wanted.packets and result.packets["sent"] >= wanted.packets)
            or (wanted.until and result.last_event >= wanted.until)
        )

    def _wanted(self, plan: Round) -> bool:
        modes = self.settings.modes
        return (not modes or plan.mode in modes) and (plan.flood or not self.settings.flood)

    def _rounds(self, tools: Tools) -> None:
        for plan in rounds(self.settings.seed, self.settings.first_round):
            if not self._wanted(plan):
                continue
            self.result.round = plan
            try:
                self._round(plan, tools)
            except (Violation, GuestError, OSError) as error:
                kind = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
                self.result.violation = f"{kind}{error}"
                return
            self._leaks.round_ends()
            self._keep(self.result)
            if self._over:
                return

    def _round(self, plan: Round, tools: Tools) -> None:
        for name, value in (("guard_ms", str(_guard_ms(plan))), ("nodrop", "Y")):
            if PARAMETERS[name].exists():
                PARAMETERS[name].write_text(value)
        memory = tools.crew.memory
        memory.pause = True
        tools.crew.fill(len(plan.readers) + len(plan.senders) + _kills(plan))
        with ExitStack() as stack:
            victim = stack.enter_context(
                Victim(plan, tools.crew, tools.net, tools.environment, uring=tools.uring)
            )
            if "xdp" in plan.senders:
                stack.enter_context(redirected())
            # Before a connection is made: that is packets, too.
            queued = stack.enter_context(queued_packets()) if "tcp" in plan.senders else None
            senders = stack.enter_context(_senders(plan, tools.crew))
            balance = Balance(plan, victim, senders, tools.freed, tools.full, queued)
            chaos = Events(victim, balance, tools, calmer=self.settings.calmer)
            sums = None
            for bout in plan.bouts:
                if sums is None or not self._over:
                    sums = self._bout(bout, chaos, balance, memory)
            if sums:
                self.result.round_ends(plan, sums, victim.counters())
            for reader in victim.readers:
                self.result.readers[reader.kind] += reader.taken().packets

    def _bout(
        self, bout: tuple[Event, ...], chaos: Events, balance: Balance, memory: Memory
    ) -> Sums:
        """Make events happen under load, stop the load, and account for it."""
        memory.pause = False
        with _generating(balance):
            for event in bout:
                if self._over:
                    break
                self.result.begins(event)
                self.result.happened(event, chaos.run(event))
                self._report()
            chaos.undo_all()
        memory.pause = True
        pause(balance.senders)
        sums = balance.settle()
        balance.check(sums)
        self.result.settled()
        return sums

    def _report(self) -> None:
        if self.result.seconds - self._said < REPORT_S:
            return
        self._said = self.result.seconds
        plan = self.result.round
        self._say(
            f"{self._said:.0f} s: event {self.result.last_event}, "
            f"{self.result.packets['sent']} packets in {self.result.rounds} rounds; now "
            f"{plan.mode if plan else ''}, {plan.shape if plan else ''}"
        )


def _kills(plan: Round) -> int:
    """How many processes will have to be replaced, about."""
    return sum(event.kind == "kill" for bout in plan.bouts for event in bout)


def _guard_ms(plan: Round) -> int:
    return plan.guard_ms if plan.mode is Mode.GUARD else round(stretched(plan.guard_ms))


@contextmanager
def _senders(plan: Round, crew: Crew) -> Iterator[list[Sender]]:
    flows = FLOWS if plan.shape.several else 1
    # It would take the flood's CPU.
    gap_s = FLOOD_GAP_S if plan.flood else 0.0
    target = Target(NAME, plan.shape.tap, flows, VETH, gap_s)
    senders: list[Sender] = []
    try:
        senders += [Sender(crew, kind, target) for kind in plan.senders]
        yield senders
        for sender in senders:
            sender.job.stop()
    finally:
        for sender in senders:
            sender.job.release()


@contextmanager
def _generating(balance: Balance) -> Iterator[None]:
    """Let pktgen send for the block, if the round has it, and add to the account what it sent."""
    plan = balance.plan
    if not plan.pktgen:
        yield
        return
    senders = 2 if plan.flood and plan.number % 4 else 1 + plan.number % 2
    direct = plan.pktgen == "direct"
    nice = FLOOD_NICE if plan.flood else 0
    with Pktgen(
        NAME, senders=senders, packet_bytes=PKTGEN_BYTES, direct=direct, nice=nice
    ) as pktgen:
        with pktgen.sending():
            yield
        for sent in pktgen.results():
            balance.generated += sent.offered
            # What the driver itself drops is no refusal.
            balance.refused += 0 if direct else sent.refused
            # It throws away what it had made and not sent.
            balance.unsure += 1


def replay(settings: Settings, result: Result) -> str:
    """Return the command that makes the same events happen again."""
    words = ["python3 -m nodrop.guest.torture", f"--seed {settings.seed}"]
    if result.round:
        words.append(f"--first-round {result.round.number}")
    if settings.modes:
        words.append(f"--mode {','.join(sorted(settings.modes))}")
    if settings.flood:
        words.append("--flood")
    if settings.calmer != 1:
        words.append(f"--calmer {settings.calmer}")
    if settings.driver is not Variant.NODROP:
        words.append(f"--driver {settings.driver}")
    return " ".join([*words, f"--until-event {result.last_event}"])
