# SPDX-License-Identifier: GPL-2.0-only
"""The processes that send and read. They are kept and given one job after another.

To make a process takes a debug kernel a tenth of a second under load: longer than most events.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodrop.guest.failure import GuestError
from nodrop.guest.slow import patience
from nodrop.guest.torture.shared import Field, Memory, State, libc

STOP_TIMEOUT_S = patience(30.0)
_PR_SET_PDEATHSIG = 1
_RING_THE_BELL_S, _STEP_S = 0.005, 0.0005
_ORDER_BYTES = 1 << 16
_NICE = 10
"""Threads of the kernel send and read most."""


class Asked:
    """Tells a job whether it is to stop; SIGUSR1 interrupts what it waits in.

    Whoever sits in a system call of ctypes gets EINTR; Python's own calls go on by themselves.
    """

    def __init__(self, memory: Memory, slot: int) -> None:
        self._memory = memory
        self._slot = slot

    @property
    def stop(self) -> bool:
        """Whether it is to stop."""
        return bool(self._memory.get(self._slot, Field.STOP))


JobFunction = Callable[..., None]
"""Given the memory, its slot, what asks it to stop, its files, and its own arguments."""


class _Worker:
    """A child process that does one job after another."""

    def __init__(self, memory: Memory, functions: Mapping[str, JobFunction]) -> None:
        self.orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        slot = memory.take()
        self.pid = os.fork()
        if self.pid == 0:
            _serve(memory, functions, theirs, slot)
        theirs.close()
        # It has yet to close the files that are not its own: they may have to go soon.
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not memory.get(slot, Field.STATE):
            if time.monotonic() > deadline:
                raise GuestError("a process does not start")
            time.sleep(_STEP_S)
        memory.give(slot)


def _serve(
    memory: Memory, functions: Mapping[str, JobFunction], orders: socket.socket, slot: int
) -> None:
    """Be a worker; never returns."""
    status = 1
    try:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
        os.closerange(3, orders.fileno())
        os.closerange(orders.fileno() + 1, 4096)
        memory.set(slot, Field.STATE, State.ENDED)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.nice(_NICE)
        while True:
            data, files, _, _ = socket.recv_fds(orders, _ORDER_BYTES, 4)
            if not data:
                status = 0
                return
            name, slot, arguments = pickle.loads(data)
            memory.set(slot, Field.STATE, State.BUSY)
            try:
                functions[name](memory, slot, Asked(memory, slot), files, *arguments)
            finally:
                for file in files:
                    os.close(file)
            memory.set(slot, Field.STATE, State.ENDED)
    except BaseException as error:
        with suppress(OSError):
            os.write(2, f"nodrop-torture: a process ended: {error!r}\n".encode())
    finally:
        os._exit(status)


class Crew:
    """All workers, and the memory in which they count.

    Args:
        functions: the jobs, by their names.
        behind: whoever makes them runs ahead of all of them, as SCHED_FIFO, so that events do not
            wait for their turn among the load. Only root can do that.
    """

    def __init__(self, functions: Mapping[str, JobFunction], *, behind: bool = False) -> None:
        self.memory = Memory()
        self._functions = functions
        self._behind = behind
        self._idle: list[_Worker] = []

    def fill(self, count: int) -> None:
        """See to it that so many are idle: now, before there is any load."""
        while len(self._idle) < count:
            # Until it has closed what is not its own it runs ahead as well.
            self._go_first(0)
            self._idle.append(_Worker(self.memory, self._functions))
            self._go_first(os.SCHED_RESET_ON_FORK)

    def _go_first(self, flags: int) -> None:
        if self._behind:
            os.sched_setscheduler(0, os.SCHED_FIFO | flags, os.sched_param(1))

    def close(self) -> None:
        """Let all who are idle go."""
        while self._idle:
            worker = self._idle.pop()
            worker.orders.close()
            os.waitpid(worker.pid, 0)

    def begin(self, name: str, arguments: Sequence[Any], files: Sequence[int] = ()) -> Job:
        """Let somebody do a job; he gets the files."""
        self.fill(1)
        worker = self._idle.pop()
        return Job(self, worker, name, arguments, files)

    def dismiss(self, worker: _Worker) -> None:
        """He has nothing to do."""
        self._idle.append(worker)


class Job:
    """What a worker does; its counts are there until it is released."""

    def __init__(
        self,
        crew: Crew,
        worker: _Worker,
        name: str,
        arguments: Sequence[Any],
        files: Sequence[int],
    ) -> None:
        self.memory = crew.memory
        self.slot = crew.memory.take()
        self._crew = crew
        self._worker: _Worker | None = worker
        order = pickle.dumps((name, self.slot, tuple(arguments)))
        socket.send_fds(worker.orders, [order], list(files))

    def signal(self, number: int) -> None:
        """Send a signal to whoever does it."""
        if self._worker:
            os.kill(self._worker.pid, number)

    def where(self) -> str:
        """Return what whoever does it does: the state of the process, and its system call."""
        if not self._worker:
            return "gone"
        process = Path("/proc", str(self._worker.pid))
        with suppress(OSError):
            state = (process / "stat").read_text(errors="replace").rpartition(") ")[2][:1]
            # The kernel may not tell the second.
            with suppress(OSError):
                state += f" in {(process / 'syscall').read_text().split()[0]}"
            return state
        return "gone"

    def get(self, field: Field) -> int:
        """Return one of its counts."""
        return self.memory.get(self.slot, field)

    def stop(self) -> None:
        """Ask for its end, and wait for that.

        Raises:
            GuestError: it hangs, or it has failed.
        """
        if not self._worker:
            return
        deadline = time.monotonic() + STOP_TIMEOUT_S
        self.memory.set(self.slot, Field.STOP, 1)
        while self.get(Field.STATE) != State.ENDED:
            pid, status = os.waitpid(self._worker.pid, os.WNOHANG)
            if pid:
                self._lose()
                raise GuestError(f"a process ended with wait status {status:#x}")
            if time.monotonic() > deadline:
                self.kill()
                raise GuestError(f"a process did not stop within {STOP_TIMEOUT_S:.0f} s")
            # Again and again: a signal in front of a system call does not interrupt it.
            self.signal(signal.SIGUSR1)
            time.sleep(_RING_THE_BELL_S if self.get(Field.STATE) else _STEP_S)
        self._crew.dismiss(self._worker)
        self._worker = None

    def kill(self) -> None:
        """End whoever does it, by SIGKILL."""
        if self._worker:
            os.kill(self._worker.pid, signal.SIGKILL)
            os.waitpid(self._worker.pid, 0)
            self._lose()

    def _lose(self) -> None:
        assert self._worker
        self._worker.orders.close()
        self._worker = None

    def release(self) -> None:
        """Give its slot back; its counts are void from here on."""
        self.kill()
        self.memory.give(self.slot)
