#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""A tap without a reader, or with a closed file, keeps no socket charged."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness import check, equal, soon
from tap_sockets import (
    MOST,
    TapFlow,
    counters,
    drain,
    drops,
    flows,
    parameter,
    run_taps,
    segmenting,
    sockets,
)
from traffic import one_cpu

from guestlib.environment import time_limit
from guestlib.process import ip_batch
from guestlib.sockets import charged
from guestlib.taps import MAC, NAME, frame, guest_tap, rx_dropped, topology
from guestlib.vhost_client import RX, EmptyVhost

MANY = 16
REFERENCES = Path("/sys/module/tap/refcnt")
GUARD_MS = "1000"
ROUNDS = 100


def fill(flow: TapFlow) -> None:
    """Send until every socket would block; guard_ms starts only then, however long that took."""
    with parameter("guard_ms", "0"):
        flow.fill()
        check(all(map(charged, flow.sockets)), "a socket is not charged")


def released(flow: TapFlow, most_s: float) -> None:
    """Fail unless all sockets are uncharged within time_limit(most_s)."""
    started = time.monotonic()
    flow.uncharged()
    took = time.monotonic() - started
    check(took < time_limit(most_s), f"sockets were blocked for {took:.1f} s")


def case_no_reader() -> None:
    with flows(MANY, guard_ms=GUARD_MS) as (tap, (flow,)):
        before, made = rx_dropped(), flow.sockets
        fill(flow)
        queued = sum(flow.sent)
        released(flow, 3)
        equal(counters()["guard_trips"], 1, "guard trips")
        equal(counters()["ring"], queued, "packets in the ring")
        # Now frames are not charged, and the ring takes txqueuelen more.
        flow.fill(most=queued + 1500)
        lost = sum(flow.sent) - queued - 500
        soon(lambda: drops() == {"drop_guard": lost}, lambda: f"{drops()}, not {lost}")
        equal(rx_dropped() - before, lost, "packets counted as dropped")
        # The reader returns: it gets all queued packets, and senders block again.
        equal(flow.read(tap.fd), queued + 500, "queued packets")
        again = TapFlow(made)
        with parameter("guard_ms", "0"):
            again.fill()
            equal(sum(again.sent), queued, "packets until all sockets block again")
            again.read_all(tap.fd, sum(again.sent))
        again.uncharged()
        equal(rx_dropped() - before, lost, "packets dropped after the reader came back")
        # The reader stalls again.
        last = TapFlow(made)
        fill(last)
        released(last, 6)
        equal(counters()["guard_trips"], 2, "guard trips")


def case_reader_takes_one_frame_while_the_guard_trips() -> None:
    """The remaining frames are uncharged once the reader has stalled again."""
    with flows() as (tap, _), sockets(MANY, "sib") as made, one_cpu():
        for _ in range(ROUNDS):
            flow, before = TapFlow(made), counters()["guard_trips"]
            fill(flow)
            with parameter("guard_ms", GUARD_MS):
                # The guard wakes the socket half way; this process preempts it.
                with at_once():
                    check(bool(poll_out(made[0])), "no socket may send again")
                    os.read(tap.fd, 2048)
                    in_time = sum(map(charged, made)) > 0
                released(flow, 3)
            if in_time:
                equal(counters()["guard_trips"] - before, 2, "guard trips")
                return
            drain(tap.fd)
        check(False, "the guard always finished before the reader read")


def case_ring_is_resized_between_two_samples() -> None:
    """An active reader may be at the same slot as before; frames queued since are charged."""
    with flows(1, guard_ms=GUARD_MS) as (tap, (flow,)):
        fill(flow)
        for slots in range(501, 504):
            released(flow, 3)
            drain(tap.fd)
            fill(flow)
            ip_batch([f"link set {NAME} txqueuelen {slots}"])
        released(flow, 3)
        drain(tap.fd)


@contextmanager
def at_once() -> Iterator[None]:
    """Preempt all other tasks on this CPU for the block."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def poll_out(sock: socket.socket) -> list[tuple[int, int]]:
    """Wait until a socket can send."""
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return poll.poll(1000 * time_limit(10))


def case_most_charged_frames() -> None:
    """Charged segments use all their slots; some are read, but their slots not yet returned."""
    with flows(100, size=6000, guard_ms="0") as (tap, (flow,)):
        segmenting(flow.sockets)
        flow.fill(most=100)
        soon(lambda: drops().get("drop_full", 0) > 0, lambda: f"{counters()}")
        for _ in range(8):
            os.read(tap.fd, 2048)
        with parameter("guard_ms", GUARD_MS):
            released(flow, 5)
        check(counters()["guard_trips"] >= 1, "the guard did not trip")
        equal(counters()["ring"], MOST - 8, "packets in the ring")
        equal(drain(tap.fd), MOST - 8, "packets read")


def case_vhost_puts_frames_back() -> None:
    """The guard also uncharges frames that vhost-net had taken from the ring."""
    with flows(1) as (tap, (flow,)):
        vhost = EmptyVhost()
        flow.fill(most=20)
        # It takes a batch of all, and has no buffer to write them to.
        equal(vhost.backend(RX, tap.fd), 0, "errno of the backend")
        soon(lambda: counters()["ring"] == 0, "vhost-net does not take the frames")
        with parameter("guard_ms", "1"):
            # Longer than the guard's intervals while the ring is empty.
            time.sleep(3)
        equal(counters()["guard_trips"], 0, "guard trips with an empty ring")
        with parameter("guard_ms", GUARD_MS):
            vhost.close()
            equal(counters()["ring"], 20, "frames in the ring")
            released(flow, 4)


def case_writer_is_woken() -> None:
    """A blocking write() to a tap returns when the guard uncharges its frames."""
    with parameter("guard_ms", GUARD_MS), topology("guest"), guest_tap(sndbuf=20_000) as writer:
        os.set_blocking(writer.fd, True)
        thread = threading.Thread(
            target=lambda: [os.write(writer.fd, frame(number, 1000)) for number in range(40)],
            daemon=True,
        )
        thread.start()
        thread.join(time_limit(10))
        check(not thread.is_alive(), "the writer is not woken")


def case_closed_sockets() -> None:
    """The guard frees closed sockets, and a closed guest's own socket."""
    with parameter("guard_ms", "0"), topology("guest"):
        before = int(REFERENCES.read_text())
        with guest_tap() as writer:
            os.set_blocking(writer.fd, False)
            for number in range(50):
                os.write(writer.fd, frame(number, 1000))
            soon(lambda: counters()["ring"] == 50, "packets are missing")
        check(int(REFERENCES.read_text()) > before, "the guest's socket is not referenced")
        with parameter("guard_ms", GUARD_MS):
            soon(
                lambda: int(REFERENCES.read_text()) == before,
                "a ring without a reader keeps the guest's socket",
            )


def case_file_is_closed() -> None:
    with flows(MANY, guard_ms="0") as (tap, (flow,)):
        fill(flow)
        os.close(os.dup(tap.fd))
        check(all(map(charged, flow.sockets)), "a socket is not charged")
        tap.close()
        released(flow, 1)


def case_rings_of_each_others_frames() -> None:
    """Both guests end while each one's ring has frames of the other's socket."""
    with parameter("guard_ms", "0"), ExitStack() as stack:
        before = int(REFERENCES.read_text())
        tap = stack.enter_context(topology("guest"))
        with guest_tap() as other:
            there = frame(1, 1000)
            mac = bytes.fromhex(MAC.replace(":", ""))
            back = there[6:12] + mac + there[12:]
            for _ in range(20):
                os.write(other.fd, there)
                os.write(tap.fd, back)
            soon(lambda: counters().get("ring", 20) == 20, "packets are missing")
        stack.close()
        soon(lambda: int(REFERENCES.read_text()) == before, "two sockets are leaked")


def case_device_is_deleted() -> None:
    """The file stays open: its frames can still be read, and the guard uncharges them."""
    with flows(MANY, guard_ms=GUARD_MS) as (tap, (flow,)):
        fill(flow)
        check(sum(flow.sent) > 0, "no packet was sent")
        ip_batch([f"link delete dev {NAME}"])
        released(flow, 3)
        flow.read_all(tap.fd, sum(flow.sent))
        flow.in_order()


run_taps()
