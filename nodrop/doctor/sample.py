# SPDX-License-Identifier: GPL-2.0-only
"""Samples a machine twice; ``record`` returns all that was read, as tests need it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from nodrop.doctor.look import Look, Sample
from nodrop.host import read as host_read
from nodrop.host import system as host_system
from nodrop.host import threads as host_threads
from nodrop.host.build import build
from nodrop.host.raw import Raw
from nodrop.host.system import System
from nodrop.host.threads import Thread

_POLLS_S = 20.0
_THREADS_MAX = 256
"""Threads that are polled; more would take longer than the pause between two polls."""


@dataclass(frozen=True)
class Record:
    """Two samples of the machine and of the readers' threads, and what is installed.

    Attributes:
        ready: tid -> share of the polls at which the thread was runnable or running.
    """

    before: Raw
    after: Raw
    threads_before: list[Thread]
    threads_after: list[Thread]
    ready: dict[int, float]
    system: System

    def look(self, only: frozenset[str] = frozenset()) -> Look:
        """Return the input of the checks.

        Args:
            only: names or labels of devices; empty: all.
        """
        return Look(
            before=Sample(build(self.before), self.threads_before),
            after=Sample(build(self.after), self.threads_after),
            system=self.system,
            ready=self.ready,
            only=only,
            host_holders=self.after.machine.holders,
        )

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return a record from its JSON."""
        return cls(
            before=Raw.from_json(data["before"]),
            after=Raw.from_json(data["after"]),
            threads_before=[Thread(**one) for one in data["threads_before"]],
            threads_after=[Thread(**one) for one in data["threads_after"]],
            ready={int(tid): share for tid, share in data["ready"].items()},
            system=System.from_json(data["system"]),
        )


def record(
    where: str | None,
    *,
    everywhere: bool,
    seconds: float,
    known: Callable[[Raw], None] = lambda _raw: None,
) -> Record:
    """Sample the machine twice.

    Args:
        where, everywhere: which namespaces, as for :func:`nodrop.host.read.read`.
        seconds: time between the samples.
        known: called with the first sample; an exception ends the recording.

    Raises:
        NodropError: a namespace does not exist or cannot be entered, or iproute2 is missing.
    """
    before = host_read.read(where, everywhere=everywhere)
    known(before)
    pids = [holder.pid for holder in before.machine.holders]
    threads_before = host_threads.read(pids)
    started = time.monotonic()
    ready: Counter[int] = Counter()
    polls = 0
    while (over := time.monotonic() - started) < seconds:
        time.sleep(min(1 / _POLLS_S, max(seconds - over, 0.0)))
        ready += host_threads.states(threads_before[:_THREADS_MAX])
        polls += 1
    after = host_read.read(where, everywhere=everywhere)
    threads_after = host_threads.read(pids)
    return Record(
        before=before,
        after=after,
        threads_before=threads_before,
        threads_after=threads_after,
        ready={tid: count / max(polls, 1) for tid, count in ready.items()},
        system=host_system.read(pids),
    )
