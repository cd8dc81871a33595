#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""A queue that nobody reads, or from which a reader takes a packet now and then: the stall guard.

No stop lasts much longer than guard_ms for such a reader; those who send to other queues wait
once, or less and less. A slow link is no such reader. When the guard trips: tun_trace, and KUnit.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack

from devices import DEEP, NAME, THERE, all_drops, counters, dropped, drops, mq, multi_queue, tun
from harness import check, each, equal, parameter, repeating, run, soon
from traffic import Reader, Sender, fill, packets, udp

from guestlib.environment import time_limit
from guestlib.process import tool
from guestlib.sockets import charged

GUARD_MS = "300"
FLOWS = 32
"""So many that each of the queues gets some."""
TRICKLE_S = 0.2
"""Between two packets of a reader that is too slow for GUARD_MS."""


class TrickleReader(Reader):
    """Take a packet every ``period`` seconds, and do not poll."""

    def __init__(self, fd: int, period: float) -> None:
        super().__init__(fd)
        self._period = period
        self._ended = threading.Event()

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        super().__exit__(*exception)

    def _run(self) -> None:
        while not self._ended.wait(self._period):
            self.packets += next(packets(self._fd), None) is not None


class Flows:
    """Send from several sockets in turn, in a thread; note how long one send takes at most."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.sent = 0
        self._stack = ExitStack()
        self._sockets = [self._stack.enter_context(udp()) for _ in range(FLOWS)]
        for sock in self._sockets:
            # A few packets: a stopped queue blocks its senders at once.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)

    def __enter__(self) -> Flows:
        self._stack.enter_context(repeating(self._send))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _send(self) -> None:
        for port, sock in enumerate(self._sockets, 1000):
            begun = time.monotonic()
            sock.sendto(bytes(500), (THERE, port))
            self.longest = max(self.longest, time.monotonic() - begun)
            self.sent += 1
        time.sleep(0.002)


def others_wait_once(qdisc: str, *, trickle: bool) -> None:
    """Fail if senders wait for the two other queues more than once, or long."""
    with parameter("guard_ms", GUARD_MS), multi_queue(4) as devices, ExitStack() as stack:
        for device in devices[:2]:
            stack.enter_context(Reader(device.fd))
        if qdisc == "mq":
            mq(4)
        else:
            tool(["tc", "qdisc", "replace", "dev", NAME, "root", *qdisc.split()])
        if trickle:
            stack.enter_context(TrickleReader(devices[2].fd, TRICKLE_S))
        with Flows() as flows:
            soon(
                lambda: min(counters(n)["guard_trips"] for n in (2, 3)) > 0,
                lambda: f"the guard did not trip: {counters(2)} {counters(3)}",
                30,
            )
            # Long enough for several more trips.
            before = flows.sent
            soon(lambda: flows.sent > before + 1000 * FLOWS // 4, "the senders stand", 60)
        equal([counters(n)["guard_trips"] for n in (2, 3)], [1, 1], "trips of the guard")
        limit = time_limit(2.0)
        check(flows.longest < limit, f"a send took {flows.longest:.1f} s")


@each("mq", "fq_codel")
def case_unread(qdisc: str) -> None:
    others_wait_once(qdisc, trickle=False)


@each("mq", "fq_codel", "pfifo")
def case_trickle(qdisc: str) -> None:
    others_wait_once(DEEP if qdisc == "pfifo" else qdisc, trickle=True)


def case_slow_link() -> None:
    """Senders to a link that takes 20 packets a second wait, without a drop."""
    with (
        parameter("guard_ms", "1000"),
        tun(500) as device,
        TrickleReader(device.fd, 0.05) as reader,
    ):
        sender = Sender(60)
        check(reader.reaches(60, 30), f"only {reader.packets} packets were read")
        check(sender.finished(5), "the sender hangs")
        check(counters()["stops"] > 0, "the txq was not stopped")
        equal(counters()["guard_trips"], 0, "trips of the guard")
        equal(drops(), {}, "drops")


def case_socket_gets_its_memory_back() -> None:
    with parameter("guard_ms", "0"), tun(5), udp() as sock:
        fill(sock)
        check(charged(sock) > 100_000, f"only {charged(sock)} bytes are charged")
        with parameter("guard_ms", GUARD_MS):
            soon(lambda: charged(sock) == 0, lambda: f"{charged(sock)} bytes stay charged")
        equal(counters()["guard_trips"], 1, "guard trips")
        equal(all_drops(), {"drop_guard": dropped()}, "packets dropped")


run()
