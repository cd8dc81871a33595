# SPDX-License-Identifier: GPL-2.0-only
"""Makes events happen, and undoes them some events later, so that they overlap."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import groupby

from nodrop.guest.failure import GuestError
from nodrop.guest.tunnels.torture import encrypt, events, filters, place
from nodrop.guest.tunnels.torture.events import HOME, Act, Command, Make, pick
from nodrop.guest.tunnels.torture.plan import Event
from nodrop.guest.tunnels.torture.victims import Victim

_COMMANDS: Mapping[str, Make] = {**events.KINDS, **encrypt.KINDS}
KINDS = (*_COMMANDS, "filter", "dawdle", "settings")
"""All kinds of events."""

_SETTINGS = (
    {"net/ipv4/route/mtu_expires": "1"},
    {"net/ipv4/route/gc_timeout": "1", "net/ipv6/route/gc_timeout": "1"},
    {"net/core/xfrm_larval_drop": "0"},
    {"net/ipv4/ip_no_pmtu_disc": "1"},
    {"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"},
)
_USUAL = {
    "net/ipv4/route/mtu_expires": "600",
    "net/ipv4/route/gc_timeout": "300",
    "net/ipv6/route/gc_timeout": "60",
    "net/core/xfrm_larval_drop": "1",
    "net/ipv4/ip_no_pmtu_disc": "0",
    "net/ipv4/ip_forward": "0",
    "net/ipv6/conf/all/forwarding": "0",
}


@dataclass
class Told:
    """What became of an event: how many of its commands worked, and why others did not."""

    worked: int = 0
    failed: list[str] = field(default_factory=list)


Undo = Callable[[], None]


class Chaos:
    """Events for one tunnel.

    Args:
        home: the namespace that the tunnel is in.
    """

    def __init__(self, victim: Victim, home: str) -> None:
        self.victim = victim
        self.home = home
        self._undo: list[tuple[int, Undo]] = []

    def run(self, event: Event) -> Told:
        """Undo what is due, let the event happen, pause."""
        due = [undo for number, undo in self._undo if number <= event.number]
        self._undo = [entry for entry in self._undo if entry[0] > event.number]
        for undo in due:
            undo()
        told = Told()
        made = self._make(event, told)
        if made:
            self._undo.append((event.number + 1 + event.span, made))
        time.sleep(event.gap_ms / 1000)
        return told

    def undo_all(self) -> None:
        """Undo everything; then make everything as it is to be, whatever that took."""
        undone, self._undo = self._undo, []
        for _, undo in undone:
            undo()
        place.write(place.NEAR, _USUAL)
        place.restore()
        self.victim.create(apart=self.home == place.APART)

    def _make(self, event: Event, told: Told) -> Undo | None:
        if event.kind == "filter":
            return self._filter(event, told)
        if event.kind == "dawdle":
            return self._dawdle(event, told)
        if event.kind == "settings":
            place.write(place.NEAR, pick(event, _SETTINGS))
            told.worked = 1
            return lambda: place.write(place.NEAR, _USUAL)
        act = _COMMANDS[event.kind](event, self.victim)
        self._commands(act.do, told)
        return self._undoing(act) if act.undo or act.heal else None

    def _undoing(self, act: Act) -> Undo:
        def undo() -> None:
            self._commands(act.undo, Told())
            if act.heal:
                # Others may still be in the way: not all of it need work.
                place.mend()
                with suppress(GuestError):
                    self.victim.create(apart=self.home == place.APART)

        return undo

    def _commands(self, commands: Sequence[Command], told: Told) -> None:
        def where(command: Command) -> tuple[str, str]:
            return (self.home if command.netns == HOME else command.netns), command.program

        for (netns, program), group in groupby(commands, where):
            words = [command.words for command in group]
            failed = place.lines(netns, words, program)
            told.failed += failed
            told.worked += len(words) - len(failed)

    def _filter(self, event: Event, told: Told) -> Undo | None:
        what, six = pick(event, filters.RULES), self.victim.outer6
        try:
            filters.add(place.NEAR, what, six=six, late=pick(event, (False, True), 8))
        except OSError as error:
            told.failed.append(f"{what}: {error}")
            return None
        told.worked = 1

        def undo() -> None:
            filters.remove(place.NEAR, six=six)

        return undo

    def _dawdle(self, event: Event, told: Told) -> Undo | None:
        stack = ExitStack()
        late = pick(event, (False, True))
        try:
            stack.enter_context(filters.dawdling(place.NEAR, six=self.victim.outer6, late=late))
        except OSError as error:
            told.failed.append(str(error))
            return None
        told.worked = 1
        return stack.close
