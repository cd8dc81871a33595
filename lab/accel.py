# SPDX-License-Identifier: GPL-2.0-only
"""Choose how QEMU runs a guest: with KVM if it works on this host, else by emulation (TCG).

That /dev/kvm exists proves little: if the host is itself a virtual machine, a guest may hang
early in its boot. So KVM is tried once, with a kernel that only has to panic.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError

TRIAL_S = 6.0
"""Time limit of the trial, seconds; a host with working KVM needs half a second."""


@dataclass(frozen=True)
class Accel:
    """Options of QEMU that select an accelerator.

    Attributes:
        options: on QEMU's command line.
        slow: roughly how many times slower a program runs than on the host.
    """

    options: tuple[str, ...]
    slow: float


KVM = Accel(("-accel", "kvm", "-cpu", "host"), 1.0)
# Debian 6.12 and later do not boot with the cmpxchg16b that QEMU 7.2 emulates.
TCG = Accel(("-accel", "tcg,thread=multi", "-cpu", "max,-cx16"), 10.0)
# One thread for all CPUs. With a thread for each, QEMU 7.2 was seen to execute a breakpoint that
# the kernel had already removed from its code (docs/testing.md).
TCG_SINGLE_THREAD = Accel(("-accel", "tcg,thread=single", "-cpu", "max,-cx16"), 10.0)
# One instruction takes one nanosecond of guest time and one tick of the TSC, whatever the host
# does meanwhile. For one CPU; an idle CPU waits in real time.
TCG_ICOUNT = Accel((*TCG_SINGLE_THREAD.options, "-icount", "shift=0,sleep=on"), 20.0)


def choose(vmlinuz: Path, *, code_changes: bool = False) -> Accel:
    """Return the accelerator: NODROP_ACCEL if set, else KVM if it works, else TCG.

    Args:
        vmlinuz: the kernel for the KVM trial.
        code_changes: the guest patches its own kernel code continuously.

    Raises:
        NodropError: NODROP_ACCEL is neither kvm nor tcg.
    """
    wanted = os.environ.get("NODROP_ACCEL", "")
    if wanted not in ("", "kvm", "tcg"):
        raise NodropError(f"NODROP_ACCEL is {wanted!r}.", "It may be kvm or tcg.")
    if wanted == "kvm" or (not wanted and _kvm_works(vmlinuz)):
        return KVM
    return TCG_SINGLE_THREAD if code_changes else TCG


@cache
def _kvm_works(vmlinuz: Path) -> bool:
    """Try KVM, once per process: a guest that hangs costs TRIAL_S."""
    return os.access("/dev/kvm", os.R_OK | os.W_OK) and _panics_as_expected(vmlinuz)


def _panics_as_expected(vmlinuz: Path) -> bool:
    with tempfile.TemporaryDirectory(prefix="nodrop-kvm-") as scratch:
        log = Path(scratch) / "log"
        command = [
            proc.require("qemu-system-x86_64", "qemu-system-x86"),
            *KVM.options,
            *("-m", "256M", "-nodefaults", "-display", "none", "-no-reboot"),
            *("-kernel", str(vmlinuz), "-append", "console=ttyS0 panic=-1"),
            *("-serial", f"file:{log}"),
        ]
        # The kernel finds no root file system and panics, which is all that it has to do.
        with suppress(NodropError):
            proc.run(command, timeout=TRIAL_S)
        return log.exists() and "Kernel panic" in log.read_text(errors="replace")
