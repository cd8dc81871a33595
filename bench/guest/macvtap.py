# SPDX-License-Identifier: GPL-2.0-only
"""Floods macvtap and ipvtap by the ingress paths of guestlib.taps."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench.guest.base import Kind, Metrics, driver_metrics
from guestlib.drivers import tap_modules
from guestlib.environment import scaled, time_limit
from guestlib.process import Service, parse_last_json
from guestlib.taps import (
    ADDRESS,
    NAME,
    SECOND_ADDRESS,
    SENDERS,
    WAYS,
    LinkTap,
    frame,
    guest_tap,
    rx_dropped,
    second_tap,
    topology,
)
from guestlib.tracing import freed
from guestlib.vhost_client import VhostClient
from lab.variant import Variant

SIZE = 1000
"""UDP payload, bytes."""
STILL_S = 0.5
"""No more packets are expected once none has arrived for so long, seconds."""
ORDER = (False, True, True, False)
"""Whether the slow guest also gets packets."""
FILL_S = 0.4
"""Head start of the slow guest's senders, seconds: its ring is full by then."""


@dataclass(frozen=True)
class TapReader:
    """A running reader of a tap.

    Attributes:
        progress: returns a number that changes while packets arrive.
        end: stops it and returns how many packets it received.
    """

    progress: Callable[[], int]
    end: Callable[[], int]


class TapKind(Kind):
    """A kind with a macvtap or ipvtap, of which only ``tap`` is nodrop's or stock's."""

    @classmethod
    def modules(cls, variant: Variant) -> list[str]:
        return tap_modules(str(variant))

    def start_reader(
        self, tap: LinkTap, stack: ExitStack, *, cpu: int = -1, work_ns: int = 0, rest_ns: int = 0
    ) -> TapReader:
        """Read a tap with read(), vhost-net or not at all.

        Args:
            cpu: its CPU; -1: any.
            work_ns, rest_ns: busy time and sleep per packet, ns.
        """
        kind = self.choice("reader", "read", "vhost", "none")
        if kind == "none":
            return TapReader(lambda: 0, lambda: 0)
        if kind == "vhost":
            client = VhostClient(
                self.environment, tap.fd, work_ns=work_ns, rest_ns=rest_ns, cpu=cpu, worker_cpu=cpu
            )
            stack.enter_context(client)
            return TapReader(lambda: client.packets, lambda: client.end().packets)
        program = self.tun_reader(tap.fd, "--tap", cpu=cpu, work_ns=work_ns, rest_ns=rest_ns)
        stack.enter_context(program)
        return TapReader(lambda: program.cpu_ns, lambda: int(program.result()["packets"]))

    def sockets(
        self, address: str, senders: int, seconds: float, *, cpu: int = -1, rate: int = 0
    ) -> Service:
        """Return the service that sends from sockets to an address.

        Args:
            rate: of each socket, packets/s; 0: unlimited.
        """
        command = self.command(
            "udp_sender",
            cpu=cpu,
            netns=SENDERS[self.case.path],
            dest=address,
            senders=senders,
            rate=rate,
            size=SIZE,
            seconds=seconds,
        )
        return Service(command, announces=False)


def end_of(sockets: Service, seconds: float) -> dict[str, Any]:
    """Wait for udp_sender's result; a signal ends a blocked send() at the latest."""
    return parse_last_json(sockets.finish(time_limit(seconds + 5)), "udp_sender")


def write_frames(tap: LinkTap, seconds: float) -> dict[str, Any]:
    """Write frames into a guest's tap; return a result like udp_sender's."""
    os.set_blocking(tap.fd, False)
    poll = select.poll()
    poll.register(tap.fd, select.POLLOUT)
    sent, longest_s, blocked = 0, 0.0, False
    deadline = time.monotonic() + seconds
    while (now := time.monotonic()) < deadline:
        try:
            os.write(tap.fd, frame(sent, SIZE))
        except BlockingIOError:
            blocked = not poll.poll(1000 * (deadline - now))
            longest_s = max(longest_s, time.monotonic() - now)
            continue
        sent += 1
    return {
        "sent": sent,
        "errors": 0,
        "longest_send_ns": 1e9 * longest_s,
        "held_at_the_end": int(blocked),
    }


def wait_until_still(count: Callable[[], int]) -> None:
    """Wait until a number has not changed for STILL_S; at most time_limit(30)."""
    last, moved = -1, time.monotonic()
    end = moved + time_limit(30)
    while time.monotonic() < min(end, moved + scaled(STILL_S)):
        now = count()
        if now != last:
            last, moved = now, time.monotonic()
        time.sleep(0.05)


class Macvtap(TapKind):
    """Delivered and dropped packets of an ingress path, and blocked senders.

    If it is ``pinned``, sockets send on CPU 0 and the reader runs on CPU 1.
    """

    parameters = "path reader sockets txqueuelen work_ns pinned"

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        del variant
        path = self.choice("path", *WAYS)
        send_cpu, read_cpu = (0, 1) if self.case.pinned else (-1, -1)
        tap = stack.enter_context(topology(path, ring=self.case.txqueuelen))
        full_ring = stack.enter_context(freed("FULL_RING"))
        backlog = stack.enter_context(freed("CPU_BACKLOG"))
        any_reason = stack.enter_context(freed())
        reader = self.start_reader(tap, stack, cpu=read_cpu, work_ns=self.case.work_ns)
        before = rx_dropped()
        if path == "guest":
            with guest_tap() as writer:
                sent = write_frames(writer, seconds)
        else:
            with self.sockets(ADDRESS, self.case.sockets, seconds, cpu=send_cpu) as sockets:
                sent = end_of(sockets, seconds)
        wait_until_still(reader.progress)
        delivered = reader.end()
        return driver_metrics(NAME) | {
            "delivered_pps": delivered / seconds,
            "sent": sent["sent"],
            "delivered": delivered,
            "undelivered": sent["sent"] - delivered,
            "full_ring": full_ring(),
            "backlog": backlog(),
            "freed": any_reason(),
            "counted": rx_dropped() - before,
            "refused": sent["errors"],
            "longest_send_ms": sent["longest_send_ns"] / 1e6,
            "not_released": sent["held_at_the_end"],
        }


class Beside(TapKind):
    """A fast guest's throughput alone, and beside a slow one.

    One socket floods the fast guest. In half of the phases, other sockets send to a guest that
    sleeps after each packet, and so uses little CPU.
    """

    parameters = "path reader sockets rest_us rate"

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        del variant
        path = self.choice("path", *SENDERS)
        slow = stack.enter_context(topology(path))
        fast = stack.enter_context(second_tap(path))
        alone_pps, beside_pps = [], []
        totals: Metrics = dict.fromkeys(("slow_sent", "slow_read", "slow_dropped"), 0)
        delivered, held = 0, 0
        for beside in ORDER:
            with ExitStack() as phase:
                reader = self.start_reader(fast, phase)
                if not beside:
                    self._send_to_fast(seconds)
                    read = reader.end()
                    alone_pps.append(read / seconds)
                    delivered += read
                    continue
                slow_reader = self.start_reader(slow, phase, rest_ns=1000 * self.case.rest_us)
                dropped = rx_dropped()
                flood = self.sockets(
                    ADDRESS, self.case.sockets, seconds + FILL_S, rate=self.case.rate
                )
                phase.enter_context(flood)
                time.sleep(FILL_S)
                self._send_to_fast(seconds)
                read = reader.end()
                beside_pps.append(read / seconds)
                to_slow, slow_read = end_of(flood, seconds), slow_reader.end()
                delivered += read + slow_read
                totals["slow_sent"] += to_slow["sent"]
                totals["slow_read"] += slow_read
                totals["slow_dropped"] += rx_dropped() - dropped
                held = max(held, to_slow["held_at_the_end"])
        return totals | {
            "delivered": delivered,
            "fast_alone_pps": sum(alone_pps) / len(alone_pps),
            "fast_beside_pps": sum(beside_pps) / len(beside_pps),
            "fast_beside_ratio": sum(beside_pps) / max(sum(alone_pps), 1e-9),
            "fast_dropped": rx_dropped(fast.name),
            "not_released": held,
        }

    def _send_to_fast(self, seconds: float) -> None:
        with self.sockets(SECOND_ADDRESS, 1, seconds) as sockets:
            end_of(sockets, seconds)
