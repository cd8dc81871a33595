# SPDX-License-Identifier: GPL-2.0-only
"""Runs programs, each in a process and two network namespaces of its own."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
import signal
import struct
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from nodrop.guest.failure import GuestError
from nodrop.guest.fuzz import memory, packets
from nodrop.guest.fuzz.build import SPECS
from nodrop.guest.fuzz.calls_tun import ASYNC, NONBLOCK, RDWR
from nodrop.guest.fuzz.program import AWAY, HERE, Call, Data, Program, Ref, Value

NOT_MADE, UNENDED = -0x10000, -0x10001
"""Results of calls beside numbers and negative errnos."""
LIMIT_S, SETTLE_S = 6.0, 1.5
_STUCK_S = 15.0
"""A process that was killed and is still there then never goes."""
_TICK_S = 0.02
"""A call that waits is interrupted after this, and again."""
_LINGER_S = 0.015
"""How long calls that are not waited for may go on after the last one."""
_DRAIN_MOST = 20000
"""Packets of a queue that are read at a time."""
_NEWNS, _NEWNET, _PRIVATE = 0x00020000, 0x40000000, 0x44000
_FAILED = 3
_READABLE = tuple(
    mode | rest for mode in (0, RDWR) for rest in (0, NONBLOCK, ASYNC, NONBLOCK | ASYNC)
)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.syscall.argtypes = [ctypes.c_long] * 7
_libc.mount.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_void_p]


class End(Enum):
    """How a program ended."""

    ENDED = 0
    KILLED = 1
    """Its time was over."""
    STUCK = 2
    """And it cannot be killed."""


@dataclass(frozen=True)
class Answer:
    """What became of a program.

    Attributes:
        results: of each call: what it returned, a negative errno, NOT_MADE or UNENDED.
        held: bytes of packets that its sockets still had on the way at the end.
    """

    end: End
    results: tuple[int, ...]
    held: int


def settles(program: Program) -> bool:
    """Whether its senders must be rid of their packets once its queues are read.

    Not when vhost-net has a queue, or a queue was opened without the right to read.
    """
    return not any(
        call.name == "set_backend" or (call.name == "open_tun" and call.values[0] not in _READABLE)
        for call in program
    )


class Executor:
    """Runs one program after another."""

    def __init__(self) -> None:
        memory.allocate()
        self._shared = mmap.mmap(-1, mmap.PAGESIZE)

    def run(self, program: Program, *, settle: bool | None = None) -> Answer:
        """Run a program and return what became of it.

        Args:
            settle: read its queues in the end until no packet is on the way; None: if it
                :func:`settles`.

        Raises:
            GuestError: it cannot be run here.
        """
        form = struct.Struct(f"={1 + len(program)}q")
        form.pack_into(self._shared, 0, 0, *[NOT_MADE] * len(program))
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            _child(program, self._shared, settles(program) if settle is None else settle)
        end = self._wait(pid)
        held, *results = form.unpack_from(self._shared)
        return Answer(end, tuple(results), held)

    @staticmethod
    def _wait(pid: int) -> End:
        fd = os.pidfd_open(pid)
        try:
            for end, seconds in ((End.ENDED, LIMIT_S), (End.KILLED, _STUCK_S)):
                if select.select([fd], [], [], seconds)[0]:
                    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    if status == _FAILED:
                        raise GuestError("a program could not be run; its process says why")
                    return end
                os.kill(pid, signal.SIGKILL)
            return End.STUCK
        finally:
            os.close(fd)


def _child(program: Program, shared: mmap.mmap, settle: bool) -> NoReturn:
    status = _FAILED
    try:
        _Run(program, shared).run(settle)
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _must(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _spaces() -> dict[int, int]:
    """Make two network namespaces; return their files. /sys shows the devices of HERE."""
    found = {}
    for which, kinds in ((AWAY, _NEWNET), (HERE, _NEWNET | _NEWNS)):
        _must(_libc.unshare(kinds), "no namespace")
        found[which] = os.open("/proc/self/ns/net", os.O_RDONLY)
    _must(_libc.mount(None, b"/", None, _PRIVATE, None), "no mounts of its own")
    _must(_libc.mount(b"none", b"/sys", b"sysfs", 0, None), "no /sys")
    return found


class _Run:
    """A program in its process."""

    def __init__(self, program: Program, shared: mmap.mmap) -> None:
        self._program = program
        self._shared = (ctypes.c_int64 * (1 + len(program))).from_buffer(shared)
        self._pending: list[threading.Thread] = []
        self._slots = _spaces()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        for number in (signal.SIGALRM, signal.SIGIO):
            signal.signal(number, lambda *_: None)

    def run(self, settle: bool) -> None:
        for number, call in enumerate(self._program):
            signal.setitimer(signal.ITIMER_REAL, _TICK_S, _TICK_S)
            if not call.aside:
                self._make(number, call)
                continue
            # Ticks are for the calls that are waited for.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            thread = threading.Thread(target=self._make, args=(number, call), daemon=True)
            thread.start()
            self._pending.append(thread)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        deadline = time.monotonic() + _LINGER_S
        for thread in self._pending:
            thread.join(max(0.0, deadline - time.monotonic()))
        if settle:
            self._settle()

    def _make(self, number: int, call: Call) -> None:
        at = memory.Memory(number, call.where)
        spec = SPECS[call.name]
        words = spec.make(at, *map(self._value, call.values))
        system = [*words, *[0] * (7 - len(words))]
        self._shared[1 + number] = UNENDED
        for _ in range(call.times):
            result = int(_libc.syscall(*system))
            if result == -1:
                result = -ctypes.get_errno()
                break
        if result >= 0 and memory.MEMORY <= at.load < memory.END - 4:
            result = ctypes.c_uint32.from_address(at.load).value
        if spec.makes:
            self._slots[number] = max(result, -1)
        self._shared[1 + number] = result

    def _value(self, value: Value) -> int | bytes:
        if isinstance(value, Ref):
            return self._slots.get(value.call, -1)
        if isinstance(value, Data):
            return packets.content(value.kind, value.size)
        return value.encode()[:16].ljust(16, b"\0") if isinstance(value, str) else value

    def _made(self, *kinds: str) -> list[int]:
        return [
            self._slots.get(number, -1)
            for number, call in enumerate(self._program)
            if SPECS[call.name].makes in kinds
        ]

    def _settle(self) -> None:
        """Read all queues until no packet is on the way."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            for fd in self._made("tun"):
                _drain(fd)
            held = sum(map(_on_the_way, self._made("udp", "packet")))
            self._shared[0] = held
            if not held or time.monotonic() > deadline:
                return
            time.sleep(0.001)


def _drain(fd: int) -> None:
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_RDWR | os.O_NONBLOCK)
        for _ in range(_DRAIN_MOST):
            if not os.read(fd, 1 << 17):
                return
    except (OSError, ValueError):
        return


def _on_the_way(fd: int) -> int:
    """Return the bytes that a socket has sent and that are still on the way."""
    try:
        return max(0, int(struct.unpack("=i", fcntl.ioctl(fd, 0x5411, bytes(4)))[0]))
    except (OSError, ValueError):
        return 0
