# SPDX-License-Identifier: GPL-2.0-only
"""A guest: directories that the lab gives to code in it, its settings, time limits and errors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SLOW = max(1.0, float(os.environ.get("LAB_SLOW", "1")))
"""Factor by which this guest is slower than UML."""
LEAST_S = float(os.environ.get("LAB_LEAST_S", "60"))
"""The shortest time limit, seconds, however short a wait is: the host may pause for a minute."""
LOAD = 10.0 if LEAST_S >= 60 else 3.0
"""Factor by which a busy machine may be slower than an idle one."""
EXPEDITE_RCU = Path("/sys/kernel/rcu_expedited")
"""Speeds up the removal of devices and modules; no measured window depends on it."""

NO_IPV6 = {
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv6/conf/all/disable_ipv6": "1",
}
"""The kernel then sends no packets of its own."""
SYSCTLS = NO_IPV6 | {
    # Since Linux 6.19 the network core drops packets, uncounted, if 1000 wait while another sender
    # holds the qdisc. Those are drops of neither the driver nor the qdisc, and would remain
    # unaccounted for. With this value the qdisc's own limit decides.
    "net/core/qdisc_max_burst": "1000000",
    # Bytes; the largest socket buffers that scenarios request.
    "net/core/wmem_max": "16777216",
    "net/core/rmem_max": "16777216",
    # Pages, 1 GB: sixteen flows with large buffers must not reach TCP's global limit.
    "net/ipv4/tcp_mem": "262144 262144 262144",
}
"""Set before the runs, if the kernel has them."""


class GuestError(Exception):
    """A run failed or its result cannot be trusted; the message is one sentence."""


class Unsupported(GuestError):
    """This kernel or machine lacks a feature; the message names it."""


@dataclass(frozen=True)
class Environment:
    """The directories that the lab provides to a guest's command.

    Attributes:
        out: the only one whose files survive (LAB_OUT).
        modules: the kernel modules (LAB_MODULES).
        bin: the traffic programs (LAB_BIN).
    """

    out: Path
    modules: Path
    bin: Path

    @classmethod
    def from_environ(cls) -> Environment:
        """Read the environment variables.

        Raises:
            GuestError: one of them is not set.
        """
        try:
            return cls(
                out=Path(os.environ["LAB_OUT"]),
                modules=Path(os.environ["LAB_MODULES"]),
                bin=Path(os.environ["LAB_BIN"]),
            )
        except KeyError as missing:
            raise GuestError(
                f"{missing.args[0]} is not set; the lab starts this program"
            ) from missing


def prepare_system() -> None:
    """Set the guest's SYSCTLS, and expedite RCU."""
    if EXPEDITE_RCU.exists():
        EXPEDITE_RCU.write_text("1\n")
    set_sysctls(SYSCTLS)


def set_sysctls(values: Mapping[str, str]) -> None:
    """Write values to files below /proc/sys, as far as this kernel has them.

    Those of the network are of the current namespace (guestlib.namespaces.inside).
    """
    for name, value in values.items():
        path = Path("/proc/sys", name)
        if path.exists():
            path.write_text(f"{value}\n")


@contextmanager
def setting(path: Path, value: str) -> Iterator[None]:
    """Write a value to a file in /proc or /sys for the block."""
    before = path.read_text()
    path.write_text(value)
    try:
        yield
    finally:
        path.write_text(before)


def time_limit(seconds: float) -> float:
    """Return a time limit, seconds, for what normally takes up to ``seconds``.

    Only for limits that distinguish "late" from "never": no test waits that long unless it fails.
    """
    return max(seconds * max(SLOW, LOAD), LEAST_S)


def scaled(seconds: float) -> float:
    """Return a duration of ``seconds`` on a fast guest, scaled to this one."""
    return seconds * SLOW


def wait_until(
    condition: Callable[[], object], seconds: float = 0.0, *, step_s: float = 0.0005
) -> bool:
    """Wait until a condition is true; return False if it is not within time_limit(seconds)."""
    end = time.monotonic() + time_limit(seconds)
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step_s)
    return True
