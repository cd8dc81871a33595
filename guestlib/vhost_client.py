# SPDX-License-Identifier: GPL-2.0-only
"""vhost-net without a virtual machine: its client traffic/vhost_client.c, or nothing at all."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from guestlib.environment import Environment, GuestError
from guestlib.process import Service, parse_last_json, switches

SET_OWNER, SET_MEM_TABLE = 0xAF01, 0x4008AF03
SET_NUM, SET_ADDR, SET_BACKEND = 0x4008AF10, 0x4028AF11, 0x4008AF30
RX, TX = 0, 1
"""Ioctls and rings of vhost-net."""


@dataclass(frozen=True)
class VhostCounts:
    """The client's counts; the time is CLOCK_MONOTONIC in ns.

    Attributes:
        packets: received.
        others: non-IPv4 packets among them; 0 with a far TAP.
        segments: received, each large packet counted as the segments it is to be split into.
        refused: received packets that the far TAP did not accept.
        sent: the client's own packets that vhost-net took.
        errors: packets that vhost-net dropped because it could not write their header.
        worker_cpu_ns: CPU time of vhost's thread, under UML in ticks of 10 ms; 0 before Linux 6.4.
        voluntary_switches: of vhost's thread, to sleep; 0 once it has ended.
        involuntary_switches: of vhost's thread, by preemption.
    """

    packets: int
    others: int
    bytes: int
    segments: int
    refused: int
    sent: int
    errors: int
    now_ns: int
    worker_cpu_ns: int
    voluntary_switches: int = 0
    involuntary_switches: int = 0

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Parse one of the client's lines; raise GuestError if a field is missing."""
        try:
            return cls(**{one.name: int(data[one.name]) for one in fields(cls) if one.name in data})
        except TypeError as error:
            raise GuestError(f"a reply of vhost_client lacks fields: {error}") from error


class VhostClient(Service):
    """Takes a TAP's packets through vhost-net and discards them; a context manager.

    Args:
        environment: where the program is.
        tap_fd: an attached TAP.
        far_fd: a second TAP, for forwarding between both, with offloads; 0: none.
        slots: of each ring, a power of two.
        work_ns, rest_ns: busy time and sleep per packet, ns.
        work_per_kb_ns: busy time for each 1024 bytes that are written to ``far_fd``, ns.
        busyloop_us: how long vhost's thread polls before it sleeps, us.
        cpu: the client's CPU, -1: any.
        fifo: run it as SCHED_FIFO, with priority over a sender on the same CPU.
        worker_cpu: CPU of vhost's thread, -1: any.
        worker_fifo: the same as ``fifo`` for that thread.
    """

    def __init__(
        self,
        environment: Environment,
        tap_fd: int,
        *,
        far_fd: int = 0,
        slots: int = 256,
        work_ns: int = 0,
        rest_ns: int = 0,
        work_per_kb_ns: int = 0,
        busyloop_us: int = 0,
        cpu: int = -1,
        fifo: bool = False,
        worker_cpu: int = -1,
        worker_fifo: bool = False,
    ) -> None:
        argv = [str(environment.bin / "vhost_client"), "--fd", str(tap_fd)]
        argv += ["--slots", str(slots)]
        argv += ["--work-ns", str(work_ns), "--rest-ns", str(rest_ns)]
        argv += ["--work-per-kb-ns", str(work_per_kb_ns)]
        argv += ["--far-fd", str(far_fd), "--busyloop-us", str(busyloop_us)]
        for name, place in (("--cpu", cpu), ("--worker-cpu", worker_cpu)):
            argv += [name, str(place)] if place >= 0 else []
        flags = {"--fifo": fifo, "--worker-fifo": worker_fifo}
        argv += [name for name, wanted in flags.items() if wanted]
        super().__init__(argv, pass_fds=[tap_fd, far_fd] if far_fd else [tap_fd])

    def counts(self) -> VhostCounts:
        return self.order("count")

    @property
    def packets(self) -> int:
        return self.counts().packets

    def detach(self) -> VhostCounts:
        return self.order("detach")

    def attach(self) -> VhostCounts:
        return self.order("attach")

    def order(self, what: str) -> VhostCounts:
        """Send one of the client's other requests; return its counts.

        Args:
            what: "pause": offer no buffers, like a guest that hangs; "resume": offer them again;
                "hide": map the buffers to invalid memory, so vhost-net cannot write to them;
                "show": map them to valid memory again, and kick, because vhost-net stops at the
                first buffer to which it cannot write.
        """
        reply = self.request(what)
        # /proc/TID exists for each thread, though a listing of /proc has only processes.
        worker = [Path(f"/proc/{reply['worker']}/status")] if reply["worker"] else []
        names = ("voluntary_switches", "involuntary_switches")
        return VhostCounts.from_data(reply | dict(zip(names, switches(worker), strict=True)))

    def end(self) -> VhostCounts:
        """Stop the client and return its final counts."""
        return VhostCounts.from_data(parse_last_json(self.stop(), "vhost_client"))


class EmptyVhost:
    """An open /dev/vhost-net with two empty rings, and no virtual machine."""

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(3 * 4096)
        # Align the rings in the memory table.
        start = (ctypes.addressof(self._memory) + 4095) & ~4095
        self.fd = os.open("/dev/vhost-net", os.O_RDWR | os.O_CLOEXEC)
        try:
            self._prepare(start)
        except OSError:
            self.close()
            raise

    def _prepare(self, start: int) -> None:
        fcntl.ioctl(self.fd, SET_OWNER)
        fcntl.ioctl(self.fd, SET_MEM_TABLE, struct.pack("=II4Q", 1, 0, start, 8192, start, 0))
        for index in (RX, TX):
            place = start + 4096 * index
            fcntl.ioctl(self.fd, SET_NUM, struct.pack("=II", index, 16))
            rings = (place, place + 1024, place + 2048, 0)
            fcntl.ioctl(self.fd, SET_ADDR, struct.pack("=II4Q", index, 0, *rings))

    def close(self) -> None:
        """Close it; packets that it has taken from a TAP are put back."""
        os.close(self.fd)

    def backend(self, index: int, fd: int) -> int:
        """Set a ring's backend; return the errno, or 0."""
        try:
            fcntl.ioctl(self.fd, SET_BACKEND, struct.pack("=Ii", index, fd))
        except OSError as error:
            return error.errno or 0
        return 0
