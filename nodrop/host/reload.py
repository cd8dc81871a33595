# SPDX-License-Identifier: GPL-2.0-only
"""Replace the loaded modules by those on disk, by a script that outlives its caller's session.

The session may run through the VPN that is stopped. So the script runs in a transient unit of
systemd, or without systemd in a session of its own, and writes what it does to a file.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TextIO

from nodrop import proc
from nodrop.errors import NodropError, deferred
from nodrop.host import modules, read, units
from nodrop.host.model import Device, Driver
from nodrop.host.modules import ModuleFile, User
from nodrop.host.units import Unit

UNIT = "nodrop-reload"
LOCK = f"run/{UNIT}.lock"
LOG = "var/log/nodrop/reload.log"
STEP_TIMEOUT_S = 300
"""Of each step: systemd kills a service that does not stop after 90 seconds."""
_UNLOAD_TRIES = 5
_SETTLE_S = 2
"""Time in which a service that systemd has just started may still fail, seconds."""
_ROUTES = ("macvtap", "ipvtap")
"""Modules that use tap."""

_SCRIPT = """\
# Made by 'nodrop reload'. Whatever fails, what was stopped is started again.
exec >>{log} 2>&1 </dev/null 9<{lock}
flock -s 9 # It outlives its caller, which has this lock, too.
PATH=$PATH:/usr/sbin:/sbin
trap : HUP INT TERM

step() {{
	echo "+ $*"
	timeout -k 10 {limit} "$@" 9<&-
}}

# A device may go some time after its file.
unload() {{
	[ -e {modules}/$1/initstate ] || return 0
	for try in {tries}; do
		step rmmod "$1" && return
		sleep 1
	done
	echo "$1 is still in use: reference count $(cat {modules}/$1/refcnt)"
	return 1
}}

replace() {{
	:{replace}
}}

failed=0
replace || {{
	failed=1
	echo 'not replaced; what was stopped is started again, with the driver that loads'{load}
}}
# Until udev has handled it, only root can open /dev/net/tun.
[ ! -e {udev} ] || udevadm settle --timeout=60 9<&-{start}
set -- {readers}
[ $# = 0 ] || sleep {settle}
for unit; do
	systemctl is-active --quiet -- "$unit" 9<&- || {{
		failed=1
		echo "$unit is not active; see: systemctl status $unit"
	}}
done
tun="the kernel's own"
[ ! -e {modules}/{tun}/parameters/nodrop ] || tun=nodrop\\'s
echo "tun is $tun now"
exit $failed
"""


@dataclass(frozen=True)
class Reload:
    """What is to be stopped, unloaded, loaded and started.

    Attributes:
        files: all modules (:data:`modules.MODULES`); empty: they stay, and only programs that use
            devices of a built-in tun are restarted.
        users: processes that have devices open.
        devices: labels of devices that do not go with a process, and keep a module loaded.
        links: names of this namespace's devices that go with their processes.
        stop, start: commands of the administrator for users that are not services; may be empty.
        root: parent of the units' files.
    """

    files: Sequence[ModuleFile]
    users: Sequence[User]
    devices: Sequence[str]
    links: Sequence[str]
    stop: str = ""
    start: str = ""
    root: Path = Path("/")

    @cached_property
    def stopped(self) -> list[Unit]:
        """The users' services, and the units that systemd stops with them.

        Raises:
            NodropError: systemd does not answer.
        """
        names = dict.fromkeys(filter(None, (user.cgroup.service for user in self.users)))
        booted = (self.root / "run/systemd/system").is_dir()
        links = [unit for name in self.links for unit in units.of_device(name)] if booted else ()
        return units.stopped_with(list(names), self.root, links)

    @property
    def ends(self) -> list[str]:
        """Name each process whose sessions end, and each unit that stops with its service."""
        return [
            f"{user.name}({user.pid})" + (f" of {label}" if (label := user.cgroup.label) else "")
            for user in self.users
        ] + [f"{unit.name} (needs {unit.needs})" for unit in self.stopped if unit.needs]

    def require(self) -> None:
        """Check that all users can be stopped.

        Raises:
            NodropError: one cannot; the hint is how to.
        """
        others = [f"{user.name}({user.pid})" for user in self.users if not user.cgroup.service]
        others += [f"{unit.name} ({unit.obstacle})" for unit in self.stopped if unit.obstacle]
        if self.devices:
            raise NodropError(
                f"{', '.join(sorted(self.devices))}: no program creates these devices again.",
                "Delete them, run this again, and create them again. Or reboot.",
            )
        if others and not self.stop:
            raise NodropError(
                f"No service that systemd can start again: {', '.join(others)}.",
                "Stop it (a virtual machine: shut it down from the host), run this again, and "
                "start it. Or name your commands: --stop 'COMMAND' --start 'COMMAND'.",
            )

    def steps(self) -> tuple[list[str], list[str], list[str]]:
        """Return the commands that replace the modules, those that load, and those that start."""
        unload, load = modules.to_exchange(self.files) if self.files else ([], "")
        names = [unit.name for unit in self.stopped if not unit.obstacle]
        stop = [f"systemctl stop -- {shlex.join(names)}"] if names else []
        start = [f"systemctl start -- {shlex.join(names)}"] if names else []
        stop += [shlex.join(["sh", "-c", self.stop])] if self.stop else []
        start += [shlex.join(["sh", "-c", self.start])] if self.start else []
        above = [f"rmmod {name}" for name in _ROUTES] if "tap" in unload else []
        loads = [f"modprobe {load}"] if load else []
        return [*stop, *above, *(f"rmmod {name}" for name in unload)], loads, start

    def lines(self) -> list[str]:
        """Return all commands, in order."""
        return [line for part in self.steps() for line in part]

    def script(self, root: Path = Path("/")) -> str:
        """Return the shell script.

        Args:
            root: parent of ``run``, ``sys`` and ``var``.
        """
        first, loads, start = self.steps()
        tun = modules.to_exchange(self.files)[1] or "tun" if self.files else modules.BESIDE
        first = [
            line.replace("rmmod", "unload") if line.startswith("rmmod ") else f"step {line}"
            for line in first
        ]
        loads = [f"step {line}" for line in loads]
        return _SCRIPT.format(
            log=shlex.quote(str(root / LOG)),
            lock=shlex.quote(str(root / LOCK)),
            limit=STEP_TIMEOUT_S,
            modules=shlex.quote(str(root / "sys/module")),
            udev=shlex.quote(str(root / "run/udev/control")),
            tries=" ".join(map(str, range(_UNLOAD_TRIES))),
            replace="".join(f" &&\n\t{line}" for line in (*first, *loads)),
            load="".join(f"\n\t{line}" for line in loads),
            tun=tun,
            start="".join(f"\nstep {line} || failed=1" for line in start),
            readers=shlex.join(
                unit.name for unit in self.stopped if not (unit.obstacle or unit.needs)
            ),
            settle=_SETTLE_S,
        )


def plan(root: Path = Path("/"), stop: str = "", start: str = "") -> Reload | None:
    """Return what is to be done; None: the loaded modules are those on disk, and serve all devices.

    Raises:
        NodropError: nodrop's livepatch is loaded, or a module or a namespace cannot be read.
    """
    release = os.uname().release
    files = modules.read(root, release)
    folder = f"/lib/modules/{release}"
    unread = [f"{folder}/{file.path}" for file in files if file.loaded and file.on_disk is None]
    if unread:
        raise NodropError(
            f"{', '.join(dict.fromkeys(unread))} cannot be read, so nothing is replaced.",
            "Install the modules again; a .zst needs the program zstd.",
        )
    patches = modules.other_livepatches(root) if modules.installed(root, release) else {}
    stale = [file.name for file in modules.replaceable(files, patches) if file.stale]
    if not stale and not modules.to_load(files):
        return _reopen(root, stop, start)
    if (root / "sys/kernel/livepatch/nodrop_live").is_dir():
        raise NodropError(
            "The running drivers are patched by nodrop's livepatch.",
            "Run 'nodrop livepatch unload' first.",
        )
    devices = _devices()
    kept = [
        device.label
        for device in devices
        if (device.persist and not device.direct) or (device.direct and "tap" in stale)
    ]
    users = modules.users_of(modules.device_holders(root))
    return Reload(files, users, kept, _names(devices), stop, start, root)


def _reopen(root: Path, stop: str, start: str) -> Reload | None:
    """Return what moves devices of a built-in tun to nodrop's; None: it has none."""
    if not (modules.tun_built_in(root) and modules.driver(root) == "nodrop"):
        return None
    left = [device for device in _devices() if device.driver is Driver.STOCK and not device.direct]
    if not left:
        return None
    pids = {owner.pid for device in left for owner in device.owners}
    holders = [holder for holder in modules.device_holders(root) if holder.pid in pids]
    kept = [device.label for device in left if device.persist]
    users = modules.users_of(holders)
    return Reload([], users, kept, _names(left), stop, start, root)


def _devices() -> Sequence[Device]:
    """Return the devices of all namespaces."""
    return read.build(read.read(everywhere=True)).devices


def _names(devices: Sequence[Device]) -> list[str]:
    return [
        device.name for device in devices if not (device.netns or device.direct or device.tunnel)
    ]


def run(
    script: str, on_line: Callable[[str], None], root: Path = Path("/")
) -> tuple[bool, list[str], bool]:
    """Run the script to its end, whatever signal arrives; it also survives this process.

    Args:
        on_line: called with each line of its log.
        root: parent of ``run`` and ``var``.

    Returns:
        Whether it succeeded, its log, and whether a signal arrived.

    Raises:
        NodropError: it cannot be started, or another one runs.
    """
    with ExitStack() as stack:
        try:
            file, log = _prepare(script, root, stack)
        except BlockingIOError as error:
            raise NodropError(
                "Another 'nodrop reload' runs.", f"Wait for its end; its log: {root / LOG}."
            ) from error
        except OSError as error:
            raise NodropError(f"{error.filename} cannot be written: {error.strerror}.") from error
        return _run(file, log, on_line, root)


def _prepare(script: str, root: Path, stack: ExitStack) -> tuple[Path, TextIO]:
    """Lock, and return the script's file and its log, which is empty.

    Raises:
        BlockingIOError: another reload has the lock.
        OSError: a file cannot be written.
    """
    file, log = root / f"run/{UNIT}.sh", root / LOG
    for path in (file, log):
        path.parent.mkdir(parents=True, exist_ok=True)
    # In /run and not readable, so that only root can lock it.
    lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    stack.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for path in (file, log):
        path.unlink(missing_ok=True)
    file.write_bytes(os.fsencode(script))
    log.touch()
    made = stack.enter_context(log.open(errors="replace"))
    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # the script takes it, too
    return file, made


def _run(
    file: Path, log: TextIO, on_line: Callable[[str], None], root: Path
) -> tuple[bool, list[str], bool]:
    command = ["/bin/sh", str(file)]
    if (root / "run/systemd/system").is_dir():
        # oneshot: systemd-run waits for its end; --wait would need D-Bus. KillMode: a program that
        # --start has started stays.
        properties = ("-pType=oneshot", "-pKillMode=process")
        options = ("--collect", "--quiet", f"--unit={UNIT}", *properties)
        command = [proc.require("systemd-run", "systemd"), *options, *command]
    lines: list[str] = []
    with deferred() as interrupted, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
        ended, rest = False, ""
        while not ended:
            ended = process.poll() is not None
            *complete, rest = (rest + log.read()).split("\n")
            for line in [*complete, rest] if ended and rest else complete:
                lines.append(line)
                on_line(line)
            time.sleep(0 if ended else proc.POLL_S)
        errors.seek(0)
        if process.returncode and not lines:
            why = errors.read().decode(errors="replace").strip()
            raise NodropError("The modules could not be replaced; nothing was stopped.", why)
    return process.returncode == 0, lines, interrupted()
