# SPDX-License-Identifier: GPL-2.0-only
"""What comes out of a guest, whatever it runs on, and how it is heard.

Three channels leave a guest: the kernel's log, the command's output, the command's exit
status. Each is a socket, read until the guest has gone.
"""

from __future__ import annotations

import math
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from nodrop.errors import NodropError
from nodrop.lab.splats import Splat, find_all
from nodrop.lab.terminal import Terminal
from nodrop.proc import GRACE_S, TAIL_LINES

STARTS = "lab: the command starts"
"""What a guest's first process writes into the kernel's log; what is before is the boot."""
POWERED_OFF = "reboot: Power down"
"""The last line of a guest's log, when all went well."""


class GuestTimeout(NodropError):
    """The guest did not end within its time and was killed."""


class GuestDied(NodropError):
    """The guest's kernel ended without telling the command's exit status."""


class DiedAtBoot(GuestDied):
    """It did so before the command began: what the guest was to do is not to blame."""


@dataclass(frozen=True)
class GuestRun:
    """What came out of a guest.

    Attributes:
        status: the command's exit status (128 + signal when a signal ended it).
        log: the kernel's log.
        output: what the command printed, both streams.
        splats: the kernel's complaints about itself in its log.
        seconds: wall-clock time from the start of the kernel to its end.
        foreign: complaints about parts of the kernel that nodrop does not touch.
    """

    status: int
    log: str
    output: str
    splats: tuple[Splat, ...]
    seconds: float
    foreign: tuple[Splat, ...] = ()


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


def results_folder(out: Path) -> Path:
    """Make the folder whose files survive, unless it is there; return its path from the root.

    Raises:
        NodropError: it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        return out.resolve()
    except FileExistsError as error:
        raise NodropError(f"{out} is no folder, so no results can go there.") from error
    except OSError as error:
        raise NodropError(f"The folder {out} cannot be made: {error.strerror}.") from error


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
    timeout: float | None,
    on_line: Callable[[str], None] | None = None,
    on_log: Callable[[str], None] | None = None,
    keep: Path | None = None,
    terminal: Terminal | None = None,
) -> GuestRun:
    """Read a guest's channels until it has gone.

    Args:
        process: the guest; the caller kills what is left of it.
        ends: the host's ends of the channels: log, output, status.
        timeout: seconds from now; None: no limit.
        on_line: called with each line of the command's output as it appears.
        on_log: likewise with each line of the kernel's log.
        keep: a file that gets the kernel's log, however the guest ended.
        terminal: its keys go to the command, and the command's output to it, as they are.

    Raises:
        GuestTimeout: the time was over; the text ends with the last lines of the log, those of
            the boot only when the command had not started, and of what ``on_line`` did not get.
        GuestDied: the kernel ended before it told the command's exit status.
    """
    log, output, status = _Stream(), _Stream(), _Stream()
    recent: deque[str] = deque(maxlen=TAIL_LINES)
    said: deque[str] = deque(maxlen=TAIL_LINES)
    started = time.monotonic()

    def deliver(stream: _Stream, lines: list[str]) -> None:
        if stream is log:
            for line in lines:
                if on_log:
                    on_log(line)
                recent.append(line)
                if STARTS in line:
                    recent.clear()
        elif stream is output:
            for line in lines:
                (on_line or said.append)(line)

    def powered_off() -> bool:
        return any(POWERED_OFF in line for line in recent) and bool(status.lines)

    def story() -> str:
        parts = [f"The kernel complained: {splat.line}" for splat in splats]
        for what, lines in (("log", recent), ("output", said)):
            if lines:
                parts += [f"Last lines of its {what}:", *lines]
        return "\n".join(parts)

    streams = dict(zip(ends, (log, output, status), strict=True))
    deadline = math.inf if timeout is None else started + timeout
    if terminal:
        terminal.on_resize = lambda: tell_size(terminal, ends[2])
    ended = _pump(process, streams, deliver, deadline, powered_off, terminal, ends[1])
    seconds = time.monotonic() - started
    if keep:
        keep.write_text("\n".join([*log.lines, ""]), encoding="utf-8")
    complaints = find_all(log.lines)
    splats = tuple(splat for splat in complaints if not splat.foreign)
    if not ended:
        raise GuestTimeout(
            f"The guest did not end within {timeout or 0:.0f} s and was stopped.",
            story(),
        )
    if not status.lines or not status.lines[-1].strip().isdigit():
        began = any(STARTS in line for line in log.lines)
        kind = GuestDied if began else DiedAtBoot
        raise kind("The guest's kernel ended before the command did.", story())
    return GuestRun(
        status=int(status.lines[-1]),
        log="\n".join(log.lines),
        output="\n".join(output.lines),
        splats=splats,
        seconds=seconds,
        foreign=tuple(splat for splat in complaints if splat.foreign),
    )


def tell_size(terminal: Terminal, end: socket.socket) -> None:
    """Tell a guest's first process how large the terminal is."""
    with suppress(OSError):
        end.sendall(b"%d %d\n" % terminal.size)


def _pump(
    process: subprocess.Popen[bytes],
    streams: Mapping[socket.socket, _Stream],
    deliver: Callable[[_Stream, list[str]], None],
    deadline: float,
    powered_off: Callable[[], bool],
    terminal: Terminal | None,
    keyboard: socket.socket,
) -> bool:
    """Read the channels until the guest is gone; False when the time was over first.

    A guest that has powered off and whose program does not end is as good as gone: on a busy
    host User-Mode Linux was seen to hang there.
    """
    open_ends = set(streams)
    with DefaultSelector() as selector:
        for end, stream in streams.items():
            selector.register(end, EVENT_READ, (end, stream))
        if terminal:
            selector.register(terminal, EVENT_READ, (keyboard, None))
        while open_ends:
            if powered_off():
                deadline = min(deadline, time.monotonic() + GRACE_S)
            left = deadline - time.monotonic()
            if left <= 0:
                return powered_off()
            for key, _ in selector.select(min(left, 1.0)):
                end, stream = key.data
                if terminal and stream is None:
                    _press(terminal, end)
                    continue
                data = end.recv(65536)
                if not data:
                    selector.unregister(end)
                    open_ends.discard(end)
                elif terminal and end is keyboard:
                    terminal.show(data)
                deliver(stream, stream.feed(data) if data else stream.end())
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        return powered_off()
    return True


def _press(terminal: Terminal, keyboard: socket.socket) -> None:
    """Give keys to the guest; one that has gone needs none."""
    data = terminal.take()
    with suppress(OSError):
        keyboard.sendall(data)
