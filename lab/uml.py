# SPDX-License-Identifier: GPL-2.0-only
"""Boots a User-Mode Linux (UML) kernel, runs one command in it, and returns the result.

The guest sees the host's files at the same paths, read-only under an overlay in memory. Its process
is isolated from the host as well as this machine allows: root needs no user namespace, other users
do, and some machines, mostly containers, allow none. The guest then runs as a plain process: its
kernel still mounts the host's files read-only, but nothing outside the guest enforces that.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache
from pathlib import Path

from lab import guest
from lab.guest import GuestRun, Terminal
from lab.kernel import Artifacts, Kernel
from nodrop import proc

INIT = Path(__file__).with_name("guest-init")
SANDBOX = Path(__file__).with_name("sandbox.py")
STALLS = (
    "rcupdate.rcu_cpu_stall_timeout=120",
    "sysctl.kernel.hung_task_timeout_secs=120",
    "watchdog_thresh=60",  # a lockup is twice this
)
"""The host may suspend a guest for a minute: limits above that for stalls and lockups, seconds."""
PRIVATE_TMPFS = "/dev/shm"
"""Mount point of an isolated guest's own tmpfs; every Linux has this directory."""
TRIAL_TIMEOUT_S = 10.0

# Root's capabilities that a UML kernel needs, to reach the host's files. Without the others it
# cannot undo its isolation.
_KEPT_RIGHTS = "-all,+dac_override,+dac_read_search,+chown,+fowner"


class Isolation(Enum):
    """Kinds of isolation, strongest first."""

    ROOT = "namespaces"
    USER = "user namespace"
    NONE = "none"

    def wrapper(self) -> list[str]:
        """Return the command to put before the sandbox's own."""
        die_with_parent = [proc.require("setpriv", "util-linux"), "--pdeathsig", "KILL"]
        if self is Isolation.NONE:
            return [*die_with_parent, "--"]
        unshare = [proc.require("unshare", "util-linux"), "--mount", "--pid", "--net", "--ipc"]
        unshare += ["--fork", "--kill-child=KILL"]
        if self is Isolation.USER:
            unshare.append("--map-root-user")
        return [*die_with_parent, "--", *unshare, "--"]

    def limits(self) -> list[str]:
        """Return the command to put before the kernel, once the sandbox is set up."""
        if self is Isolation.NONE:
            return []
        setpriv = proc.require("setpriv", "util-linux")
        return [setpriv, "--inh-caps=-all", f"--bounding-set={_KEPT_RIGHTS}", "--"]


@cache
def isolation() -> Isolation:
    """Return the strongest isolation that works here, tried once per process."""
    wanted = Isolation.ROOT if os.geteuid() == 0 else Isolation.USER
    for mode in dict.fromkeys((wanted, Isolation.USER)):
        if proc.run([*mode.wrapper(), "true"], timeout=TRIAL_TIMEOUT_S, late=1).status == 0:
            return mode
    return Isolation.NONE


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
        out: the only directory whose files survive; created if missing. LAB_OUT in the guest.
        artifacts: sets LAB_MODULES and LAB_BIN in the guest.
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
    out = guest.results_directory(out)
    text = guest.plan(argv, guest.environment(out, artifacts, env), terminal)
    mode = isolation()

    def boot() -> GuestRun:
        with _workdir(mode) as work, guest.socket_pairs() as (ours, theirs):
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
            with guest.start(command, theirs, json.dumps(request).encode()) as process:
                return guest.collect(
                    process, ours, timeout=timeout, on_line=on_line, terminal=terminal
                )

    return guest.boot_with_retry(boot, observed=bool(terminal or on_line))


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
        f"init={INIT}",
        "--",
        f"{work}/plan",
    ]


@contextmanager
def _workdir(mode: Isolation) -> Iterator[str]:
    if mode is not Isolation.NONE:
        yield PRIVATE_TMPFS
        return
    memory = PRIVATE_TMPFS if os.access(PRIVATE_TMPFS, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="nodrop-guest-", dir=memory) as work:
        yield work
