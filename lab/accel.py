# SPDX-License-Identifier: GPL-2.0-only
"""How QEMU runs a guest here: by KVM where that works, emulated elsewhere.

/dev/kvm tells little: on a host that is itself a virtual machine a guest may hang in its first
steps. So KVM is tried, with a guest that does nothing but say hello.
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

TRY_S = 6.0
"""How long a guest may take to its first words; a host with KVM needs half a second."""


@dataclass(frozen=True)
class Accel:
    """A way to run guests.

    Attributes:
        options: QEMU's.
        slow: about how many times longer than on the host itself a program takes.
    """

    options: tuple[str, ...]
    slow: float


KVM = Accel(("-accel", "kvm", "-cpu", "host"), 1.0)
# Debian 6.12 and later do not come up with the emulated cmpxchg16b of QEMU 7.2.
TCG = Accel(("-accel", "tcg,thread=multi", "-cpu", "max,-cx16"), 10.0)
# All CPUs in one thread. With a thread for each, QEMU 7.2 was seen to run a breakpoint that the
# kernel had taken out of its code again (docs/testing.md).
TCG_IN_TURNS = Accel(("-accel", "tcg,thread=single", "-cpu", "max,-cx16"), 10.0)
# One instruction is one nanosecond of the guest and one tick of its time stamp counter, whatever
# the host does meanwhile. For one CPU; an idle one waits as long as on a real machine.
COUNTED = Accel((*TCG_IN_TURNS.options, "-icount", "shift=0,sleep=on"), 20.0)


def choose(vmlinuz: Path, *, code_changes: bool = False) -> Accel:
    """Return how to run guests: NODROP_ACCEL if set, else KVM if it works.

    Args:
        vmlinuz: a kernel to try KVM with.
        code_changes: whether the guest will change its own kernel's code all the time.

    Raises:
        NodropError: NODROP_ACCEL names none.
    """
    wanted = os.environ.get("NODROP_ACCEL", "")
    if wanted not in ("", "kvm", "tcg"):
        raise NodropError(f"NODROP_ACCEL is {wanted!r}.", "It may be kvm or tcg.")
    if wanted == "kvm" or (not wanted and _kvm_works(vmlinuz)):
        return KVM
    return TCG_IN_TURNS if code_changes else TCG


@cache
def _kvm_works(vmlinuz: Path) -> bool:
    """Try KVM, once: a hanging guest takes its time."""
    return os.access("/dev/kvm", os.R_OK | os.W_OK) and _says_hello(vmlinuz)


def _says_hello(vmlinuz: Path) -> bool:
    with tempfile.TemporaryDirectory(prefix="nodrop-kvm-") as scratch:
        log = Path(scratch) / "log"
        command = [
            proc.require("qemu-system-x86_64", "qemu-system-x86"),
            *KVM.options,
            *("-m", "256M", "-nodefaults", "-display", "none", "-no-reboot"),
            *("-kernel", str(vmlinuz), "-append", "console=ttyS0 panic=-1"),
            *("-serial", f"file:{log}"),
        ]
        # The kernel finds no root and panics: that is all it is meant to do.
        with suppress(NodropError):
            proc.run(command, timeout=TRY_S)
        return log.exists() and "Kernel panic" in log.read_text(errors="replace")
