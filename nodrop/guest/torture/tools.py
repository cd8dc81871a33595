# SPDX-License-Identifier: GPL-2.0-only
"""What all rounds share: processes, connections to the kernel, counts of tracepoints."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from nodrop.guest import bpf
from nodrop.guest.command import in_netns, ip_batch, netns_path, tool
from nodrop.guest.environment import Environment
from nodrop.guest.freed import counted, freed
from nodrop.guest.netns import namespaces
from nodrop.guest.rtnetlink import Rtnetlink
from nodrop.guest.sweep import uring
from nodrop.guest.torture.crew import Crew
from nodrop.guest.torture.programs import read
from nodrop.guest.torture.senders import send
from nodrop.guest.torture.victim import NAME

AWAY = "ndaway"
VETH, PEER = "ndtveth0", "ndtveth1"


class Programs:
    """BPF programs that events attach.

    Args:
        stack: what keeps them.
    """

    def __init__(self, stack: ExitStack) -> None:
        def load(value: int) -> int:
            return stack.enter_context(bpf.program(bpf.SOCKET_FILTER, bpf.answer(value)))

        self.none = load(0)
        """Steers to the first queue; as a filter it lets no packet pass."""
        self.steer = (self.none, load(1), load(2))


@dataclass(frozen=True)
class Tools:
    """What all rounds share.

    Attributes:
        away: a connection to a namespace that the device can be moved to and back.
        away_fd, here_fd: files that stand for that namespace and for this one.
        freed: counts the IPv4 packets that the kernel threw away.
        full: the same, for want of room in a ring.
        uring: whether there is io_uring.
    """

    crew: Crew
    environment: Environment
    net: Rtnetlink
    away: Rtnetlink
    away_fd: int
    here_fd: int
    programs: Programs
    freed: Callable[[], int]
    full: Callable[[], int]
    uring: bool


@contextmanager
def all_tools() -> Iterator[Tools]:
    """Make them for the block.

    Raises:
        GuestError, OSError: this guest cannot have them.
    """
    with ExitStack() as stack:
        stack.enter_context(namespaces(AWAY))
        # Nobody but us sends there, either.
        quiet = "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done"
        tool(in_netns(AWAY, ["sh", "-c", quiet]))
        away_fd = os.open(netns_path(AWAY), os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, away_fd)
        here_fd = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, here_fd)
        crew = Crew({"send": send, "read": read}, behind=True)
        stack.callback(crew.close)
        yield Tools(
            crew=crew,
            environment=Environment.from_environ(),
            net=stack.enter_context(Rtnetlink()),
            away=stack.enter_context(Rtnetlink(netns_path(AWAY))),
            away_fd=away_fd,
            here_fd=here_fd,
            programs=Programs(stack),
            freed=stack.enter_context(freed()),
            full=stack.enter_context(freed("FULL_RING")),
            uring=uring.available(),
        )


def queued_packets() -> AbstractContextManager[Callable[[], int]]:
    """Count what the network core gives to the device's qdisc."""
    return counted("queued", "net/net_dev_queue", f'name == "{NAME}"')


@contextmanager
def redirected() -> Iterator[None]:
    """What is sent to VETH goes into the device, by XDP."""
    ip_batch(
        [
            f"link add {VETH} type veth peer name {PEER}",
            f"link set dev {VETH} up",
            f"link set dev {PEER} up",
        ]
    )
    try:
        with bpf.xdp(PEER, bpf.redirect(socket.if_nametoindex(NAME))):
            yield
    finally:
        ip_batch([f"link delete dev {VETH}"])
