#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The kernel replies to others while devices hold replies that their readers do not take.

ndslow0, ndslow1   their readers request replies, and read none
ndother            requests replies from the same CPU, and reads them

The kernel sends its replies from one socket for each CPU and protocol. A few hundred of them use up
its send buffer, if they stay charged to it while they wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from devices import DEEP
from harness import check, each, equal, run, soon
from replies import BEYOND4, BEYOND6, REPLIES, peer
from traffic import one_cpu, packets

from guestlib.environment import setting
from guestlib.namespaces import namespaces
from guestlib.netstats import driver_counters, qdisc_counters
from guestlib.process import ip_batch
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_TUN, TunDevice
from proof.sweep.topology import replace_qdisc

SLOW = ("ndslow0", "ndslow1")
OTHER = "ndother"
MANY = 1000
"""Replies, several times more than a send buffer holds."""
SETTINGS = {
    "ipv6/conf/all/disable_ipv6": "0",
    "ipv4/ip_forward": "1",
    "ipv6/conf/all/forwarding": "1",
    # Errors to one receiver are not rationed.
    "ipv4/icmp_ratemask": "0",
    "ipv6/icmp/ratelimit": "0",
}


@contextmanager
def device(name: str, number: int, qdisc: str, netns: str | None = None) -> Iterator[TunDevice]:
    """Create a TUN device with a ring of 5 slots, with the addresses of peer(number)."""
    one = peer(number)
    flags = IFF_TUN | (IFF_MULTI_QUEUE if qdisc == "mq" else 0)
    with TunDevice(name, flags) as made:
        if netns:
            ip_batch([f"link set dev {name} netns {netns}"])
        else:
            replace_qdisc(name, qdisc)
        ip_batch(
            [
                f"link set dev {name} txqueuelen 5",
                f"address add {one.kernel4} peer {one.own4} dev {name}",
                f"address add {one.kernel6}/64 dev {name} nodad",
                f"link set dev {name} up",
            ],
            netns=netns,
        )
        os.set_blocking(made.fd, False)
        yield made


@contextmanager
def narrow_link() -> Iterator[None]:
    """Create a route to BEYOND whose MTU is small."""
    ip_batch(["link add ndnarrow type dummy", "link set dev ndnarrow up"])
    try:
        ip_batch([f"route add {at} dev ndnarrow mtu 1280" for at in (BEYOND4, BEYOND6)])
        yield
    finally:
        ip_batch(["link delete dev ndnarrow"])


def serve_others(kinds: Iterable[str], qdisc: str, netns: str | None = None) -> None:
    """Have the slow devices request many replies, and the other device one after another."""
    with ExitStack() as stack:
        for name, value in SETTINGS.items():
            stack.enter_context(setting(Path("/proc/sys/net", name), value))
        stack.enter_context(narrow_link())
        stack.enter_context(one_cpu())
        slow = [
            stack.enter_context(device(name, 10 + at, qdisc, netns)) for at, name in enumerate(SLOW)
        ]
        other = stack.enter_context(device(OTHER, 20, DEEP))
        for kind in kinds:
            request, is_reply = REPLIES[kind]
            for number in range(MANY):
                for at, made in enumerate(slow):
                    os.write(made.fd, request(peer(10 + at), number))
            for number in range(20):
                os.write(other.fd, request(peer(20), number))
                soon(
                    lambda is_reply=is_reply: any(map(is_reply, packets(other.fd))),
                    lambda kind=kind, number=number: f"{kind}: no reply after {number} of 20",
                )
        for name in SLOW:
            found = driver_counters(name, netns=netns)
            check(found["tx0_stops"] > 0, f"{name} was never stopped")
            equal(found["tx0_guard_trips"], 0, "guard trips")
            waiting = qdisc_counters(name, netns=netns).queued
            check(waiting > 0, f"no reply waits in the qdisc of {name}")


def case_all_kinds() -> None:
    serve_others(REPLIES, "pfifo limit 20000")


@each("fq_codel", "cake", "htb", "mq")
def case_qdisc(qdisc: str) -> None:
    serve_others(("echo", "reset"), qdisc)


def case_another_namespace() -> None:
    """All network namespaces share the sockets, and a device may move to another one."""
    with namespaces("ndslow"):
        serve_others(("echo", "reset"), "fq_codel", "ndslow")


run()
