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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import cast

from lab.splats import Splat, find_all
from lab.terminal import Terminal
from nodrop import deadline
from nodrop.errors import NodropError
from nodrop.proc import TAIL_LINES, kill_group

STARTS = "lab: the command starts"
"""What a guest's first process writes into the kernel's log; what is before is the boot."""
POWERED_OFF = "reboot: Power down"
"""The last line of a guest's log, when all went well."""
BOOT_S = 60.0
"""Until the command starts; an idle machine needs half a second."""
POWER_OFF_S = 60.0
"""From the command's end until the kernel has powered off."""
GRACE_S = 5.0
"""For a guest that has powered off, until its process ends."""
BLOCKED_S = 3.0
"""For a guest that is about to be killed to print its blocked tasks (sysrq-w)."""
BLOCKED_LINES = 200
"""How many of those lines are kept."""


class GuestTimeout(NodropError):
    """The guest did not end within its time and was killed."""


class GuestDied(NodropError):
    """The guest's kernel ended without telling the command's exit status."""


class DiedAtBoot(GuestDied):
    """It did so before the command began: what the guest was to do is not to blame."""


class NeverAnswered(GuestTimeout):
    """Its command did not start within BOOT_S."""


class StuckAtPowerOff(GuestTimeout):
    """The command had ended; the kernel did not, and complained about nothing.

    Attributes:
        run: what came out until then.
    """

    def __init__(self, message: str, hint: str, run: GuestRun) -> None:
        super().__init__(message, hint)
        self.run = run


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


@contextmanager
def start(
    command: Sequence[str], ends: Sequence[socket.socket], request: bytes = b""
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a guest with its ends of the channels; kill what is left of it in the end.

    Args:
        request: what it reads from its standard input.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=ends[0].fileno(),
        stderr=ends[0].fileno(),
        pass_fds=[end.fileno() for end in ends],
        start_new_session=True,
    )
    try:
        assert process.stdin is not None
        for end in ends:
            end.close()
        with suppress(BrokenPipeError):  # it died already; its log tells why
            process.stdin.write(request)
            process.stdin.close()
        yield process
    finally:
        kill_group(process)


def hear(
    process: subprocess.Popen[bytes],
    ends: Sequence[socket.socket],
    *,
    timeout: float | None,
    slow: float = 1.0,
    on_line: Callable[[str], None] | None = None,
    keep: Path | None = None,
    terminal: Terminal | None = None,
) -> GuestRun:
    """Read a guest's channels until it is gone.

    Args:
        process: the guest; the caller kills what is left of it.
        ends: the host's ends of the channels: log, output, status.
        timeout: seconds from now; None: no limit. The deadline of the whole run counts, too.
        slow: how many times longer than on a real CPU boot and power-off may take.
        on_line: called with each line of the command's output as it appears.
        keep: a file that gets the kernel's log, however the guest ended.
        terminal: its keys go to the command, and the command's output to it, as they are.

    Raises:
        NeverAnswered: the command did not start within BOOT_S, with time left.
        StuckAtPowerOff: the command ended, the guest did not.
        GuestTimeout: the time was over; the text ends with the last lines of the log, those of
            the boot only when the command had not started, and of what ``on_line`` did not get.
        GuestDied: the kernel ended before it reported the command's exit status.
    """
    started = time.monotonic()
    guest = _Guest(ends, on_line, slow)
    if terminal:
        terminal.on_resize = lambda: _send(ends[2], b"%d %d\n" % terminal.size)
    try:
        ended = guest.pump(process, deadline.at_most(timeout), terminal)
    finally:
        if keep:
            keep.write_text("\n".join([*guest.log.lines, ""]), encoding="utf-8")
    complaints = find_all(guest.log.lines)
    splats = tuple(splat for splat in complaints if not splat.foreign)
    seconds = time.monotonic() - started
    story = guest.story(splats)
    status = guest.status.lines
    answered = bool(status) and status[-1].strip().isdigit()
    late = f"The guest did not end within {guest.limit_s:.0f} s and was stopped."
    if not ended and not (answered and not splats):
        raise (NeverAnswered if guest.silent else GuestTimeout)(late, story)
    if not answered:
        kind = GuestDied if guest.began else DiedAtBoot
        raise kind("The guest's kernel ended before the command did.", story)
    run = GuestRun(
        status=int(status[-1]),
        log="\n".join(guest.log.lines),
        output="\n".join(guest.output.lines),
        splats=splats,
        seconds=seconds,
        foreign=tuple(splat for splat in complaints if splat.foreign),
    )
    if not ended:
        raise StuckAtPowerOff(late, story, run)
    return run


def _send(end: socket.socket, data: bytes) -> None:
    """Send something into a guest; one that has gone needs nothing."""
    with suppress(OSError):
        end.sendall(data)


class _Guest:
    """What has been read from a guest so far, and how long it may still take."""

    def __init__(
        self,
        ends: Sequence[socket.socket],
        on_line: Callable[[str], None] | None,
        slow: float,
    ) -> None:
        self.log, self.output, self.status = _Stream(), _Stream(), _Stream()
        self.began = False
        self.silent = False
        self.limit_s = 0.0
        self._ends = ends
        self._on_line = on_line
        self._slow = slow
        self._recent: deque[str] = deque(maxlen=TAIL_LINES)
        self._printed: deque[str] = deque(maxlen=TAIL_LINES)

    def story(self, splats: Sequence[Splat]) -> str:
        """Return the kernel's complaints and the last lines of its log and of the output."""
        parts = [f"The kernel complained: {splat.line}" for splat in splats]
        for what, lines in (("log", self._recent), ("output", self._printed)):
            if lines:
                parts += [f"Last lines of its {what}:", *lines]
        return "\n".join(parts)

    def pump(
        self, process: subprocess.Popen[bytes], limit_s: float | None, terminal: Terminal | None
    ) -> bool:
        """Read the channels until the guest is gone; return False when the time was over first.

        A guest that has powered off and whose process does not end is as good as gone: on a
        busy host User-Mode Linux was seen to hang there.
        """
        started = time.monotonic()
        end = math.inf if limit_s is None else started + limit_s
        boot_end = math.inf if limit_s is None else started + BOOT_S * self._slow
        asked = False
        streams = dict(zip(self._ends, (self.log, self.output, self.status), strict=True))
        with DefaultSelector() as selector:
            for channel, stream in streams.items():
                selector.register(channel, EVENT_READ, stream)
            if terminal:
                selector.register(terminal, EVENT_READ, None)
            while streams:
                now = time.monotonic()
                if self._powered_off():
                    end = min(end, now + GRACE_S)
                elif self.status.lines and limit_s is not None:
                    end = min(end, now + POWER_OFF_S * self._slow)
                left = (end if self.began else min(end, boot_end)) - now
                if left <= 0 and not asked:
                    self.limit_s = now - started
                    self.silent = not self.began and boot_end <= end
                if left <= 0 and (asked or not self.began or self._powered_off()):
                    return self._powered_off()
                if left <= 0:
                    asked, end = True, now + self._ask_for_blocked_tasks()
                for key, _ in selector.select(min(max(left, 0.0), 1.0)):
                    if key.data is None:
                        assert terminal
                        _send(self._ends[1], terminal.take())
                        continue
                    channel = cast(socket.socket, key.fileobj)
                    data = channel.recv(65536)
                    if not data:
                        selector.unregister(channel)
                        del streams[channel]
                    elif terminal and channel is self._ends[1]:
                        terminal.show(data)
                    self._deliver(key.data, key.data.feed(data) if data else key.data.end())
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return self._powered_off()
        return True

    def _deliver(self, stream: _Stream, lines: list[str]) -> None:
        for line in lines:
            if stream is self.log:
                self._recent.append(line)
                if STARTS in line:
                    self.began = True
                    self._recent.clear()
            elif stream is self.output:
                (self._on_line or self._printed.append)(line)

    def _powered_off(self) -> bool:
        return bool(self.status.lines) and any(POWERED_OFF in line for line in self._recent)

    def _ask_for_blocked_tasks(self) -> float:
        """Have the guest print its blocked tasks; return how long to wait for them, seconds."""
        self._recent = deque(self._recent, maxlen=TAIL_LINES + BLOCKED_LINES)
        _send(self._ends[2], b"blocked\n")
        return BLOCKED_S * self._slow
