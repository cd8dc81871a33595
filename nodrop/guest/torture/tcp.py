# SPDX-License-Identifier: GPL-2.0-only
"""A TCP connection through the device and back: readers send its packets back, addresses swapped.

What comes back from the peer's address is for the other end, which is a socket of the same
process. So every byte that one end sends must come to the other, whatever is lost on the way.
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import termios
import time
from collections.abc import Callable
from contextlib import suppress

from nodrop.guest.torture.crew import Asked
from nodrop.guest.torture.shared import Field, Memory, State, Wrong

FIRST_PORT = 5000
TCP = 6
SOURCE, DESTINATION = slice(12, 16), slice(16, 20)
"""Where the addresses are in an IPv4 header."""
PATTERN = bytes(range(251)) * 1024
_PERIOD = 251
_CHUNK = 16 * 1024
_WAIT_MS = 20
_PAUSE_S = 0.0005
_TCP_RTO_MAX_MS, _RTO_MAX_MS = 44, 1000
"""So that a flow that was starved goes on soon; since Linux 6.15."""
_NO_LINGER = struct.pack("ii", 1, 0)
"""An end that is closed sends a reset, and nothing later on."""


def swap(packet: memoryview) -> bool:
    """Make a TCP packet, from its IPv4 header on, one for the other end; False: it is another."""
    if len(packet) < 40 or packet[0] != 0x45 or packet[9] != TCP:
        return False
    source = bytes(packet[SOURCE])
    packet[SOURCE] = packet[DESTINATION]
    packet[DESTINATION] = source
    return True


def expected(at: int, length: int) -> bytes:
    """Return what stands in the stream from a byte on; length at most _CHUNK."""
    first = at % _PERIOD
    return PATTERN[first : first + length]


class _Ends:
    """Both ends of the connection."""

    def __init__(self, here: str, there: str, port: int) -> None:
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((here, port))
        self.listener.listen(1)
        self.client = self._prepare(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        self.client.connect_ex((there, port))
        self.server: socket.socket | None = None
        self.sent = 0
        self.received = 0

    @staticmethod
    def _prepare(sock: socket.socket) -> socket.socket:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, _RTO_MAX_MS)
        return sock

    def close(self) -> None:
        for sock in (self.client, self.server, self.listener):
            if sock:
                sock.close()

    @property
    def quiet(self) -> bool:
        """Whether all has come, and both ends know it."""
        if self.server is None or self.received != self.sent:
            return False
        return not any(_unacknowledged(sock) for sock in (self.client, self.server))

    def accept(self) -> None:
        sock, _ = self.listener.accept()
        self.server = self._prepare(sock)

    def send(self) -> None:
        self.sent += self.client.send(expected(self.sent, _CHUNK))

    def receive(self) -> bool:
        """Take what came; whether it is what was sent."""
        assert self.server
        data = self.server.recv(_CHUNK)
        if not data:
            raise OSError("the connection ended")
        right = data == expected(self.received, len(data))
        self.received += len(data)
        return right


def _unacknowledged(sock: socket.socket) -> int:
    return int(struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0])


def connection(memory: Memory, here: str, there: str) -> Callable[[int, Asked], None]:
    """Return what a process is to run: a connection that sends as much as it can."""

    def run(slot: int, asked: Asked) -> None:
        ends = _Ends(here, there, FIRST_PORT + slot)
        try:
            while not asked.stop:
                if memory.pause and ends.quiet:
                    memory.set(slot, Field.STATE, State.PAUSED)
                    time.sleep(_PAUSE_S)
                    continue
                memory.set(slot, Field.STATE, State.BUSY)
                _turn(ends, memory, slot)
        finally:
            ends.close()

    return run


def _turn(ends: _Ends, memory: Memory, slot: int) -> None:
    """Do what can be done now, or wait for it for a while."""
    poll = select.poll()
    poll.register(ends.server or ends.listener, select.POLLIN)
    if ends.server and not memory.pause:
        poll.register(ends.client, select.POLLOUT)
    for fd, _ in poll.poll(_WAIT_MS):
        if fd == ends.listener.fileno():
            ends.accept()
        elif fd == ends.client.fileno():
            ends.send()
        elif not ends.receive():
            memory.set(slot, Field.WHERE, ends.received)
            memory.set(slot, Field.WRONG, Wrong.CONTENT)
        else:
            # Bytes; its packets are counted elsewhere.
            memory.set(slot, Field.COUNT, ends.received)
