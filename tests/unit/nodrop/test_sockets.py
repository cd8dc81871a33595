# SPDX-License-Identifier: GPL-2.0-only
"""What waits in a process's sockets, with real ones on loopback."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from nodrop.host.sockets import Waiting, waiting

PAYLOAD = bytes(1000)
LIMIT_S = 20.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def until(met: Callable[[Waiting], bool]) -> Waiting:
    """Return what waits in this process's sockets as soon as a condition is met."""
    end = time.monotonic() + LIMIT_S
    while True:
        found = waiting(os.getpid())
        assert found is not None
        if met(found) or time.monotonic() > end:
            return found


def wait_until_empty() -> None:
    """Wait until nothing is in the sockets: those of other tests are closed."""
    assert until(lambda found: found == Waiting()) == Waiting()


def test_udp(stack: ExitStack) -> None:
    wait_until_empty()
    receiver = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
    receiver.bind(("127.0.0.1", 0))
    sender = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
    for _ in range(20):
        sender.sendto(PAYLOAD, receiver.getsockname())
    found = until(lambda found: found.unread >= 20 * len(PAYLOAD))
    assert found.unread >= 20 * len(PAYLOAD)
    assert (found.unsent, found.unacknowledged) == (0, 0)
    for _ in range(20):
        receiver.recv(len(PAYLOAD))
    wait_until_empty()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_tcp(family: socket.AddressFamily, stack: ExitStack) -> None:
    wait_until_empty()
    address = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    try:
        listener = stack.enter_context(socket.create_server((address, 0), family=family))
    except OSError as error:
        pytest.skip(f"no {family.name}: {error}")
    sender = stack.enter_context(socket.socket(family))
    sender.connect(listener.getsockname())
    # A connection that is not accepted yet counts in the listener's row, in place of bytes.
    wait_until_empty()
    receiver = stack.enter_context(listener.accept()[0])
    sender.setblocking(False)
    sent = 0
    with suppress(BlockingIOError):
        while True:
            sent += sender.send(PAYLOAD * 100)
    found = until(lambda found: 0 < found.unread == sent - found.unacknowledged)
    assert 0 < found.unread == sent - found.unacknowledged
    assert found.unacknowledged > 0
    assert found.unsent == 0
    while sent:
        sent -= len(receiver.recv(sent))
    wait_until_empty()


def test_least() -> None:
    assert Waiting(1, 5, 3).least(Waiting(2, 4, 3)) == Waiting(1, 4, 3)
    assert sum([Waiting(1, 2, 3), Waiting(4, 5, 6)], Waiting()) == Waiting(5, 7, 9)


def test_process_that_ended() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert waiting(child) is None


def test_virtual_machine(tmp_path: Path) -> None:
    (tmp_path / "7/fd").mkdir(parents=True)
    assert waiting(7, tmp_path) == Waiting()
    (tmp_path / "7/fd/3").symlink_to("anon_inode:kvm-vm")
    assert waiting(7, tmp_path) is None
