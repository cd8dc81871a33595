# SPDX-License-Identifier: GPL-2.0-only
"""What comes out of a guest, whatever it runs on, and how it is heard.

Three channels leave a guest: the kernel's log, the command's output, the command's exit
status. Each is a socket, read until the guest has gone.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from nodrop.errors import NodropError
from nodrop.lab.splats import Splat, find_splats
from nodrop.proc import GRACE_S, TAIL_LINES

POWERED_OFF = "reboot: Power down"
"""The last line of a guest's log, when all went well."""


class GuestTimeout(NodropError):
    """The guest did not end within its time and was killed."""


class GuestDied(NodropError):
    """The guest's kernel ended without telling the command's exit status."""


@dataclass(frozen=True)
class GuestRun:
    """What came out of a guest.

    Attributes:
        status: the command's exit status (128 + signal when a signal ended it).
        log: the kernel's log.
        output: what the command printed, both streams.
        splats: the kernel's complaints about itself in its log.
        seconds: wall-clock time from the start of the kernel to its end.
    """

    status: int
    log: str
    output: str
    splats: tuple[Splat, ...]
    seconds: float


@dataclass
class _Stream:
    """One channel from the guest, cut into lines."""

    lines: list[str] = field(default_factory=list)
    rest: bytes = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, self.rest = (self.rest + data).split(b"\n")
        fresh = [line.decode(errors="replace").rstrip("\r") for line in whole]
        self.lines += fresh
        return fresh

    def end(self) -> list[str]:
        return self.feed(b"\n") if self.rest else []


@contextmanager
def channels() -> Iterator[tuple[list[socket.socket], list[socket.socket]]]:
    """Give three connected pairs of sockets: the host's ends, the guest's ends.

    Sockets and not pipes, because a console of User-Mode Linux is both read and written.
    """
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(3)]
        for pair in pairs:
            for end in pair:
                stack.callback(end.close)
        yield [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def hear(
    process: subprocess.Popen[bytes],
    ends: Sequence[socket.socket],
    *,
    timeout: float,
    on_line: Callable[[str], None] | None = None,
    keep: Path | None = None,
) -> GuestRun:
    """Read a guest's channels until it has gone.

    Args:
        process: the guest; the caller kills what is left of it.
        ends: the host's ends of the channels: log, output, status.
        timeout: seconds from now.
        on_line: called with each line of the command's output as it appears.
        keep: a file that gets the kernel's log, however the guest ended.

    Raises:
        GuestTimeout: the time was over; the text ends with the last lines of the log.
        GuestDied: the kernel ended before it told the command's exit status.
    """
    log, output, status = _Stream(), _Stream(), _Stream()
    recent: deque[str] = deque(maxlen=TAIL_LINES)
    started = time.monotonic()

    def deliver(stream: _Stream, lines: list[str]) -> None:
        if stream is not status:
            recent.extend(lines)
        if stream is output and on_line:
            for line in lines:
                on_line(line)

    def powered_off() -> bool:
        return any(POWERED_OFF in line for line in recent) and bool(status.lines)

    streams = dict(zip(ends, (log, output, status), strict=True))
    ended = _pump(process, streams, deliver, started + timeout, powered_off)
    seconds = time.monotonic() - started
    if keep:
        keep.write_text("\n".join([*log.lines, ""]), encoding="utf-8")
    splats = find_splats(log.lines)
    if not ended:
        raise GuestTimeout(
            f"The guest did not end within {timeout:.0f} s and was stopped.",
            _story(recent, splats),
        )
    if not status.lines or not status.lines[-1].strip().isdigit():
        raise GuestDied("The guest's kernel ended before the command did.", _story(recent, splats))
    return GuestRun(
        status=int(status.lines[-1]),
        log="\n".join(log.lines),
        output="\n".join(output.lines),
        splats=splats,
        seconds=seconds,
    )


def _story(recent: Sequence[str], splats: Sequence[Splat]) -> str:
    head = [f"The kernel complained: {splat.line}" for splat in splats]
    return "\n".join([*head, "Last lines of its log:", *recent])


def _pump(
    process: subprocess.Popen[bytes],
    streams: Mapping[socket.socket, _Stream],
    deliver: Callable[[_Stream, list[str]], None],
    deadline: float,
    powered_off: Callable[[], bool],
) -> bool:
    """Read the channels until the guest is gone; False when the time was over first.

    A guest that has powered off and whose program does not end is as good as gone: on a busy
    host User-Mode Linux was seen to hang there.
    """
    with DefaultSelector() as selector:
        for end, stream in streams.items():
            selector.register(end, EVENT_READ, (end, stream))
        while selector.get_map():
            if powered_off():
                deadline = min(deadline, time.monotonic() + GRACE_S)
            left = deadline - time.monotonic()
            if left <= 0:
                return powered_off()
            for key, _ in selector.select(min(left, 1.0)):
                end, stream = key.data
                data = end.recv(65536)
                if not data:
                    selector.unregister(end)
                deliver(stream, stream.feed(data) if data else stream.end())
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        return powered_off()
    return True
