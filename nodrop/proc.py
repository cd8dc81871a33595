# SPDX-License-Identifier: GPL-2.0-only
"""Run other programs with a timeout, leave no child of theirs behind, and quote words for them."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from nodrop.errors import NodropError

deadline: float | None = None
"""When every wait ends, seconds of CLOCK_MONOTONIC; None: each has its own limit only."""
TAIL_LINES = 30
KILLED_S = 60.0
"""Seconds that a killed process may take to exit; its CPU may be busy."""
POLL_S = 0.1
ASK_TIMEOUT_S = 20.0
_ADMIN = ("/usr/sbin", "/sbin")
"""Directories of insmod, rmmod and dkms, which 'su' without '-' leaves out of PATH."""


def at_most(seconds: float | None) -> float | None:
    """Return ``seconds``, or the time left until the deadline if that is less.

    Args:
        seconds: the limit; None: none.

    Returns:
        Seconds, at least 0; None with neither a limit nor a deadline.
    """
    if deadline is None:
        return seconds
    left = max(deadline - time.monotonic(), 0.0)
    return left if seconds is None else min(seconds, left)


def quote(word: str) -> str:
    """Return a word quoted for a shell; unprintable characters become ``$'\\x1b'``."""
    if word.isprintable():
        return shlex.quote(word)
    parts = []
    for byte in word.encode(errors="surrogateescape"):
        plain = 0x20 <= byte < 0x7F and byte not in b"'\\"
        parts.append(chr(byte) if plain else f"\\x{byte:02x}")
    return f"$'{''.join(parts)}'"


def join(*words: str) -> str:
    return " ".join(map(quote, words))


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
    return "\n".join(text.splitlines()[-lines:])


def _path(env: Mapping[str, str]) -> str:
    """Return PATH with the directories of administration programs."""
    parts = [part for part in (env.get("PATH") or "/usr/bin:/bin").split(":") if part]
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


def killed_with_us(argv: Sequence[str]) -> list[str]:
    """Return the command that runs a program, which is killed if this process ends."""
    return [require("setpriv", "util-linux"), "--pdeathsig", "KILL", "--", *argv]


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    given = os.environ if env is None else env
    return {**given, "PATH": _path(given)}


def ask(
    *argv: str, timeout: float = ASK_TIMEOUT_S, text: str = "", pass_fds: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a program that starts no others, and return its status and both streams.

    Args:
        timeout: seconds; the deadline of the whole run applies, too.
        text: its standard input.
        pass_fds: file descriptors that it inherits.

    Raises:
        NodropError: it cannot be run, or did not end within ``timeout`` seconds, or within the
            deadline.
    """
    limit = at_most(timeout)
    try:
        return subprocess.run(
            argv,
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            env=_environment(None),
            timeout=limit,
            check=False,
            pass_fds=pass_fds,
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
    limit = at_most(timeout) or 0.0
    lines: deque[str] = deque(maxlen=keep)
    require(command[0], command[0])
    process = subprocess.Popen(
        killed_with_us(command),
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
            *complete, rest = (rest + data).split(b"\n")
            for line in complete:
                take(line)
    if rest:
        take(rest)
