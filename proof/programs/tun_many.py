#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""A thousand queues that nobody reads: they cost little, and their senders wait once."""

from __future__ import annotations

import itertools
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from devices import drops, tun
from harness import check, equal, parameter, run, soon
from traffic import Reader, Sender, udp

from guestlib.environment import setting, time_limit
from guestlib.netstats import driver_counters
from guestlib.process import ip_batch
from guestlib.sockets import grow
from guestlib.tracing import events, tracing
from guestlib.tundev import MULTI_TUN, TunDevice, configure

DEVICES, QUEUES = 4, 250
NAMES = {f"ndmany{number}": f"198.18.{number}.2" for number in range(1, DEVICES + 1)}
"""Device -> the address behind it."""
DEFAULT_QDISC = Path("/proc/sys/net/core/default_qdisc")
FLOWS = 4000
"""To one device: 16 a queue on average."""
NEVER, GUARD_MS = "0", "1000"
WINDOW_S = 1.0
MOST = 30
"""Samples of a queue in a second. The guard takes up to 27 in the first second of a stop, then 8.
At the first interval it would take 50 (HZ=100) or more."""


@contextmanager
def many() -> Iterator[None]:
    """Create the devices, with mq and a pfifo for each queue, for the block."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack, setting(DEFAULT_QDISC, "pfifo"):
        for name, there in NAMES.items():
            for _ in range(QUEUES):
                stack.enter_context(TunDevice(name, MULTI_TUN))
            here = there.removesuffix("2") + "1"
            configure(name, txqueuelen=500, qdisc="mq", address=f"{here} peer {there}/32")
        yield
        # All queues of a device at once; closing them one by one takes a grace period for each.
        ip_batch([f"link delete {name}" for name in NAMES])


def queues(counter: str, value: int) -> int:
    """Return how many queues have this value of a counter."""
    return sum(
        found == value
        for name in NAMES
        for key, found in driver_counters(name).items()
        if key.partition("_")[2] == counter
    )


def flows(first: int) -> Iterator[tuple[int, str]]:
    """Yield the ports and addresses of FLOWS flows to each device, in turn."""
    return itertools.product(range(first, first + FLOWS), NAMES.values())


def fill(sock: socket.socket) -> None:
    """Send until all queues are stopped."""
    grow(sock)
    first = 1
    while queues("stops", 1) < DEVICES * QUEUES:
        for port, there in flows(first):
            sock.sendto(b"", (there, port))
        first += FLOWS


class Waiter:
    """Send a datagram to many flows of each device, in a thread, with a small send buffer."""

    def __init__(self) -> None:
        self.sent = 0
        self.waited = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with udp() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
            for port, there in flows(1):
                begun = time.monotonic()
                sock.sendto(b"", (there, port))
                self.waited += time.monotonic() - begun
                self.sent += 1

    def waits(self) -> bool:
        """Return whether its send buffer is full."""
        before = self.sent
        time.sleep(0.1)
        return 0 < self.sent == before < DEVICES * FLOWS

    def ends(self) -> bool:
        self._thread.join(time_limit(30))
        return not self._thread.is_alive()


def check_samples() -> None:
    """Fail if the stall guard samples the queues too often. A late sample makes none more."""
    # Past the first second of most stops, unless the machine stands meanwhile.
    time.sleep(1)
    begun = time.monotonic()
    with tracing("timer/timer_expire_entry"):
        time.sleep(WINDOW_S)
    seconds = time.monotonic() - begun
    functions = [event["function"] for event in events("timer_expire_entry")]
    found = functions.count("nodrop_guard_sample")
    rate = found / seconds / (DEVICES * QUEUES)
    print(f"# {found} samples, {rate:.1f} a second of each queue", flush=True)
    check(found > 0, "the stall guard does not sample")
    check(rate <= MOST, f"{rate:.1f} samples of a queue in a second")


def check_other_device() -> None:
    """Fail unless a device with a reader delivers all packets."""
    with tun(500) as device, Reader(device.fd) as reader:
        check(Sender(1000).finished(20), "its sender hangs")
        check(reader.reaches(1000), f"{reader.packets} of 1000 packets were read")
        equal(drops(), {}, "drops")


def check_waiter() -> None:
    """Fail unless the guard trips once for each queue, and a sender waits for all at once."""
    waiter = Waiter()
    soon(waiter.waits, "a sender does not wait")
    with parameter("guard_ms", GUARD_MS):
        check(waiter.ends(), f"a sender hangs after {waiter.sent} packets")
        soon(lambda: queues("guard_trips", 1) == DEVICES * QUEUES, "the guard does not trip")
    print(f"# a sender waited for {waiter.waited:.2f} s", flush=True)
    # If it waited for one queue after the other, the limit would be exceeded many times.
    check(waiter.waited < time_limit(2), f"a sender waited for {waiter.waited:.1f} s")


def case_thousand_queues() -> None:
    with (
        parameter("guard_ms", NEVER),
        many(),
        udp() as sock,
    ):
        fill(sock)
        check_samples()
        check_other_device()
        check_waiter()


run()
