# SPDX-License-Identifier: GPL-2.0-only
"""Runs tools and traffic programs, each with a time limit."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Self

from guestlib.environment import GuestError, time_limit
from nodrop import proc
from nodrop.errors import NodropError

TOOL_TIMEOUT_S = time_limit(10.0)
ANSWER_TIMEOUT_S = time_limit(5.0)
STOP_TIMEOUT_S = time_limit(5.0)
_PROCESS_CLOCK = 2
_SWITCHES = re.compile(r"^(voluntary|nonvoluntary)_ctxt_switches:\s*(\d+)$", re.MULTILINE)


def in_netns(netns: str | None, argv: Sequence[str]) -> list[str]:
    """Return the command that runs ``argv`` in a named network namespace (None: here)."""
    if netns is None:
        return list(argv)
    return ["nsenter", f"--net={netns_path(netns)}", *argv]


def netns_path(netns: str) -> Path:
    """Return the file of a network namespace that ``ip netns add`` made."""
    return Path("/run/netns") / netns


def tool(
    argv: Sequence[str],
    *,
    text: str = "",
    timeout: float = TOOL_TIMEOUT_S,
    pass_fds: Sequence[int] = (),
) -> str:
    """Run a program to its end and return its stdout.

    Args:
        text: its standard input.
        timeout: seconds.
        pass_fds: file descriptors that it inherits.

    Raises:
        GuestError: it is missing, failed, or exceeded the timeout.
    """
    try:
        done = proc.ask(*argv, text=text, timeout=timeout, pass_fds=pass_fds)
    except NodropError as error:
        raise GuestError(f"'{' '.join(argv)}': {error}") from error
    if done.returncode != 0:
        raise GuestError(f"'{' '.join(argv)}' failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def ip_batch(lines: Sequence[str], *, netns: str | None = None) -> None:
    """Run ``ip`` commands, one per line, in one process."""
    where = ["-n", netns] if netns else []
    tool(["ip", *where, "-batch", "-"], text="\n".join(lines) + "\n")


def parse_last_json(output: str, program: str) -> dict[str, Any]:
    """Return the JSON object on the last line of a program's output.

    Raises:
        GuestError: there is none.
    """
    lines = output.strip().splitlines()
    try:
        result = json.loads(lines[-1])
    except (IndexError, ValueError) as error:
        raise GuestError(f"{program} printed no result") from error
    if not isinstance(result, dict):
        raise GuestError(f"{program} printed no result")
    return result


def finished(argv: Sequence[str], *, timeout: float) -> dict[str, Any]:
    """Run a traffic program to its end and return its JSON result; raises as :func:`tool`."""
    return parse_last_json(tool(argv, timeout=timeout), argv[0])


def switches(threads: Iterable[Path]) -> tuple[int, int]:
    """Return voluntary and involuntary context switches of threads, from their status files."""
    total = {"voluntary": 0, "nonvoluntary": 0}
    for path in threads:
        for name, number in _SWITCHES.findall(path.read_text(errors="replace")):
            total[name] += int(number)
    return total["voluntary"], total["nonvoluntary"]


def as_user(uid: int) -> dict[str, Any]:
    """Return what subprocess needs to run a program as another user; nothing for root."""
    if not uid:
        return {}
    # The current directory may be inaccessible to others.
    return {"user": uid, "group": uid, "extra_groups": [], "cwd": "/"}


class Service:
    """A program that runs until it is stopped; a context manager.

    Args:
        argv: the command.
        announces: wait for the line that it prints when it is ready.
        pass_fds: file descriptors that it inherits.
        env: its whole environment; None: this process's.
        log: a file for its output; it then takes no requests, and its output is not read here.
        user: uid and gid to run as.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        announces: bool = True,
        pass_fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        user: int = 0,
    ) -> None:
        self._pass_fds = pass_fds
        self._env = env
        self._log = log
        self._user = user
        self._name = Path(argv[0]).name if argv[0] != "nsenter" else Path(argv[2]).name
        self._argv = list(argv)
        self._announces = announces
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        # Unbuffered, so that select() and communicate() miss nothing.
        try:
            with self._log.open("wb") if self._log else nullcontext() as sink:
                self._process = subprocess.Popen(
                    self._argv,
                    bufsize=0,
                    stdin=subprocess.DEVNULL if sink else subprocess.PIPE,
                    stdout=sink or subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    pass_fds=self._pass_fds,
                    **as_user(self._user),
                )
        except FileNotFoundError as error:
            raise GuestError(f"{self._argv[0]} is not installed") from error
        if self._announces:
            try:
                self._wait_ready(self._process)
            except BaseException:
                self._kill()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    @property
    def pid(self) -> int:
        """The program's process id; nsenter executes the program without a fork."""
        return self._running().pid

    @property
    def cpu_ns(self) -> int:
        """CPU time of all its threads so far, ns; under UML in ticks of 10 ms."""
        # The id of a process's CPU clock, as clock_getcpuclockid(3) computes it.
        return time.clock_gettime_ns(~self.pid << 3 | _PROCESS_CLOCK)

    @property
    def is_running(self) -> bool:
        return self._running().poll() is None

    def log_text(self) -> str:
        assert self._log is not None
        return self._log.read_text(errors="replace")

    def request(self, line: str) -> dict[str, Any]:
        """Send a request, one line, to the program and return the JSON object of its reply.

        Raises:
            GuestError: it does not reply in time, or not with an object.
        """
        self.send(line)
        return self.receive()

    def send(self, line: str = "") -> None:
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(f"{line}\n".encode())
        except BrokenPipeError as error:
            raise GuestError(f"{self._name} has ended and takes no requests") from error

    def receive(self, timeout: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
        """Return the JSON object that the program prints next, on one line.

        Raises:
            GuestError: it prints none in time, or something else.
        """
        process = self._running()
        line = self._read_line(process, f"{self._name} does not reply", timeout)
        if not line.startswith("{"):
            process.kill()
            rest, _ = process.communicate()
            raise GuestError(f"{self._name} failed: {line}{rest.decode(errors='replace')}".strip())
        return parse_last_json(line, self._name)

    def kill(self) -> None:
        self._running().kill()

    def stop(self) -> str:
        """Send SIGTERM to the program and return the rest of its output.

        Raises:
            GuestError: it does not end, or it failed.
        """
        process = self._running()
        process.send_signal(signal.SIGTERM)
        return self.wait(STOP_TIMEOUT_S)

    def wait(self, timeout: float) -> str:
        """Wait until the program ends by itself and return the rest of its output.

        Raises:
            GuestError: it does not end in time, or it failed.
        """
        process = self._running()
        try:
            data, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            self._kill()
            raise GuestError(f"{self._name} did not end within {timeout:g} s") from error
        return self._checked(process, data)

    def _checked(self, process: subprocess.Popen[bytes], data: bytes) -> str:
        output = data.decode(errors="replace")
        if process.returncode not in (0, -signal.SIGTERM):
            raise GuestError(f"{self._name} failed: {output.strip()}")
        return output

    def finish(self, grace: float) -> str:
        """Give the program some seconds to end by itself, then stop it; raises as :meth:`wait`."""
        process = self._running()
        try:
            data, _ = process.communicate(timeout=grace)
        except subprocess.TimeoutExpired:
            return self.stop()
        return self._checked(process, data)

    def result(self) -> dict[str, Any]:
        """Stop the program and return its JSON result."""
        return parse_last_json(self.stop(), self._name)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise GuestError(f"{self._name} was not started")
        return self._process

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        line = self._read_line(process, f"{self._name} was not ready")
        if '"ready"' not in line:
            raise GuestError(f"{self._name} did not start: {line.strip()}")

    def _read_line(
        self, process: subprocess.Popen[bytes], complaint: str, timeout: float = ANSWER_TIMEOUT_S
    ) -> str:
        assert process.stdout is not None
        with DefaultSelector() as selector:
            selector.register(process.stdout, EVENT_READ)
            if not selector.select(timeout):
                raise GuestError(f"{complaint} within {timeout:g} s")
        return process.stdout.readline().decode(errors="replace")

    def _kill(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
