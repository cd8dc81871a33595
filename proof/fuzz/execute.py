# SPDX-License-Identifier: GPL-2.0-only
"""Run fuzzer programs, each in its own process and two network namespaces."""

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
from typing import NamedTuple

from guestlib.environment import GuestError
from guestlib.sockets import charged
from proof.fuzz.generate import SPECS
from proof.fuzz.program import (
    AWAY,
    HERE,
    Call,
    Data,
    Memory,
    Program,
    Ref,
    Value,
    allocate,
    content,
)

NOT_MADE = -0x10000
"""The result of a call that was not made or did not return; others are values or -errno."""
LIMIT_S, SETTLE_S = 4.5, 1.5
_TICK_S = 0.02
"""Interval of the signal that interrupts blocking calls, s."""
_LINGER_S = 0.015
"""How long background calls may continue after the last call, s."""
_MOST_READ = 20000
"""Most packets to read from a queue at a time."""
_NEWNS, _NEWNET, _PRIVATE = 0x00020000, 0x40000000, 0x44000
_FAILED = 3

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.syscall.argtypes = [ctypes.c_long] * 7
_libc.mount.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_void_p]


class Execution(NamedTuple):
    """The outcome of a program.

    Attributes:
        results: of each call.
        pending: bytes that its sockets were still charged for at the end.
    """

    results: tuple[int, ...]
    pending: int


def settles(program: Program) -> bool:
    """Whether reading its queues frees all its senders' packets: not if vhost-net has a queue."""
    return all(call.name != "set_backend" for call in program)


def execute(
    program: Program, *, settle: bool | None = None, settle_s: float = SETTLE_S
) -> Execution:
    """Run a program and return its outcome; kill it after LIMIT_S and ``settle_s``.

    Args:
        settle: finally read its queues until no packet is pending; None: if it
            :func:`settles`.
        settle_s: timeout of that, s.

    Raises:
        GuestError: the program cannot be run here.
    """
    allocate()
    form = struct.Struct(f"={1 + len(program)}q")
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    form.pack_into(shared, 0, 0, *[NOT_MADE] * len(program))
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        try:
            wanted = settles(program) if settle is None else settle
            _Run(program, shared).run(settle_s if wanted else 0.0)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(_FAILED)
    fd = os.pidfd_open(pid)
    if not select.select([fd], [], [], LIMIT_S + settle_s)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(fd)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == _FAILED:
        raise GuestError("a program could not be run; its process printed why")
    pending, *results = form.unpack_from(shared)
    return Execution(tuple(results), pending)


def _must(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _spaces() -> dict[int, int]:
    """Create two network namespaces; return their descriptors. /sys shows the devices of HERE."""
    found = {}
    for which, kinds in ((AWAY, _NEWNET), (HERE, _NEWNET | _NEWNS)):
        _must(_libc.unshare(kinds), "no namespace")
        found[which] = os.open("/proc/self/ns/net", os.O_RDONLY)
    _must(_libc.mount(None, b"/", None, _PRIVATE, None), "no mounts of its own")
    _must(_libc.mount(b"none", b"/sys", b"sysfs", 0, None), "no /sys")
    return found


class _Run:
    """A program that runs in this process."""

    def __init__(self, program: Program, shared: mmap.mmap) -> None:
        self._program = program
        self._shared = (ctypes.c_int64 * (1 + len(program))).from_buffer(shared)
        self._slots = _spaces()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        for number in (signal.SIGALRM, signal.SIGIO):
            signal.signal(number, lambda *_: None)

    def run(self, settle_s: float) -> None:
        threads: list[threading.Thread] = []
        for number, call in enumerate(self._program):
            signal.setitimer(signal.ITIMER_REAL, _TICK_S, _TICK_S)
            if not call.background:
                self._make(number, call)
                continue
            # Ticks interrupt foreground calls only.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            threads.append(threading.Thread(target=self._make, args=(number, call), daemon=True))
            threads[-1].start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        deadline = time.monotonic() + _LINGER_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        deadline = time.monotonic() + settle_s
        while settle_s and self._pending_bytes() and time.monotonic() < deadline:
            time.sleep(0.001)

    def _make(self, number: int, call: Call) -> None:
        spec = SPECS[call.name]
        words = spec.make(Memory(number), *map(self._value, call.values))
        system = [*words, *[0] * (7 - len(words))]
        for _ in range(call.times):
            result = int(_libc.syscall(*system))
            if result == -1:
                result = -ctypes.get_errno()
                break
        if spec.makes:
            self._slots[number] = max(result, -1)
        self._shared[1 + number] = result

    def _value(self, value: Value) -> int | bytes:
        if isinstance(value, Ref):
            return self._slots.get(value.call, -1)
        if isinstance(value, Data):
            return content(value.kind, value.size)
        return value.encode()[:16].ljust(16, b"\0") if isinstance(value, str) else value

    def _pending_bytes(self) -> int:
        """Read all queues; return the bytes that the sockets are still charged for."""
        pending = 0
        for number, call in enumerate(self._program):
            fd, kind = self._slots.get(number, -1), SPECS[call.name].makes
            try:
                if kind == "tun":
                    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_RDWR | os.O_NONBLOCK)
                    for _ in range(_MOST_READ):
                        os.read(fd, 1 << 17)
                elif kind in ("udp", "packet"):
                    pending += charged(fd)
            except (OSError, ValueError):
                continue
        self._shared[0] = pending
        return pending
