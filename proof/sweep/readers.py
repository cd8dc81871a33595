# SPDX-License-Identifier: GPL-2.0-only
"""The readers of a row: threads or processes, a kernel thread, or vhost-net."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from guestlib.failure import GuestError
from guestlib.kreader import Counts, KernelReader
from guestlib.timing import wait_until
from guestlib.vhost_client import VhostClient, VhostCounts
from proof.sweep.devices import Dut
from proof.sweep.loops import IN_FLIGHT, MOST, Loop, Taker, Tally

RESTS = 50
"""Packets after which the slow reader of a second queue sleeps."""


class InThread:
    """A loop in a thread; create it in the main thread, which installs its signal handler."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        # The handler only interrupts system calls.
        signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """Stop the loop.

        Raises:
            GuestError: it does not stop, or has ended by an error.
        """
        self._loop.stop = True
        os.eventfd_write(self._loop.bell, 1)

        def ended() -> bool:
            # Repeatedly: a signal just before a system call does not interrupt it.
            if self._thread.is_alive() and self._thread.ident:
                signal.pthread_kill(self._thread.ident, signal.SIGUSR1)
            return not self._thread.is_alive()

        if not wait_until(ended):
            raise GuestError("a reader cannot be stopped")
        os.close(self._loop.bell)
        if self.error:
            raise GuestError(f"a reader ended: {self.error!r}")


class InProcess:
    """A loop in a child process, which can be killed."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._pid = os.fork()
        if not self._pid:
            try:
                loop.run()
            finally:
                os._exit(1)

    def stop(self) -> None:
        """Kill it."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._loop.bell)


class Readers:
    """All readers of a row's device.

    Attributes:
        unsure: packets that killed readers may have taken, but not counted.
    """

    def __init__(self, dut: Dut, tally: Tally) -> None:
        self.dut, self.tally = dut, tally
        self.unsure = 0
        self._row = dut.row
        self._loops: list[InThread | InProcess] = []
        self._kernel: KernelReader | None = None
        self._client: VhostClient | None = None
        self._before = 0

    @property
    def came(self) -> int:
        """Test packets that were read."""
        if self._kernel:
            return self._before + self._ours(self._kernel.read())
        if self._client:
            return self._before + self._ours(self._client.counts())
        return self._before + self.tally.came

    def _ours(self, counts: VhostCounts | Counts) -> int:
        """Return the IPv4 packets; a TUN has no others, and no header to tell them by."""
        return counts.packets - (0 if self._row.kind == "tun" else counts.others)

    def start(self, *, mortal: bool = False) -> None:
        """Start the readers.

        Args:
            mortal: whether they are to be killed.
        """
        fds = self.dut.fds
        if self._row.reader == "kernel":
            self._kernel = KernelReader(fds[0]).__enter__()
        elif self._row.vhost:
            busyloop = 50 if self._row.reader == "busyloop" else 0
            environment = self.dut.lab.environment
            client = VhostClient(environment, fds[0], slots=64, busyloop_us=busyloop)
            self._client = client.__enter__()
        else:
            for _ in range(2 if self._row.reader == "threads" else 1):
                self._begin(fds[0], self._row.reader, mortal=mortal)
            for fd in fds[1:]:
                self._begin(fd, "poll", mortal=mortal, rests=RESTS)

    def _begin(self, fd: int, kind: str, *, mortal: bool, rests: int = 0) -> None:
        os.set_blocking(fd, kind not in ("poll", "epoll"))
        taker = Taker(
            self.tally,
            ordered=kind not in ("threads", "uring") and len(self.dut.fds) == 1,
            echo_fd=fd if self._row.sender == "tcp" else -1,
            skip=0 if self._row.kind == "tun" else 14,
        )
        loop = Loop(kind, fd, taker.take, rests)
        self._loops.append(InProcess(loop) if mortal else InThread(loop))

    def kill(self) -> None:
        """Kill the readers; each may have taken packets that it has not counted."""
        if self._client:
            # Packets that vhost-net writes after this are not counted.
            self.unsure += MOST
            self._before += self._ours(self._client.counts())
            self._client.__exit__(None, None, None)
            self._client = None
        self.unsure += len(self._loops) * (IN_FLIGHT if "uring" in self._row.reader else 1)
        self.unsure += IN_FLIGHT * (self._row.reader == "multishot")
        self._end_loops()

    def _end_loops(self) -> None:
        while self._loops:
            self._loops.pop().stop()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Stop the kernel's reader for the block: it would end without a device."""
        kernel = self._kernel
        if kernel:
            self.stop()
        yield
        if kernel:
            self.start()

    def swap(self) -> None:
        """Detach vhost-net from the device and attach it again."""
        if self._client:
            self._client.detach()
            self._client.attach()

    def stop(self) -> None:
        """Stop the readers."""
        if self._kernel:
            self._before += self._ours(self._kernel.stop())
            self._kernel.close()
            self._kernel = None
        if self._client:
            client, self._client = self._client, None
            try:
                self._before += self._ours(client.end())
            finally:
                client.__exit__(None, None, None)
        self._end_loops()
