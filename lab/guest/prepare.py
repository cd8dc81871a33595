# SPDX-License-Identifier: GPL-2.0-only
"""How a guest is prepared for tests and measurements."""

from __future__ import annotations

from pathlib import Path

EXPEDITE_RCU = Path("/sys/kernel/rcu_expedited")
"""Devices and modules then go at once; nothing in a measured window waits for this."""

SYSCTLS = {
    # The kernel sends nothing by itself.
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv6/conf/all/disable_ipv6": "1",
    # Since Linux 6.19 the core drops, uncounted, what senders hand over while another
    # sender holds the qdisc and 1000 packets wait for it. Those are neither the driver's
    # nor the qdisc's drops, so leave no account: the qdisc's own limit decides instead.
    "net/core/qdisc_max_burst": "1000000",
    # Bytes: as large as a scenario's sockets ask for.
    "net/core/wmem_max": "16777216",
    "net/core/rmem_max": "16777216",
    # Pages, 1 GB: sixteen flows with large buffers shall not meet TCP's own limit.
    "net/ipv4/tcp_mem": "262144 262144 262144",
}
"""Set before the runs, where the kernel has them."""


def prepare_system() -> None:
    """Set the guest's SYSCTLS, and make its set-up fast."""
    if EXPEDITE_RCU.exists():
        EXPEDITE_RCU.write_text("1\n")
    for name, value in SYSCTLS.items():
        knob = Path("/proc/sys", name)
        if knob.exists():
            knob.write_text(value + "\n")
