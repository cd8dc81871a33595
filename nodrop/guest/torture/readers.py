# SPDX-License-Identifier: GPL-2.0-only
"""The readers, each of one queue: programs, a thread of the kernel, vhost-net."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass

from nodrop.guest.environment import Environment
from nodrop.guest.kreader import Counts, KernelReader
from nodrop.guest.torture.crew import Crew
from nodrop.guest.torture.shared import Field, Wrong
from nodrop.guest.vhost import VhostClient, VhostCounts


@dataclass(frozen=True)
class Taken:
    """What a reader has read.

    Attributes:
        packets: all of it.
        frames: of these, those that no sender counts as its packets: they came by XDP, or were
            written.
    """

    packets: int = 0
    frames: int = 0

    def __add__(self, other: Taken) -> Taken:
        return Taken(self.packets + other.packets, self.frames + other.frames)


_WORDS = {Wrong.CONTENT: "was changed on its way", Wrong.ORDER: "came out of order"}


class Reader(ABC):
    """One reader of one open queue; it reads from its making to its end.

    Attributes:
        kind: as the plan calls it.
        exact: whether what it says that it read is all that it took; False: it was killed.
        wrong: what it saw of a packet that is not what was sent; "": nothing. Known at its end.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.exact = True
        self.wrong = ""
        self._taken = Taken()
        self._ended = False

    def taken(self) -> Taken:
        """Return what it has read so far."""
        return self._taken if self._ended else self._count()

    def check(self) -> str:
        """Return what is wrong with packets that it has read; "": nothing."""
        return self.wrong

    def where(self) -> str:
        """Return what it does just now, for a report."""
        return "ended" if self._ended else "at work"

    def stop(self) -> None:
        """End it; what it has taken is counted."""
        if not self._ended:
            self._taken = self._stop()
            self._ended = True

    def kill(self) -> None:
        """End it as SIGKILL does."""
        if not self._ended:
            self._taken = self._kill()
            self._ended = True

    def pause(self) -> None:
        """Let it take nothing; nothing happens when it has ended."""
        if not self._ended:
            self._pause()

    def resume(self) -> None:
        """Let it go on; nothing happens when it has ended, or was not paused."""
        if not self._ended:
            self._resume()

    @abstractmethod
    def _count(self) -> Taken:
        """What it has read so far."""

    @abstractmethod
    def _stop(self) -> Taken:
        """End it, paused or not, and return what it has read."""

    @abstractmethod
    def _kill(self) -> Taken:
        """End it at once and return what it says it has read."""

    @abstractmethod
    def _pause(self) -> None: ...

    @abstractmethod
    def _resume(self) -> None: ...


class ProgramReader(Reader):
    """A process that reads by system calls.

    Args:
        kind: "blocking", "poll" or "uring".
        fd: the tun file.
        tap: it is an Ethernet device's.
        ordered: packets must come in their order.
        reflect: TCP's packets go back.
    """

    def __init__(
        self, crew: Crew, kind: str, fd: int, *, tap: bool, ordered: bool, reflect: bool
    ) -> None:
        super().__init__(kind)
        os.set_blocking(fd, kind != "poll")
        self._job = crew.begin("read", (kind, tap, ordered, reflect), [fd])

    def check(self) -> str:
        """Return what is wrong with packets that it has read; "": nothing."""
        if not self._ended and (code := self._job.get(Field.WRONG)):
            self.wrong = f"packet {self._job.get(Field.WHERE)} {_WORDS[Wrong(code)]}"
        return self.wrong

    def where(self) -> str:
        """Return its process' state and system call."""
        return super().where() if self._ended else self._job.where()

    def _count(self) -> Taken:
        # In this order: one more of the others is one that is not among the packets yet.
        frames = self._job.get(Field.OTHERS)
        return Taken(self._job.get(Field.COUNT), frames)

    def _stop(self) -> Taken:
        self._resume()
        self._job.stop()
        return self._last()

    def _kill(self) -> Taken:
        self.exact = False
        self._job.kill()
        return self._last()

    def _last(self) -> Taken:
        self.check()
        taken = self._count()
        self._job.release()
        return taken

    def _pause(self) -> None:
        self._job.signal(signal.SIGSTOP)

    def _resume(self) -> None:
        self._job.signal(signal.SIGCONT)


class KernelThread(Reader):
    """kreader; a pause ends its thread, since nobody can stop a thread of the kernel.

    Args:
        fd: the tun file.
        tap: it is an Ethernet device's.
    """

    def __init__(self, fd: int, *, tap: bool) -> None:
        super().__init__("kernel")
        self._fd = fd
        self._tap = tap
        self._before = Taken()
        self._reader: KernelReader | None = None
        self._resume()

    def _count(self) -> Taken:
        return self._before + (self._said(self._reader.read()) if self._reader else Taken())

    def _said(self, counts: Counts) -> Taken:
        return Taken(counts.packets, counts.others if self._tap else 0)

    def _stop(self) -> Taken:
        self._pause()
        return self._before

    def _kill(self) -> Taken:
        return self._stop()

    def _pause(self) -> None:
        if self._reader:
            # Its queue may have been taken from the device.
            self._before += self._said(self._reader.stop_any())
            self._reader.close()
            self._reader = None

    def _resume(self) -> None:
        if not self._reader:
            self._reader = KernelReader(self._fd).__enter__()


def _said(counts: VhostCounts) -> Taken:
    return Taken(counts.packets, counts.others)


class VhostReader(Reader):
    """vhost-net and a client in place of its virtual machine."""

    def __init__(self, environment: Environment, fd: int, slots: int) -> None:
        super().__init__("vhost")
        self._client = VhostClient(environment, fd, slots=slots).__enter__()

    def swap(self, *, away: bool) -> None:
        """Take vhost-net off the queue, or put it back; nothing happens when it has ended."""
        if self._ended:
            return
        if away:
            self._client.detach()
        else:
            self._client.attach()

    def _count(self) -> Taken:
        return _said(self._client.counts())

    def _stop(self) -> Taken:
        try:
            return _said(self._client.end())
        finally:
            self._client.__exit__(None, None, None)

    def _kill(self) -> Taken:
        self.exact = False
        taken = self._count()
        self._client.__exit__(None, None, None)
        return taken

    def _pause(self) -> None:
        self._client.pause()

    def _resume(self) -> None:
        self._client.resume()
