#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Charged frames are queued beyond a full tap ring, and their sockets block.

A guest with a full ring that it does not read does not keep the kernel from replying to others. The
kernel sends ICMP from one socket per CPU. With the stock driver a few hundred replies that a guest
does not read use up that socket's send buffer.
"""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, suppress

from harness import check, each, equal, soon
from tap_sockets import (
    OTHER,
    SIBLING,
    TapFlow,
    counters,
    drain,
    drops,
    flows,
    other_guest,
    parameter,
    run_taps,
    segmenting,
    sockets,
)
from traffic import one_cpu, packets

from guestlib.namespaces import inside
from guestlib.netstats import mac_of
from guestlib.packets import ethernet, numbered_echo, swapped
from guestlib.sockets import charged
from guestlib.taps import (
    ADDRESS,
    GUEST_MAC,
    INT_MAX,
    MAC,
    frame,
    guest_tap,
    rx_dropped,
    topology,
)

MANY = 16
"""Sockets; their send buffers exceed a ring of 500 slots."""


@each("veth", "sibling", "ipvlan-l2", "ipvlan-l3")
def case_ingress_path(path: str) -> None:
    with flows(MANY, path=path) as (tap, (flow,)):
        before = rx_dropped()
        flow.fill()
        check(counters()["over"] > 0, "no frame found the ring full")
        # Reading some frames lets some sockets send.
        for _ in range(20):
            flow.read(tap.fd, most=50)
            flow.fill()
        flow.read_all(tap.fd, sum(flow.sent))
        flow.in_order()
        equal(flow.count(), sum(flow.sent), "packets that arrived")
        equal(rx_dropped() - before, 0, "packets dropped")
        equal(drops(), {}, "causes of drops")
        equal(counters()["ring"], 0, "packets in the ring")
        flow.uncharged()


def case_no_wmem_surcharge() -> None:
    """A frame's charge is the same in an empty ring and in a full one."""
    with flows(1, MANY, 1) as (tap, (first, many, last)):
        first.send_one(0)
        many.fill()
        last.send_one(0)
        check(counters()["over"] > 0, "the ring never exceeded txqueuelen")
        equal(charged(last.sockets[0]), charged(first.sockets[0]), "bytes charged for a frame")
        drain(tap.fd)
        for flow in (first, many, last):
            flow.uncharged()


@each("with_a_limit", "without_a_limit")
def case_guest(kind: str) -> None:
    """A guest's own frames are charged to its send buffer, unless that has no limit."""
    sndbuf = 0 if kind == "with_a_limit" else INT_MAX
    with topology("guest") as tap, guest_tap(sndbuf=sndbuf) as writer:
        before = rx_dropped()
        os.set_blocking(writer.fd, False)
        sent = 0
        while sent < 2000:
            try:
                os.write(writer.fd, frame(sent, 1000))
            except BlockingIOError:
                break
            sent += 1
        came = 0

        def all_came() -> bool:
            nonlocal came
            came += drain(tap.fd)
            return came + rx_dropped() - before == sent

        soon(all_came, lambda: f"{came} of {sent} arrived, {rx_dropped() - before} dropped")
        if sndbuf == INT_MAX:
            equal(drops(), {"drop_unheld": sent - came}, "causes of drops")
            check(came < sent == 2000, "a guest without a limit was blocked")
        else:
            equal(came, sent, "packets that arrived")
            check(sent < 2000, "the guest was not blocked")


def case_server_with_a_slow_and_a_fast_guest() -> None:
    """A server's socket blocks when its own frames to the slow guest fill its send buffer."""
    with (
        flows(MANY, guard_ms="0") as (_, (slow,)),
        other_guest() as other,
        sockets(1, "sib", connected=False) as made,
    ):
        slow.fill()
        server, slow_sent, fast_sent = TapFlow(made), 0, 0
        while server.send_one(0, ADDRESS):
            slow_sent += 1
            fast_sent += server.send_one(0, OTHER)
            server.read_all(other.fd, fast_sent)
        equal(slow_sent, max(slow.sent), "packets to the slow guest until it blocks")
        check(fast_sent >= slow_sent - 1, f"only {fast_sent} packets to the fast one")
        equal(drops(), {}, "causes of drops")


def mirror(fd: int) -> None:
    """Send TCP frames back to their sender, so that both ends of a connection are there."""
    for one in list(packets(fd)):
        if back := swapped(one, 14):
            os.write(fd, back)


def case_acks_are_not_charged() -> None:
    """ACKs of several segments at once overflow the ring."""
    with topology("sibling", ring=1) as tap, ExitStack() as stack:
        with inside("sib"):
            listener = stack.enter_context(socket.create_server((SIBLING, 0)))
            client = stack.enter_context(socket.socket())
        listener.setblocking(False)
        client.setblocking(False)
        client.connect_ex((ADDRESS, listener.getsockname()[1]))
        servers: list[socket.socket] = []

        def accepted() -> bool:
            mirror(tap.fd)
            with suppress(BlockingIOError):
                servers.append(stack.enter_context(listener.accept()[0]))
            return bool(servers)

        soon(accepted, "no connection is established")
        servers[0].setblocking(False)
        before = drops()

        def dropped() -> bool:
            with suppress(BlockingIOError):
                client.send(bytes(1 << 16))
            with suppress(BlockingIOError):
                servers[0].recv(1 << 20)
            mirror(tap.fd)
            return drops() != before

        soon(dropped, lambda: f"{counters()}")
        equal(set(drops()), {"drop_unheld"}, "causes of drops")


def case_segments_are_counted() -> None:
    """All segments of a dropped frame are counted; the stock driver counts only the first."""
    with parameter("nodrop", "0"), flows(1, ring=5, size=2000) as (_, (flow,)):
        segmenting(flow.sockets)
        before = rx_dropped()
        flow.send_one(0)
        soon(lambda: rx_dropped() - before == 15, lambda: f"{rx_dropped() - before} counted")
        equal(drops(), {"drop_off": 1, "drop_rest": 14}, "causes of drops")


def send_requests(fd: int, mac: str, source: str, count: int) -> None:
    """Send echo requests from a guest to the senders' kernel."""
    head = ethernet(mac_of("sib0", "sib"), bytes.fromhex(mac.replace(":", "")))
    for number in range(count):
        os.write(fd, head + numbered_echo(source, SIBLING, number))


def is_reply(frame: bytes) -> bool:
    return frame[34:36] == b"\0\0"


def case_echo_replies() -> None:
    with flows(MANY, guard_ms="0") as (tap, (flow,)), other_guest() as other, one_cpu():
        send_requests(tap.fd, MAC, ADDRESS, 300)
        for number in range(20):
            send_requests(other.fd, GUEST_MAC, OTHER, 1)
            soon(
                lambda: any(map(is_reply, packets(other.fd))),
                lambda number=number: f"the other guest gets no reply after {number}",
            )
        flow.fill()
        send_requests(tap.fd, MAC, ADDRESS, 100)
        came = 0

        def all_came() -> bool:
            nonlocal came
            came += sum(is_reply(frame) for frame in packets(tap.fd) if not flow.add(frame))
            return flow.count() == sum(flow.sent) and came >= 400

        soon(all_came, lambda: f"{came} of 400, and {flow.count()} of {flow.sent} others")
        equal(drops(), {}, "causes of drops")


run_taps()
