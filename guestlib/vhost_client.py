# SPDX-License-Identifier: GPL-2.0-only
"""Controls traffic/vhost_client.c: vhost-net with a client in place of a virtual machine."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from guestlib.environment import Environment
from guestlib.failure import GuestError
from guestlib.process import Service, parse_last_json, switches


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
        busyloop_us: int = 0,
        cpu: int = -1,
        fifo: bool = False,
        worker_cpu: int = -1,
        worker_fifo: bool = False,
    ) -> None:
        argv = [str(environment.bin / "vhost_client"), "--fd", str(tap_fd)]
        argv += ["--slots", str(slots)]
        argv += ["--work-ns", str(work_ns), "--rest-ns", str(rest_ns)]
        argv += ["--far-fd", str(far_fd), "--busyloop-us", str(busyloop_us)]
        for name, place in (("--cpu", cpu), ("--worker-cpu", worker_cpu)):
            argv += [name, str(place)] if place >= 0 else []
        flags = {"--fifo": fifo, "--worker-fifo": worker_fifo}
        argv += [name for name, wanted in flags.items() if wanted]
        super().__init__(argv, pass_fds=[tap_fd, far_fd] if far_fd else [tap_fd])

    def counts(self) -> VhostCounts:
        """Return the counts so far."""
        return self.order("count")

    @property
    def packets(self) -> int:
        """Packets received so far."""
        return self.counts().packets

    def detach(self) -> VhostCounts:
        """Detach vhost-net from the TAP."""
        return self.order("detach")

    def attach(self) -> VhostCounts:
        """Attach vhost-net to the TAP again."""
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
