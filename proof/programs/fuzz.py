#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The fuzzer finds packets that are never read, and none if the queue is read."""

from __future__ import annotations

from harness import Skip, check, equal, parameter, run

from guestlib.environment import SLOW
from guestlib.tundev import IFF_NO_PI, IFF_TAP
from lab.variant import Variant
from proof.fuzz.execute import Execution, execute
from proof.fuzz.generate import NET_HDR, NONBLOCK, RDWR
from proof.fuzz.program import Call, Data, Program, Ref

NAME = "fz0"
QUEUE, UDP, VHOST = Ref(0), Ref(2), Ref(7)
NOT_READ = (
    Call("open_tun", (RDWR | NONBLOCK,)),
    Call("tunsetiff", (QUEUE, NAME, IFF_TAP | IFF_NO_PI)),
    Call("udp"),
    Call("txqueuelen", (UDP, NAME, 2)),
    Call("address", (UDP, NAME, 2, 0x0100090A)),
    Call("netmask", (UDP, NAME, 2, 0xFFFFFF)),
    Call("link_flags", (UDP, NAME, 0x81)),
    Call("open_vhost", (RDWR,)),
    Call("owner", (VHOST, 1)),
    Call("set_features", (VHOST, NET_HDR)),
    Call("set_mem_table", (VHOST, 1)),
    Call("vring_state", (VHOST, 0x10, 0, 64)),
    Call("vring_state", (VHOST, 0x12, 0, 0)),
    Call("set_vring_addr", (VHOST, 0, 0, 0)),
    Call("set_backend", (VHOST, 0, QUEUE)),
    Call("sendto", (UDP, Data("zero", 60), 0, 0x40), times=200),
)
"""vhost-net has the queue, but no buffers."""
SENDS = len(NOT_READ) - 1


def ran(program: Program) -> Execution:
    """Run a program in which only the last call may fail; return its outcome.

    Calls are interrupted after 20 ms, and a busy machine may take longer to start vhost's worker.
    """
    for _ in range(50):
        result = execute(program, settle=True)
        if all(value >= 0 for value in result.results[:SENDS]):
            return result
    raise AssertionError(f"results: {result.results}")


def case_stuck_packets_are_found() -> None:
    if SLOW > 1:
        raise Skip("too slow here")
    with parameter("guard_ms", "0"):
        equal(ran(NOT_READ).pending, 0, "bytes pending although the queue is read")
        stuck = ran((*NOT_READ, Call("close", (QUEUE,)))).pending
        check(stuck > 0, "no bytes pending although the queue is not read")


run(vhost=Variant.NODROP)
