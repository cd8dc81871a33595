# SPDX-License-Identifier: GPL-2.0-only
"""A guest as the host sees it, for UML and QEMU alike.

The host writes a plan, the shell file from which the guest's init takes its command. Three channels
come back: the kernel log, the command's output and its exit status. Each is a socket, which is read
until the guest has ended. A boot that proves nothing is repeated once.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from types import TracebackType
from typing import Any, Self, cast

from lab.kernel import Artifacts
from lab.splats import Splat, find_all
from nodrop import proc
from nodrop.errors import NodropError
from nodrop.proc import TAIL_LINES, kill_group

START_LINE = "lab: the command starts"
"""The guest's init writes this to the kernel log; all lines before it are from the boot."""
POWER_OFF_LINE = "reboot: Power down"
"""The last line of the kernel log if the guest has powered off."""
BOOT_S = 60.0
"""Time limit until the command starts, seconds; an idle machine needs half a second."""
POWER_OFF_S = 60.0
"""Time limit from the command's end until the kernel has powered off, seconds."""
GRACE_S = 5.0
"""Time limit from power-off until the guest's process ends, seconds."""
BLOCKED_S = 3.0
"""How long a guest that is about to be killed may print its blocked tasks (sysrq-w), seconds."""
BLOCKED_LINES = 200
"""Lines of that output to keep."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""A guest's search path for programs."""
REPEATS = "LAB_REPEATS"
"""Environment variable: a file that gets an entry for each guest that is booted again."""
ESCAPE = b"\x1d"
"""Ctrl-]: kills the guest at any time. All other keys go to the guest, Ctrl-C included."""
_END_OF_INPUT = b"\x04"
_FAILED = re.compile(r"^(\[ *[\d.]+\])? *not ok ", re.MULTILINE)
"""A failed test in the command's output, or a failed KUnit test in the kernel log."""

_log = logging.getLogger(__name__)


class GuestTimeout(NodropError):
    """The guest exceeded its time limit and was killed."""


class GuestDied(NodropError):
    """The guest's kernel ended before it reported the command's exit status."""


class DiedAtBoot(GuestDied):
    """The guest's kernel ended before the command started, so the command is not the cause."""


class BootTimeout(GuestTimeout):
    """The command did not start within BOOT_S."""


class StuckAtPowerOff(GuestTimeout):
    """The command ended, but the guest did not; the kernel log has no splat.

    Attributes:
        run: the result so far.
    """

    def __init__(self, message: str, hint: str, run: GuestRun) -> None:
        super().__init__(message, hint)
        self.run = run


@dataclass(frozen=True)
class GuestRun:
    """The result of a guest.

    Attributes:
        status: the command's exit status (128 + signal if a signal ended it).
        log: the kernel log.
        output: the command's stdout and stderr.
        splats: splats in the kernel log.
        seconds: wall-clock time from the kernel's start to its end.
        foreign: splats about parts of the kernel that nodrop does not touch.
    """

    status: int
    log: str
    output: str
    splats: tuple[Splat, ...]
    seconds: float
    foreign: tuple[Splat, ...] = ()


class Terminal:
    """The terminal of stdin and stdout in raw mode; a context manager that restores it."""

    def __init__(self) -> None:
        self._keys = sys.stdin.fileno()
        self._screen = sys.stdout.fileno()
        self._before: list[Any] = []
        self._handler: Any = None
        self.on_resize: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._keys)
        self._handler = signal.signal(signal.SIGWINCH, lambda *_: self.on_resize())
        tty.setraw(self._keys)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGWINCH, self._handler)
        termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)

    def fileno(self) -> int:
        return self._keys

    @property
    def size(self) -> tuple[int, int]:
        """Lines and columns; 24 and 80 if the terminal does not report them."""
        try:
            columns, lines = os.get_terminal_size(self._keys)
        except OSError:
            columns, lines = 0, 0
        return lines or 24, columns or 80

    def take(self) -> bytes:
        """Return the keys that were pressed; Ctrl-D if the terminal has hung up.

        Raises:
            KeyboardInterrupt: the escape key is among them.
        """
        try:
            data = os.read(self._keys, 4096)
        except OSError:  # EIO: the other side is closed
            data = b""
        if ESCAPE in data:
            raise KeyboardInterrupt
        return data or _END_OF_INPUT

    def show(self, data: bytes) -> None:
        """Write the guest's output without translation."""
        while data:
            data = data[os.write(self._screen, data) :]


def environment(
    out: Path, artifacts: Artifacts | None, extra: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the command's environment: the same Python with the same packages as here.

    Args:
        out: LAB_OUT.
        artifacts: LAB_MODULES and LAB_BIN; None: neither.
        extra: overrides the above.
    """
    path = f"{Path(sys.executable).parent}:{PATH}"
    env = {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", "LAB_OUT": str(out)}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    if artifacts:
        env["LAB_MODULES"] = str(artifacts.modules)
        env["LAB_BIN"] = str(artifacts.bin)
    return env | dict(extra or {})


def plan(
    argv: Sequence[str | os.PathLike[str]], env: Mapping[str, str], terminal: Terminal | None
) -> str:
    """Return the plan's text; the environment must have LAB_OUT."""
    words = " ".join(shlex.quote(os.fspath(word)) for word in argv)
    lines = [f"LAB_CWD={shlex.quote(str(Path.cwd()))}"]
    if terminal:
        lines.append("LAB_TTY='rows {} cols {}'".format(*terminal.size))
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    return "\n".join([*lines, f"set -- {words}", ""])


def results_directory(out: Path) -> Path:
    """Create the guest's results directory if it is missing; return its absolute path."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        return out.resolve()
    except FileExistsError as error:
        raise NodropError(f"{out} is not a directory, so no results can go there.") from error
    except OSError as error:
        raise NodropError(f"Cannot create the directory {out}: {error.strerror}.") from error


@contextmanager
def socket_pairs() -> Iterator[tuple[list[socket.socket], list[socket.socket]]]:
    """Yield the host's and the guest's ends of three connected pairs of sockets.

    They are sockets, not pipes, because UML both reads and writes its consoles.
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
    """Start a guest with its ends of the channels; kill its process group at the end.

    Args:
        request: written to its standard input.
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
        with suppress(BrokenPipeError):  # it has died already; its log says why
            process.stdin.write(request)
            process.stdin.close()
        yield process
    finally:
        kill_group(process)


def collect(
    process: subprocess.Popen[bytes],
    ends: Sequence[socket.socket],
    *,
    timeout: float | None,
    slow: float = 1.0,
    on_line: Callable[[str], None] | None = None,
    keep: Path | None = None,
    terminal: Terminal | None = None,
) -> GuestRun:
    """Read a guest's channels until it has ended.

    Args:
        process: the guest; the caller kills what is left of it.
        ends: the host's ends of the channels: log, output, status.
        timeout: seconds from now; None: no limit. LAB_DEADLINE also applies.
        slow: factor by which boot and power-off may be slower than on a real CPU.
        on_line: called with each line of the command's output as it arrives.
        keep: a file that gets the kernel log in any case.
        terminal: connected to the command, both ways, without translation.

    Raises:
        BootTimeout: the command did not start within BOOT_S, which ended before the timeout.
        StuckAtPowerOff: the command ended, the guest did not.
        GuestTimeout: the timeout passed; the hint ends with the last lines of the log (of the
            boot only if the command had not started) and of output not given to ``on_line``.
        GuestDied: the kernel ended before it reported the command's exit status.
    """
    started = time.monotonic()
    guest = _Guest(ends, on_line, slow)
    if terminal:
        terminal.on_resize = lambda: _send(ends[2], b"%d %d\n" % terminal.size)
    try:
        ended = guest.pump(process, proc.at_most(timeout), terminal)
    finally:
        if keep:
            keep.write_text("\n".join([*guest.log.lines, ""]), encoding="utf-8")
    reports = find_all(guest.log.lines)
    splats = tuple(splat for splat in reports if not splat.foreign)
    seconds = time.monotonic() - started
    summary = guest.summary(splats)
    status = guest.status.lines
    has_status = bool(status) and status[-1].strip().isdigit()
    late = f"The guest did not end within {guest.limit_s:.0f} s and was stopped."
    if not ended and not (has_status and not splats):
        raise (BootTimeout if guest.boot_timed_out else GuestTimeout)(late, summary)
    if not has_status:
        kind = GuestDied if guest.command_started else DiedAtBoot
        raise kind("The guest's kernel ended before the command did.", summary)
    run = GuestRun(
        status=int(status[-1]),
        log="\n".join(guest.log.lines),
        output="\n".join(guest.output.lines),
        splats=splats,
        seconds=seconds,
        foreign=tuple(splat for splat in reports if splat.foreign),
    )
    if not ended:
        raise StuckAtPowerOff(late, summary, run)
    return run


def _send(end: socket.socket, data: bytes) -> None:
    """Send data to a guest that may have ended already."""
    with suppress(OSError):
        end.sendall(data)


@dataclass
class _Stream:
    """One channel from the guest, split into lines."""

    lines: list[str] = field(default_factory=list)
    rest: bytes = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, self.rest = (self.rest + data).split(b"\n")
        fresh = [line.decode(errors="replace").rstrip("\r") for line in whole]
        self.lines += fresh
        return fresh

    def end(self) -> list[str]:
        return self.feed(b"\n") if self.rest else []


class _Guest:
    """What has been read from a guest so far, and how much time it has left."""

    def __init__(
        self,
        ends: Sequence[socket.socket],
        on_line: Callable[[str], None] | None,
        slow: float,
    ) -> None:
        self.log, self.output, self.status = _Stream(), _Stream(), _Stream()
        self.command_started = False
        self.boot_timed_out = False
        self.limit_s = 0.0
        self._ends = ends
        self._on_line = on_line
        self._slow = slow
        self._recent: deque[str] = deque(maxlen=TAIL_LINES)
        self._printed: deque[str] = deque(maxlen=TAIL_LINES)

    def summary(self, splats: Sequence[Splat]) -> str:
        """Return the splats, and the last lines of the kernel log and of the output."""
        parts = [f"Kernel splat: {splat.line}" for splat in splats]
        for what, lines in (("log", self._recent), ("output", self._printed)):
            if lines:
                parts += [f"Last lines of its {what}:", *lines]
        return "\n".join(parts)

    def pump(
        self, process: subprocess.Popen[bytes], limit_s: float | None, terminal: Terminal | None
    ) -> bool:
        """Read the channels until the guest has ended; return False if the time limit came first.

        A guest that has powered off counts as ended even if its process has not: on a busy host
        UML was seen to hang there.
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
                left = (end if self.command_started else min(end, boot_end)) - now
                if left <= 0 and not asked:
                    self.limit_s = now - started
                    self.boot_timed_out = not self.command_started and boot_end <= end
                if left <= 0 and (asked or not self.command_started or self._powered_off()):
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
                if START_LINE in line:
                    self.command_started = True
                    self._recent.clear()
            elif stream is self.output:
                (self._on_line or self._printed.append)(line)

    def _powered_off(self) -> bool:
        return bool(self.status.lines) and any(POWER_OFF_LINE in line for line in self._recent)

    def _ask_for_blocked_tasks(self) -> float:
        """Make the guest print its blocked tasks; return how long to wait for them, seconds."""
        self._recent = deque(self._recent, maxlen=TAIL_LINES + BLOCKED_LINES)
        _send(self._ends[2], b"blocked\n")
        return BLOCKED_S * self._slow


def boot_with_retry(boot: Callable[[], GuestRun], *, observed: bool = False) -> GuestRun:
    """Return a guest's result; boot it a second time if the first boot proved nothing.

    That is so if the kernel died before the command started or did not start it in time, and if
    the command succeeded but the kernel did not power off, without a splat. A command that
    failed is not repeated, nor is one whose output or kernel log shows a failed test.

    Args:
        observed: the caller has already seen the command's output, so it must not run again.

    Raises:
        GuestDied, GuestTimeout: the second boot failed as well.
    """
    try:
        return boot()
    except StuckAtPowerOff as error:
        if error.run.status or _FAILED.search(f"{error.run.output}\n{error.run.log}"):
            return error.run
        _record(error, "is not booted again" if observed else "is booted again")
        if observed:
            return error.run
    except (DiedAtBoot, BootTimeout) as error:
        _record(error, "is booted again")
    return boot()


def _record(error: NodropError, what: str) -> None:
    words = f"A guest {what} ({type(error).__name__}): {error.message}"
    _log.warning("%s\n%s", words, error.hint)
    if path := os.environ.get(REPEATS):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{words} {test}\n{error.hint}\n\n")
