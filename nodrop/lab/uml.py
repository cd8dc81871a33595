# SPDX-License-Identifier: GPL-2.0-only
"""Boots a User-Mode Linux kernel, runs one command in it, and brings the result out.

The guest sees the host's files at the same paths, read-only under an overlay in memory.
Three channels leave it: the kernel's log, the command's output, the command's exit status.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from nodrop.errors import NodropError
from nodrop.kernel import Artifacts, Kernel
from nodrop.lab.namespaces import Isolation, isolation
from nodrop.lab.splats import Splat, find_splats
from nodrop.proc import GRACE_S, TAIL_LINES, kill_group

INIT = Path(__file__).with_name("guest-init")
SANDBOX = Path(__file__).with_name("sandbox.py")
PRIVATE_TMPFS = "/dev/shm"
"""Where an isolated guest's own tmpfs is mounted; every Linux has this directory."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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


def run(
    kernel: Kernel,
    argv: Sequence[str | os.PathLike[str]],
    *,
    out: Path,
    artifacts: Artifacts | None = None,
    cpus: int = 2,
    memory: str = "2G",
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    urgent: bool = False,
) -> GuestRun:
    """Boot a kernel, run ``argv`` in it as root, and wait for its end.

    Args:
        argv: the command; paths are the host's.
        out: the directory whose files survive; made when missing. NODROP_OUT in the guest.
        artifacts: sets NODROP_MODULES and NODROP_BIN in the guest.
        cpus: virtual CPUs; each is a thread of the host.
        memory: the guest's memory, in the kernel's notation ("2G", "512M"). Taken from
            the host only as far as it is used.
        timeout: seconds for everything from boot to power-off.
        env: more environment for the command.
        on_line: called with each line of the command's output as it appears.
        urgent: ask the host to prefer this guest to other programs, for measurements; where
            that is not allowed, nothing changes.

    Raises:
        GuestTimeout: the time was over; the text ends with the last lines of the log.
        GuestDied: the kernel ended early, by a panic for example.
        NodropError: it could not be started.
    """
    if not argv:
        raise ValueError("no command for the guest")
    out.mkdir(parents=True, exist_ok=True)
    out = out.resolve()
    plan = _plan(argv, out, _environment(out, artifacts, env))
    log, output, status = _Stream(), _Stream(), _Stream()
    recent: deque[str] = deque(maxlen=TAIL_LINES)
    started = time.monotonic()
    mode = isolation()
    with _workdir(mode) as work, _channels() as (ours, theirs):
        fds = [end.fileno() for end in theirs]
        request: dict[str, object] = {
            "linux": [*mode.limits(), *_command_line(kernel, work, cpus, memory, fds)],
            "plan": plan,
            "out": str(out),
            "work": work,
            "urgent": urgent,
            "isolate": mode is not Isolation.NONE,
            "fds": fds,
        }
        streams = dict(zip(ours, (log, output, status), strict=True))

        def deliver(stream: _Stream, lines: list[str]) -> None:
            if stream is not status:
                recent.extend(lines)
            if stream is output and on_line:
                for line in lines:
                    on_line(line)

        def powered_off() -> bool:
            return any(POWERED_OFF in line for line in recent) and bool(status.lines)

        with _start(request, mode, theirs) as process:
            ended = _pump(process, streams, deliver, started + timeout, powered_off)
    seconds = time.monotonic() - started
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


def _environment(
    out: Path, artifacts: Artifacts | None, extra: Mapping[str, str] | None
) -> dict[str, str]:
    # The same Python with the same packages as here.
    path = f"{Path(sys.executable).parent}:{_PATH}"
    env = {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", "NODROP_OUT": str(out)}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    if artifacts:
        env["NODROP_MODULES"] = str(artifacts.modules)
        env["NODROP_BIN"] = str(artifacts.bin)
    return env | dict(extra or {})


def _plan(argv: Sequence[str | os.PathLike[str]], out: Path, env: Mapping[str, str]) -> str:
    """Return the shell text that guest-init reads."""
    words = " ".join(shlex.quote(os.fspath(word)) for word in argv)
    lines = [f"LAB_OUT={shlex.quote(str(out))}", f"LAB_CWD={shlex.quote(str(Path.cwd()))}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    return "\n".join([*lines, f"set -- {words}", ""])


def _command_line(
    kernel: Kernel, work: str, cpus: int, memory: str, fds: Sequence[int]
) -> list[str]:
    console, output, status = fds
    return [
        str(kernel.linux),
        f"mem={memory}",
        f"ncpus={cpus}",
        "seccomp=on",  # the only mode with several CPUs
        f"uml_dir={work}",
        f"umid=nodrop-{os.getpid()}",  # tells in a list of processes whose guest it is
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "con=null",
        f"con0=fd:{console}",
        f"con1=fd:{output}",
        f"con2=fd:{status}",
        "loglevel=7",
        "dummy.numdummies=0",  # devices only when somebody asks for them
        "oops=panic",
        "panic=-1",  # at once: a dead guest must not wait
        "noreboot",
        f"init={INIT}",
        "--",
        f"{work}/plan",
    ]


@contextmanager
def _workdir(mode: Isolation) -> Iterator[str]:
    """Give the directory for the guest's memory and control files."""
    if mode is not Isolation.NONE:
        yield PRIVATE_TMPFS
        return
    place = PRIVATE_TMPFS if os.access(PRIVATE_TMPFS, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="nodrop-guest-", dir=place) as work:
        yield work


@contextmanager
def _start(
    request: dict[str, object], mode: Isolation, ends: Sequence[socket.socket]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the sandbox with the guest's ends of its channels; kill it in the end."""
    process = subprocess.Popen(
        [*mode.wrapper(), sys.executable, "-I", "-S", str(SANDBOX)],
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
            process.stdin.write(json.dumps(request).encode())
            process.stdin.close()
        yield process
    finally:
        kill_group(process)


@contextmanager
def _channels() -> Iterator[tuple[list[socket.socket], list[socket.socket]]]:
    """Give three connected pairs of sockets: the host's ends, the guest's ends.

    Sockets and not pipes, because a console of User-Mode Linux is both read and written.
    """
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(3)]
        for pair in pairs:
            for end in pair:
                stack.callback(end.close)
        yield [pair[0] for pair in pairs], [pair[1] for pair in pairs]


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
