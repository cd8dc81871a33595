# SPDX-License-Identifier: GPL-2.0-only
"""Makes events happen, and undoes them some events later, so that faults overlap.

What an event chooses it chooses by its number from the plan, never by the clock or by what it
finds.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TypeVar

from nodrop.guest.torture.balance import Balance
from nodrop.guest.torture.plan import Event
from nodrop.guest.torture.readers import Reader
from nodrop.guest.torture.tools import Tools
from nodrop.guest.torture.victim import Queue, Victim

NOBODY = frozenset({"none"})
"""The device has no reader at all just then."""
Undo = Callable[[], None]
T = TypeVar("T")


class Chaos:
    """Makes events happen to a device, and undoes them later.

    Args:
        calmer: the pause after an event that leaves nothing to be undone is so many times as
            long as planned: packets flow.

    Attributes:
        program: the XDP program that the device has, if it has one.
        met: what the event that happens now is beside: kinds of readers. An event about one
            reader, or one that finds nothing to do, says so.
    """

    def __init__(self, victim: Victim, balance: Balance, tools: Tools, *, calmer: int = 1) -> None:
        self.victim = victim
        self.balance = balance
        self.tools = tools
        self.net = victim.net
        self.program: ExitStack | None = None
        self.met: frozenset[str] = frozenset()
        self._calmer = calmer
        self._undo: list[tuple[int, Undo]] = []

    def run(self, event: Event) -> frozenset[str]:
        """Undo what is due, let the event happen, pause.

        Returns:
            The kinds of readers that it happened to; empty: nothing happened.
        """
        due = [undo for number, undo in self._undo if number <= event.number]
        self._undo = [entry for entry in self._undo if entry[0] > event.number]
        for undo in due:
            undo()
        self.met = frozenset(q.reader.kind for q in self.victim.queues if q.reader) or NOBODY
        method = getattr(self, f"_{event.kind}")
        undo = method(event)
        if undo:
            self._undo.append((event.number + 1 + event.span, undo))
        # The next event might wake whom this one left asleep.
        if not self._undo and event.value >> 40 & 3 == 0:
            self.balance.moves()
        if event.gap_ms:
            time.sleep(event.gap_ms / 1000 * (1 if self._undo else self._calmer))
        return self.met

    def idle(self) -> Undo | None:
        """Say that the event found nothing to do, and has nothing to be undone."""
        self.met = frozenset()
        return None

    def about(self, reader: Reader) -> None:
        """Say that the event is about one reader."""
        self.met = frozenset({reader.kind})

    def undo_all(self) -> None:
        """Undo everything; the device is as it was, but for its settings."""
        undone, self._undo = self._undo, []
        for _, undo in undone:
            undo()
        self.victim.restore()

    def undo_here(self) -> None:
        """Undo what can be undone; the device is another one."""
        undone, self._undo = self._undo, []
        for _, undo in undone:
            with suppress(OSError):
                undo()

    def queue(self, event: Event) -> Queue:
        """Return the queue that an event chooses."""
        return self.victim.queues[event.value % len(self.victim.queues)]

    @staticmethod
    def pick(event: Event, choices: Sequence[T]) -> T:
        """Return what an event chooses."""
        # Not the digits that chose the queue.
        return choices[(event.value >> 16) % len(choices)]

    def ioctl(self, request: int, argument: bytes) -> None:
        """Ask the device, by any of its queues."""
        for queue in self.victim.attached()[:1]:
            fcntl.ioctl(queue.fd, request, argument)
