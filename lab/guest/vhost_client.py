# SPDX-License-Identifier: GPL-2.0-only
"""vhost-net with a client in place of a virtual machine (lab/traffic/vhost_client.c)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from lab.guest.environment import Environment
from lab.guest.failure import GuestError
from lab.guest.process import Service, parse_last_json, switches


@dataclass(frozen=True)
class VhostCounts:
    """What the client counted; the time is CLOCK_MONOTONIC in ns.

    Attributes:
        packets: that it received.
        others: of these, those that are no IPv4; not of packets that go to a far TAP.
        segments: the same, large packets counted by what they are to be cut into.
        refused: of these, what the far TAP did not take.
        sent: packets of its own that vhost-net took.
        errors: packets that vhost-net lost, because it could not write what comes before them.
        worker_cpu_ns: CPU time of vhost's thread, in user-mode Linux in ticks of 10 ms; 0
            before Linux 6.4.
        voluntary_switches: of vhost's thread, to sleep; 0 once it is gone.
        involuntary_switches: of vhost's thread, because it had to.
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
        """Read one of the client's lines; GuestError when a field is missing there."""
        try:
            return cls(**{one.name: int(data[one.name]) for one in fields(cls) if one.name in data})
        except TypeError as error:
            raise GuestError(f"vhost_client does not tell all: {error}") from error


class VhostClient(Service):
    """Takes a TAP's packets through vhost-net and throws them away; a context manager.

    Args:
        environment: where the program is.
        tap_fd: an attached TAP.
        far_fd: another TAP, to which packets are carried and from which they come; both with
            offloads. 0: packets are thrown away.
        slots: of each ring, a power of two.
        work_ns, rest_ns: busy time and sleep per packet, ns.
        busyloop_us: how long vhost's thread polls before it sleeps, us.
        cpu: where the client runs, -1: anywhere.
        fifo: it runs as SCHED_FIFO, ahead of a sender on the same CPU.
        worker_cpu: where vhost's thread runs, -1: anywhere.
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
        """Received so far."""
        return self.counts().packets

    def detach(self) -> VhostCounts:
        """Take vhost-net off the TAP."""
        return self.order("detach")

    def attach(self) -> VhostCounts:
        """Put vhost-net back on the TAP."""
        return self.order("attach")

    def order(self, what: str) -> VhostCounts:
        """Give one of the client's orders, beside those above; return its counts.

        Args:
            what: "pause": offer no buffers, as a guest that hangs; "resume": offer them again;
                "hide": make them memory that is not there, so that nothing can be written;
                "show": make them memory again, and kick: vhost-net stops at the first that it
                cannot write.
        """
        told = self.ask(what)
        # Threads can be looked up there, too, though they are not listed.
        worker = [Path(f"/proc/{told['worker']}/status")] if told["worker"] else []
        names = ("voluntary_switches", "involuntary_switches")
        return VhostCounts.from_data(told | dict(zip(names, switches(worker), strict=True)))

    def end(self) -> VhostCounts:
        """Stop the client and return its last counts."""
        return VhostCounts.from_data(parse_last_json(self.stop(), "vhost_client"))
