# SPDX-License-Identifier: GPL-2.0-only
"""What waits in a process's sockets, with real ones on loopback."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from nodrop.host.sockets import Waiting, waiting

PAYLOAD = bytes(1000)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def found() -> Waiting:
    result = waiting(os.getpid())
    assert result is not None
    return result


def test_udp(stack: ExitStack) -> None:
    receiver = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
    receiver.bind(("127.0.0.1", 0))
    sender = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
    before = found()
    for _ in range(20):
        sender.sendto(PAYLOAD, receiver.getsockname())
    assert found().received >= before.received + 20 * len(PAYLOAD)
    for _ in range(20):
        receiver.recv(len(PAYLOAD))
    assert found() == before


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_tcp(family: socket.AddressFamily, stack: ExitStack) -> None:
    address = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    try:
        listener = stack.enter_context(socket.create_server((address, 0), family=family))
    except OSError as error:
        pytest.skip(f"no {family.name}: {error}")
    sender = stack.enter_context(socket.socket(family))
    sender.connect(listener.getsockname())
    receiver = stack.enter_context(listener.accept()[0])
    before = found()
    sender.setblocking(False)
    sent = 0
    with suppress(BlockingIOError):
        while True:
            sent += sender.send(PAYLOAD * 100)
    now = found()
    assert now.received > before.received
    assert now.unsent > before.unsent
    assert now.received + now.unsent - before.received - before.unsent <= sent
    # Asking changed nothing: the sender still does not block.
    assert not sender.getblocking()
    while sent:
        sent -= len(receiver.recv(sent))
    assert found() == before


def test_others_have_no_queue(stack: ExitStack) -> None:
    before = found()
    first, second = socket.socketpair()
    stack.enter_context(first)
    stack.enter_context(second)
    first.send(PAYLOAD)
    stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    assert found() == before


def test_process_that_cannot_be_asked() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert waiting(child) is None
