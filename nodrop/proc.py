# SPDX-License-Identifier: GPL-2.0-only
"""Run other programs with a timeout, and leave none of their children behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from nodrop import deadline
from nodrop.errors import NodropError

TAIL_LINES = 30
KILLED_S = 60.0
"""Seconds that a killed process may take to exit; its CPU may be busy."""
POLL_S = 0.1
ASK_TIMEOUT_S = 20.0
_ADMIN = ("/usr/sbin", "/sbin")
"""Directories of insmod, rmmod and dkms, which 'su' without '-' leaves out of PATH."""


@dataclass(frozen=True)
class Completed:
    """The exit status of a program, and its output (both streams)."""

    status: int
    output: str
    seconds: float


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a session leader, and reap the leader."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(KILLED_S)
    except subprocess.TimeoutExpired as error:
        raise NodropError(
            f"Process {process.pid} was killed but does not exit.",
            f"It hangs in the kernel; see /proc/{process.pid}/stack.",
        ) from error


def tail(text: str, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a text."""
    return "\n".join(text.splitlines()[-lines:])


def _path(env: Mapping[str, str]) -> str:
    """Return PATH with the directories of administration programs."""
    parts = [part for part in env.get("PATH", "/usr/bin:/bin").split(":") if part]
    return ":".join([*parts, *(part for part in _ADMIN if part not in parts)])


def require(program: str, package: str) -> str:
    """Return the path of a program.

    Raises:
        NodropError: it is not installed; the hint names its Debian package.
    """
    path = shutil.which(program, path=_path(os.environ))
    if path is None:
        raise NodropError(
            f"The program {program} is missing.",
            f"apt install {package}",
        )
    return path


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    given = os.environ if env is None else env
    return {**given, "PATH": _path(given)}


def ask(*argv: str, timeout: float = ASK_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run a program that changes nothing, and return its status and both streams.

    Raises:
        NodropError: it cannot be run, or did not end within ``timeout`` seconds, or within the
            deadline.
    """
    limit = deadline.at_most(timeout)
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            env=_environment(None),
            timeout=limit,
            check=False,
        )
    except OSError as error:
        raise NodropError(f"{argv[0]} cannot be run: {error.strerror}.") from error
    except subprocess.TimeoutExpired as error:
        raise NodropError(f"{argv[0]} did not end within {limit:.0f} s.") from error


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    keep: int | None = None,
    late: int | None = None,
) -> Completed:
    """Run a program in its own session and wait for it.

    The program and its children are killed on a timeout, and on an exception in the caller, such
    as Ctrl-C. The program is also killed if the caller is killed.

    Args:
        timeout: seconds; the deadline of the whole run applies, too.
        env: the whole environment; None: this process's own.
        log: a file that gets the output as well.
        on_line: called for each line of output as it appears.
        keep: number of lines of output to keep in memory; None: all.
        late: exit status to return on a timeout; None: raise an error.

    Raises:
        NodropError: it cannot be started, or timed out.
    """
    command = [os.fspath(word) for word in argv]
    started = time.monotonic()
    limit = deadline.at_most(timeout) or 0.0
    lines: deque[str] = deque(maxlen=keep)
    wrapper = [require("setpriv", "util-linux"), "--pdeathsig", "KILL", "--"]
    require(command[0], command[0])
    process = subprocess.Popen(
        [*wrapper, *command],
        cwd=cwd,
        env=_environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )

    def take(raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip("\r\n")
        lines.append(line)
        if sink:
            sink.write(line + "\n")
        if on_line:
            on_line(line)

    sink = log.open("w", encoding="utf-8") if log else None
    try:
        _pump(process, started + limit, take)
        status = process.wait(max(started + limit - time.monotonic(), 1.0))
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        if late is None:
            raise NodropError(
                f"{Path(command[0]).name} did not end within {limit:.0f} s and was stopped.",
                "Last lines:\n" + tail("\n".join(lines)) if lines else "",
            ) from error
        status = late
    finally:
        kill_group(process)
        if process.stdout:
            process.stdout.close()
        if sink:
            sink.close()
    return Completed(status, "\n".join(lines), time.monotonic() - started)


def run_whole(
    argv: Sequence[str | os.PathLike[str]], *, on_line: Callable[[str], None] | None = None
) -> Completed:
    """Run a program that must not be interrupted, since it would leave the machine damaged.

    There is no timeout. The program ignores INT, HUP and TERM, and an exception in the caller,
    such as Ctrl-C, is raised after the program has ended. It continues if the caller is killed.

    Args:
        on_line: called for each line of output as it appears.

    Raises:
        NodropError: it is missing.
    """
    program = require(os.fspath(argv[0]), os.fspath(argv[0]))
    shell = ["/bin/sh", "-c", "trap '' INT HUP TERM; exec \"$@\"", "sh", program]
    started = time.monotonic()
    caught: BaseException | None = None
    lines: list[str] = []
    # Not a pipe: if this process died, the program would get SIGPIPE.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*shell, *argv[1:]],
            env=_environment(None),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        seen = 0
        while True:
            try:
                ended = process.poll() is not None
                data = os.pread(output.fileno(), 1 << 20, seen)
                *whole, rest = data.split(b"\n")
                if ended and rest and len(data) < 1 << 20:
                    whole.append(rest)
                for raw in whole:
                    seen += len(raw) + 1
                    lines.append(raw.decode(errors="replace").rstrip("\r"))
                    if on_line:
                        on_line(lines[-1])
                if ended and not whole:
                    break
                time.sleep(0 if ended else POLL_S)
            except BaseException as error:  # raised below, after the program has ended
                caught = error
    if caught:
        raise caught
    return Completed(process.returncode, "\n".join(lines), time.monotonic() - started)


def _pump(process: subprocess.Popen[bytes], end: float, take: Callable[[bytes], None]) -> None:
    """Call ``take`` with each line of output until the stream ends."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    rest = b""
    with DefaultSelector() as selector:
        selector.register(fd, EVENT_READ)
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if not selector.select(min(left, 1.0)):
                if process.poll() is not None:
                    break
                continue
            data = os.read(fd, 65536)
            if not data:
                break
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                take(line)
    if rest:
        take(rest)
