# SPDX-License-Identifier: GPL-2.0-only
"""Floods one ingress path to a tap; counts delivered and dropped packets and blocked senders."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from guestlib.environment import Environment
from guestlib.freed import freed
from guestlib.netstats import driver_counters
from guestlib.process import Service, in_netns, parse_last_json
from guestlib.taps.ingress import ADDRESS, GUEST_MAC, MAC, NAME, SENDERS, guest_tap, topology
from guestlib.taps.linktap import LinkTap
from guestlib.timing import scaled, time_limit
from guestlib.vhost_client import VhostClient

READERS = ("read", "vhost", "none")
SIZE = 1000
"""UDP payload, bytes."""
STILL_S = 0.5
"""No more packets are expected once none has arrived for so long, seconds."""


@dataclass(frozen=True)
class Flood:
    """Parameters of a measurement.

    Attributes:
        way: the ingress path, one of ingress.WAYS; "guest" sends by ``write()``.
        reader: one of READERS.
        sockets: how many sockets send, each from its own thread and at full speed.
        ring: txqueuelen, slots; 0: the kernel's default.
        work_us: the reader's busy time per packet, us.
        seconds: how long to send.
        pinned: sockets send on CPU 0, the reader runs on CPU 1.
    """

    way: str
    reader: str = "read"
    sockets: int = 1
    ring: int = 0
    work_us: int = 50
    seconds: float = 1.0
    pinned: bool = False


@dataclass(frozen=True)
class Outcome:
    """Results of a measurement.

    Attributes:
        sent: packets accepted by the senders' system calls.
        delivered: packets that the reader received.
        full_ring, backlog: packets dropped for this reason (SKB_DROP_REASON_*).
        freed: packets dropped for any reason.
        counted: increase of the tap's rx_dropped.
        errors: system calls that failed, except with EAGAIN.
        longest_ms: the longest time in a socket's send(), ms.
        held: sockets blocked in send() at the end.
        driver: the driver's own counters, if it has some.
    """

    sent: int
    delivered: int
    full_ring: int
    backlog: int
    freed: int
    counted: int
    errors: int
    longest_ms: float
    held: int
    driver: dict[str, int]


@dataclass(frozen=True)
class Sent:
    """The senders' part of an Outcome."""

    sent: int
    errors: int = 0
    longest_ms: float = 0.0
    held: int = 0


def rx_dropped(name: str = NAME) -> int:
    """Return a device's count of packets dropped on the way to its reader."""
    path = Path(f"/sys/class/net/{name}/statistics/rx_dropped")
    return int(path.read_text(encoding="ascii"))


def on_cpu(number: int, flood: Flood, words: list[str]) -> list[str]:
    """Return a command, bound to a CPU if the flood is pinned."""
    return ["taskset", "-c", str(number), *words] if flood.pinned else words


def sockets(flood: Flood, environment: Environment, netns: str) -> Service:
    """Return the service that sends from sockets in a namespace."""
    words = [str(environment.bin / "udp_sender"), "--dest", ADDRESS]
    words += ["--senders", str(flood.sockets), "--size", str(SIZE)]
    words += ["--seconds", str(flood.seconds)]
    return Service(on_cpu(0, flood, in_netns(netns, words)), announces=False)


def by_sockets(flood: Flood, environment: Environment) -> Sent:
    """Send from sockets for the flood's duration."""
    with sockets(flood, environment, SENDERS[flood.way]) as program:
        # A signal ends a blocked send() at the latest.
        output = program.finish(time_limit(flood.seconds + 5))
    result = parse_last_json(output, "udp_sender")
    longest_ms = int(result["longest_send_ns"]) / 1e6
    return Sent(
        int(result["sent"]), int(result["errors"]), longest_ms, int(result["held_at_the_end"])
    )


def frame(number: int, size: int) -> bytes:
    """Return an Ethernet frame from the guest's tap to the one that is read."""
    udp = (9).to_bytes(2, "big") * 2 + (8 + size).to_bytes(2, "big") + bytes(2)
    total = (28 + size).to_bytes(2, "big")
    ip = b"\x45\0" + total + bytes(4) + b"\x40\x11" + bytes(2) + bytes([10, 9, 0, 4, 10, 9, 0, 1])
    head = bytes.fromhex((MAC + GUEST_MAC).replace(":", "")) + b"\x08\0"
    return head + ip + udp + number.to_bytes(8, "big") + bytes(size - 8)


def by_writing(tap: LinkTap, flood: Flood) -> Sent:
    """Write frames for the flood's duration."""
    os.set_blocking(tap.fd, False)
    poll = select.poll()
    poll.register(tap.fd, select.POLLOUT)
    sent, longest, last = 0, 0.0, False
    deadline = time.monotonic() + flood.seconds
    while (now := time.monotonic()) < deadline:
        try:
            os.write(tap.fd, frame(sent, SIZE))
        except BlockingIOError:
            last = not poll.poll(1000 * (deadline - now))
            longest = max(longest, time.monotonic() - now)
            continue
        sent += 1
    return Sent(sent, 0, 1000 * longest, int(last))


def send(flood: Flood, environment: Environment) -> Sent:
    """Send as the flood's parameters say."""
    if flood.way != "guest":
        return by_sockets(flood, environment)
    with guest_tap() as tap:
        return by_writing(tap, flood)


@contextmanager
def reading(flood: Flood, tap: LinkTap, environment: Environment) -> Iterator[Callable[[], int]]:
    """Read during the block; yield a function that waits for the end and counts the packets."""
    if flood.reader == "none":
        yield lambda: 0
        return
    if flood.reader == "vhost":
        cpu = 1 if flood.pinned else -1
        with VhostClient(
            environment, tap.fd, work_ns=1000 * flood.work_us, cpu=cpu, worker_cpu=cpu
        ) as client:

            def delivered() -> int:
                until_still(lambda: client.packets)
                return client.end().packets

            yield delivered
        return
    words = [str(environment.bin / "tun_reader"), "--tap", "--fd", str(tap.fd)]
    words += ["--work-ns", str(1000 * flood.work_us)]
    with Service(on_cpu(1, flood, words), pass_fds=[tap.fd]) as program:

        def read() -> int:
            until_still(lambda: program.cpu_ns)
            return int(program.result()["packets"])

        yield read


def until_still(count: Callable[[], int]) -> None:
    """Wait until a number has not changed for STILL_S; at most time_limit(30)."""
    last, moved = -1, time.monotonic()
    end = moved + time_limit(30)
    while time.monotonic() < min(end, moved + scaled(STILL_S)):
        now = count()
        if now != last:
            last, moved = now, time.monotonic()
        time.sleep(0.05)


def run(flood: Flood, environment: Environment) -> Outcome:
    """Create the topology, send and count.

    Raises:
        GuestError: a program or a device failed.
    """
    with ExitStack() as stack:
        tap = stack.enter_context(topology(flood.way, ring=flood.ring))
        full = stack.enter_context(freed("FULL_RING"))
        backlog = stack.enter_context(freed("CPU_BACKLOG"))
        any_reason = stack.enter_context(freed())
        delivered = stack.enter_context(reading(flood, tap, environment))
        before = rx_dropped()
        sent = send(flood, environment)
        return Outcome(
            sent=sent.sent,
            delivered=delivered(),
            full_ring=full(),
            backlog=backlog(),
            freed=any_reason(),
            counted=rx_dropped() - before,
            errors=sent.errors,
            longest_ms=sent.longest_ms,
            held=sent.held,
            driver=driver_counters(NAME),
        )
