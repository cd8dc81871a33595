# SPDX-License-Identifier: GPL-2.0-only
"""Boots a Debian kernel in QEMU, runs one command in it, and returns the result.

The guest's root is a Debian system: an image, layers over it (with nodrop's packages, for example)
and a writable one in memory. Shared directories of the host appear at their own paths, read-only.
There is no network.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from lab import accel, initramfs, retry
from lab import init as plan
from lab.channels import GuestRun, collect, results_directory, socket_pairs, start
from lab.roots import DebianKernel
from lab.terminal import Terminal
from nodrop import proc


def run(
    kernel: DebianKernel,
    argv: Sequence[str | os.PathLike[str]],
    *,
    out: Path,
    layers: Sequence[Path] = (),
    share: Sequence[Path] = (),
    cpus: int = 2,
    memory: str = "2G",
    timeout: float | None = 120.0,
    env: Mapping[str, str] | None = None,
    code_changes: bool = False,
    how: accel.Accel | None = None,
    on_line: Callable[[str], None] | None = None,
    terminal: Terminal | None = None,
) -> GuestRun:
    """Boot a Debian kernel, run ``argv`` in it as root, and wait for its end.

    Arguments that are not listed here are those of :func:`lab.uml.run`.

    Args:
        argv: the command; found in the guest's root or in a shared directory.
        out: also gets the kernel log, as kernel.log.
        layers: squashfs images to put over the kernel's root, topmost last.
        share: directories of the host, visible at the same paths, read-only.
        timeout: seconds with KVM; multiplied by the accelerator's ``slow`` otherwise.
        code_changes: the guest patches its own kernel code continuously.
        how: the accelerator; None: the best one for this host.

    Raises:
        GuestTimeout: the timeout passed; the hint ends with the last lines of the log.
        GuestDied: the kernel ended early, for example by a panic.
        NodropError: it could not be started.
    """
    if not argv:
        raise ValueError("no command for the guest")
    out = results_directory(out)
    disks = [kernel.root.image, *layers]
    share = [folder.resolve() for folder in share]
    how = how or accel.choose(kernel.vmlinuz, code_changes=code_changes)
    environment = {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NODROP_OUT": str(out),
        "NODROP_SLOW": f"{how.slow:g}",
        **dict(env or {}),
    }

    def boot() -> GuestRun:
        with (
            tempfile.TemporaryDirectory(prefix="nodrop-qemu-") as scratch,
            socket_pairs() as (ours, theirs),
        ):
            names = (f"vd{chr(ord('a') + i)}" for i in range(len(disks)))
            own = {
                "LAB_DISKS": " ".join(names),
                "LAB_SHARE": " ".join(map(str, share)),
                "LAB_CWD": str(share[0] if share else "/"),
                "LAB_PATH": plan.PATH,
            }
            text = plan.render(argv, out, {**environment, **own}, terminal)
            memory_disk = initramfs.pack(kernel.modules, text, Path(scratch))
            command = [
                *(proc.require("setpriv", "util-linux"), "--pdeathsig", "KILL", "--"),
                proc.require("qemu-system-x86_64", "qemu-system-x86"),
                *how.options,
                *("-smp", str(cpus), "-m", memory),
                *("-nodefaults", "-display", "none", "-no-reboot", "-no-user-config"),
                *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny"),
                *_serial([end.fileno() for end in theirs]),
                *("-kernel", str(kernel.vmlinuz), "-initrd", str(memory_disk)),
                *("-append", " ".join(_COMMAND_LINE)),
                *_disks(disks),
                *_folders(share, out),
            ]
            with start(command, theirs) as process:
                return collect(
                    process,
                    ours,
                    timeout=None if timeout is None else timeout * how.slow,
                    slow=how.slow,
                    on_line=on_line,
                    keep=out / "kernel.log",
                    terminal=terminal,
                )

    return retry.boot_with_retry(boot, observed=bool(terminal or on_line))


_COMMAND_LINE = (
    "console=ttyS0",
    "loglevel=7",
    "oops=panic",
    "panic=-1",  # at once: a dead guest must not linger
    "nowatchdog",  # a virtual CPU that the host suspends for long is no lockup
    "rcupdate.rcu_cpu_stall_timeout=120",  # nor a stall
    "mitigations=off",  # slow under emulation, and no test needs them
    "module.sig_enforce=0",
)


def _disks(images: Sequence[Path]) -> Iterator[str]:
    for i, image in enumerate(images):
        yield "-drive"
        yield f"if=none,id=disk{i},format=raw,readonly=on,file={_escape(image)}"
        yield from ("-device", f"virtio-blk-pci,drive=disk{i}")


def _folders(share: Sequence[Path], out: Path) -> Iterator[str]:
    tagged = {f"share{i},readonly=on": path for i, path in enumerate(share)} | {"results": out}
    for tag, path in tagged.items():
        yield from ("-virtfs", f"local,path={_escape(path)},security_model=none,mount_tag={tag}")


def _serial(fds: Sequence[int]) -> Iterator[str]:
    for i, fd in enumerate(fds):
        yield from ("-chardev", f"socket,id=line{i},fd={fd}", "-serial", f"chardev:line{i}")


def _escape(path: Path) -> str:
    """Escape commas, which separate QEMU's options."""
    return str(path).replace(",", ",,")
