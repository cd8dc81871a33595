#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The tracepoints in events/nodrop: each fires when it should, with the right fields.

Kicks follow a sender that moves to another CPU, wherever the reader is. The kicked CPU runs the
qdisc. If the next kick went to the CPU that ran it, none would follow a sender that waits. So the
sender sends while the txq is stopped, and never runs the qdisc itself; then the reader reads.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devices import NAME, THERE, counters, tun
from harness import Skip, check, each, equal, parameter, run
from traffic import Account, Reader, Sender, all_finish, one_cpu, packets, settled, udp

from guestlib.environment import time_limit
from guestlib.sockets import grow
from guestlib.tracing import TRACING, events, forget, seen, tracing

EVENTS = ("nodrop_stop", "nodrop_wake", "nodrop_guard", "nodrop_kick")
GUARD_S = 1.0
CPUS = sorted(os.sched_getaffinity(0))
BURST, MEASURED = 2000, 1200
"""Packets sent in a phase, and read while it is measured. The rest keeps the txq stopped when the
sender moves."""
SHARE = 0.8
"""Of a phase's kicks, that obey the rule: the kernel itself may send a packet from any CPU, and the
reader runs the qdisc if the kick before has not ended."""


@contextmanager
def traced() -> Iterator[None]:
    """Trace during the block; fail if a tracepoint does not exist."""
    with tracing("nodrop"):
        there = {path.name for path in (TRACING / "events/nodrop").glob("nodrop_*")}
        equal(there, set(EVENTS), "events")
        yield


def fields(held: str, most: str, cpu: int) -> dict[str, str]:
    return {"dev": NAME, "queue": "0", "held": held, "max": most, "cpu": str(cpu)}


def case_stop_by_ring() -> None:
    """In a ring of so few slots the limit is txqueuelen."""
    for cpu in os.sched_getaffinity(0):
        with traced(), tun(3), one_cpu(cpu):
            check(Sender(50).finished(5), "the sender hangs")
            equal(events("nodrop_stop")[0], fields("3/3", "3", cpu), "the first event")
            equal(len(events("nodrop_stop")), counters()["stops"], "events and the counter")
            equal(counters()["stops_limit"], 0, "stops by the limit")


def case_stop_by_limit() -> None:
    with traced(), tun(500), one_cpu(0):
        check(Sender(200).finished(5), "the sender hangs")
        # The first limit: the consumer's pace is unknown.
        equal(events("nodrop_stop")[0], fields("4/4", "500", 0), "the first event")
        equal(counters()["stops_limit"], 1, "stops by the limit")


def case_wake_and_kick() -> None:
    account = Account()
    with traced(), tun(100) as device:
        senders = [Sender(200)]
        all_finish(senders)
        with Reader(device.fd, account):
            settled(senders, account)
        first = events("nodrop_wake")[0]
        equal(first["dev"], NAME, "device")
        equal(first["held"], "2/4", "packets left when the consumer wakes it")
        equal(len(events("nodrop_wake")), counters()["wakes"], "events and the counter")
        seen_ = counters()
        equal(len(events("nodrop_kick")), seen_["kicks"] + seen_["kicks_here"], "kicks")
        check(events("nodrop_kick")[0]["cpu"] in ("0", "1"), "no CPU of this machine")


def case_guard() -> None:
    """The guard trips after guard_ms, by the kernel's clock, and not much earlier."""
    with traced(), parameter("guard_ms", f"{1000 * GUARD_S:.0f}"), tun(5):
        check(Sender(3000).finished(10), "the sender hangs")
        times = {event.name: event.time for event in reversed(seen())}
        waited = times["nodrop_guard"] - times["nodrop_stop"]
        check(GUARD_S / 2 < waited < time_limit(GUARD_S), f"it trips after {waited:.3f} s")
        equal(len(events("nodrop_guard")), 1, "events")
        tripped = events("nodrop_guard")[0]
        equal((tripped["dev"], tripped["held"], tripped["max"]), (NAME, "4/4", "5"), "fields")
        equal(counters()["guard_trips"], 1, "the counter")


@each("fq_codel", "htb")
def case_kick_of_an_empty_qdisc(qdisc: object) -> None:
    """After a wake a qdisc is run if it holds packets, or may not be bypassed when it is empty."""
    with parameter("guard_ms", "0"), tun(500, qdisc=str(qdisc)) as device, udp() as sock:
        # The last one that fits stops the txq.
        for _ in range(4):
            sock.sendto(b"", (THERE, 9))
        equal(counters()["stops"], 1, "stops")
        equal(sum(1 for _ in packets(device.fd)), 4, "packets")
        equal((counters()["wakes"], sum(kicks())), (1, int(qdisc == "htb")), "wakes and kicks")


class Mover:
    """A sender and a reader, each on its CPU; they take turns."""

    def __init__(self, fd: int, sock: socket.socket) -> None:
        self._fd, self._sock = fd, sock
        grow(sock)

    def send(self, cpu: int, mark: bytes) -> None:
        """Send from a CPU packets that end with a byte."""
        with one_cpu(cpu):
            for _ in range(BURST):
                self._sock.sendto(bytes(100) + mark, (THERE, 9))

    def read(self, cpu: int, packets: int = 1) -> bytes:
        """Read on a CPU; return the last packet."""
        with one_cpu(cpu):
            for _ in range(packets):
                last = os.read(self._fd, 65536)
        return last

    def settle(self, cpu: int, mark: bytes) -> None:
        """Read until a packet with this mark comes."""
        while not self.read(cpu).endswith(mark):
            pass

    def stop(self, cpu: int) -> None:
        """Read until the txq is stopped."""
        while (found := counters())["stops"] == found["wakes"]:
            self.read(cpu)


def kicks() -> tuple[int, int]:
    """Return how often the reader kicked, and how often it ran the qdisc itself."""
    found = counters()
    return found["kicks"], found["kicks_here"]


def check_phase(mover: Mover, mark: bytes, sender: int, reader: int) -> None:
    """Fail unless kicks go to the sender's CPU, and the qdisc runs there."""
    mover.send(sender, mark)
    mover.settle(reader, mark)
    before = kicks()
    forget()
    mover.read(reader, MEASURED)
    found = seen()
    remote, here = (now - then for now, then in zip(kicks(), before, strict=True))
    targets = [event.fields["cpu"] for event in found if event.name == "nodrop_kick"]
    runs = [event.cpu for event in found if event.name == "nodrop_stop"]
    text = (
        f"sender on {sender}, reader on {reader}: {remote} kicks and {here} here, "
        f"{targets.count(str(sender))} of {len(targets)} for the sender's CPU, "
        f"{runs.count(sender)} of {len(runs)} stops on it"
    )
    print(f"# {text}", flush=True)
    check(len(targets) > 10, text)
    check(targets.count(str(sender)) >= SHARE * len(targets), text)
    check(runs.count(sender) >= SHARE * len(runs), text)
    check((here if sender == reader else remote) >= SHARE * (remote + here), text)


def case_kicks_of_two_cpus() -> None:
    """The reader joins the sender; the sender leaves; the reader joins it again, and leaves."""
    if "PREEMPT_RT" in os.uname().version:
        raise Skip("on PREEMPT_RT the reader always runs the qdisc")
    if len(CPUS) < 2:
        raise Skip("2 CPUs are needed")
    with (
        tracing("nodrop"),
        parameter("guard_ms", "0"),
        tun(500, qdisc="fq_codel") as device,
        udp() as sock,
    ):
        if not Path(f"/sys/class/net/{NAME}/queues/tx-0/xps_cpus").exists():
            raise Skip("without CONFIG_XPS packets do not name the sender's CPU")
        mover = Mover(device.fd, sock)
        phases = ((0, 1), (0, 0), (1, 0), (1, 1), (1, 0))
        for number, (sender, reader) in enumerate(phases):
            check_phase(mover, bytes([number]), CPUS[sender], CPUS[reader])
            mover.stop(CPUS[reader])


run()
