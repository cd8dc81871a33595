# SPDX-License-Identifier: GPL-2.0-only
"""Prepares a guest for tests and measurements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXPEDITE_RCU = Path("/sys/kernel/rcu_expedited")
"""Speeds up the removal of devices and modules; no measured window depends on it."""

SYSCTLS = {
    # The kernel sends no packets of its own.
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv6/conf/all/disable_ipv6": "1",
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


def prepare_system() -> None:
    """Set the guest's SYSCTLS, and expedite RCU."""
    if EXPEDITE_RCU.exists():
        EXPEDITE_RCU.write_text("1\n")
    for name, value in SYSCTLS.items():
        knob = Path("/proc/sys", name)
        if knob.exists():
            knob.write_text(value + "\n")


@contextmanager
def setting(path: Path, value: str) -> Iterator[None]:
    """Write a value to a file in /proc or /sys for the block."""
    before = path.read_text()
    path.write_text(value)
    try:
        yield
    finally:
        path.write_text(before)
