# SPDX-License-Identifier: GPL-2.0-only
"""A virtual machine in QEMU inside a guest, with a virtio-net device: Debian's kernel, busybox.

Its processor is emulated, but driver, QEMU and vhost-net are those of a real host.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from guestlib.environment import GuestError, wait_until
from guestlib.process import Service

ADDRESS = "192.0.2.2"
HOST_ADDRESS = "192.0.2.1/24"
ECHO_PORT, DISCARD_PORT = 7, 9
BOOT_S = 20.0
_COMMAND_LINE = (
    "console=ttyS0",
    "loglevel=4",
    "panic=-1",
    "mitigations=off",
    "nowatchdog",
    "no_timer_check",  # the host may suspend the emulator while the kernel counts its ticks
)


class Vm(Service):
    """The machine, from its boot to its end; on entry its servers are ready.

    Args:
        files: a directory with its vmlinuz and initramfs.gz.
        fd: an open TAP device with IFF_VNET_HDR.
        log: a file for its console.
        vhost: vhost-net reads the device, not QEMU.
        cpu: of all QEMU's threads, and vhost-net's.

    Raises:
        GuestError: on entry, if it does not start within BOOT_S.
    """

    def __init__(self, files: Path, fd: int, log: Path, *, vhost: bool, cpu: int) -> None:
        backend = f"tap,id=net,fd={fd},vhost={'on' if vhost else 'off'}"
        command = [
            *("setpriv", "--pdeathsig", "KILL", "--", "taskset", "--cpu-list", str(cpu)),
            *("qemu-system-x86_64", "-accel", "tcg", "-cpu", "max,-cx16", "-m", "256M"),
            *("-nodefaults", "-display", "none", "-no-reboot", "-no-user-config"),
            *("-serial", "stdio", "-netdev", backend, "-device", "virtio-net-pci,netdev=net"),
            *("-kernel", str(files / "vmlinuz"), "-initrd", str(files / "initramfs.gz")),
            *("-append", " ".join(_COMMAND_LINE)),
        ]
        super().__init__(command, announces=False, pass_fds=[fd], log=log)

    def __enter__(self) -> Self:
        super().__enter__()
        ready = wait_until(lambda: "vm: ready" in self.log_text() or not self.is_running, BOOT_S)
        if not ready or not self.is_running:
            text = self.log_text()[-1000:]
            self.__exit__()
            raise GuestError(f"the virtual machine did not start: {text}")
        return self
