# SPDX-License-Identifier: GPL-2.0-only
"""Boots a User-Mode Linux (UML) kernel, runs one command in it, and returns the result.

The guest sees the host's files at the same paths, read-only under an overlay in memory.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab import init as plan
from lab import retry
from lab.channels import GuestRun, collect, results_directory, socket_pairs, start
from lab.isolation import Isolation, isolation
from lab.kernel import Artifacts, Kernel
from lab.terminal import Terminal

SANDBOX = Path(__file__).with_name("sandbox.py")
STALLS = (
    "rcupdate.rcu_cpu_stall_timeout=120",
    "sysctl.kernel.hung_task_timeout_secs=120",
    "watchdog_thresh=60",  # a lockup is twice this
)
"""The host may suspend a guest for a minute: limits above that for stalls and lockups, seconds."""
PRIVATE_TMPFS = "/dev/shm"
"""Mount point of an isolated guest's own tmpfs; every Linux has this directory."""


def run(
    kernel: Kernel,
    argv: Sequence[str | os.PathLike[str]],
    *,
    out: Path,
    artifacts: Artifacts | None = None,
    cpus: int = 2,
    memory: str = "2G",
    timeout: float | None = 60.0,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    urgent: bool = False,
    terminal: Terminal | None = None,
) -> GuestRun:
    """Boot a UML kernel, run ``argv`` in it as root, and wait for its end.

    Args:
        argv: the command; paths are the host's.
        out: the only directory whose files survive; created if missing. NODROP_OUT in the guest.
        artifacts: sets NODROP_MODULES and NODROP_BIN in the guest.
        cpus: virtual CPUs; each is a thread of the host.
        memory: the guest's memory in the kernel's notation ("2G", "512M"). The host provides only
            as much as the guest uses.
        timeout: seconds from boot to power-off; None: no limit.
        env: more environment for the command.
        on_line: called with each line of the command's output as it arrives.
        urgent: ask the host to prefer this guest to other programs, for measurements; no effect
            without the right to do so.
        terminal: the command's terminal; None: it has none, and no input.

    Raises:
        GuestTimeout: the timeout passed; the hint ends with the last lines of the log.
        GuestDied: the kernel ended early, for example by a panic.
        NodropError: it could not be started.
    """
    if not argv:
        raise ValueError("no command for the guest")
    out = results_directory(out)
    text = plan.render(argv, out, plan.environment(out, artifacts, env), terminal)
    mode = isolation()

    def boot() -> GuestRun:
        with _workdir(mode) as work, socket_pairs() as (ours, theirs):
            fds = [end.fileno() for end in theirs]
            request = {
                "preload": str(kernel.preload or ""),
                "linux": [*mode.limits(), *_command_line(kernel, work, cpus, memory, fds)],
                "plan": text,
                "out": str(out),
                "work": work,
                "urgent": urgent,
                "isolate": mode is not Isolation.NONE,
                "fds": fds,
            }
            command = [*mode.wrapper(), sys.executable, "-I", "-S", str(SANDBOX)]
            with start(command, theirs, json.dumps(request).encode()) as process:
                return collect(process, ours, timeout=timeout, on_line=on_line, terminal=terminal)

    return retry.boot_with_retry(boot, observed=bool(terminal or on_line))


def _command_line(
    kernel: Kernel, work: str, cpus: int, memory: str, fds: Sequence[int]
) -> list[str]:
    console, output, status = fds
    return [
        str(kernel.linux),
        f"mem={memory}",
        f"ncpus={cpus}",
        "seccomp=on",  # the only mode that supports several CPUs
        f"uml_dir={work}",
        f"umid=nodrop-{os.getpid()}",  # identifies the guest in a list of processes
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "con=null",
        f"con0=fd:{console}",
        f"con1=fd:{output}",
        f"con2=fd:{status}",
        "loglevel=7",
        "dummy.numdummies=0",  # dummy devices only on request
        "oops=panic",
        "panic=-1",  # at once: a dead guest must not linger
        "noreboot",
        *STALLS,
        *kernel.arguments,
        f"init={plan.INIT}",
        "--",
        f"{work}/plan",
    ]


@contextmanager
def _workdir(mode: Isolation) -> Iterator[str]:
    """Yield the directory for the guest's memory and control files."""
    if mode is not Isolation.NONE:
        yield PRIVATE_TMPFS
        return
    place = PRIVATE_TMPFS if os.access(PRIVATE_TMPFS, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="nodrop-guest-", dir=place) as work:
        yield work
