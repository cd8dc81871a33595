# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import pytest

from nodrop.lab.splats import find_splats

SPLATS = {
    "WARNING": (
        "[    3.121000] ------------[ cut here ]------------\n"
        "[    3.121004] WARNING: drivers/net/tun.c:1034 at tun_net_xmit+0x1c/0x30 [tun], CPU#1\n"
        "[    3.121009] Modules linked in: tun\n"
        "[    3.121031] ---[ end trace 0000000000000000 ]---\n"
    ),
    "BUG": (
        "[    3.121000] ------------[ cut here ]------------\n"
        "[    3.121004] kernel BUG at lib/dynamic_queue_limits.c:99!\n"
    ),
    "KASAN": (
        "[    8.000000] ==================================================================\n"
        "[    8.000001] BUG: KASAN: slab-use-after-free in tun_do_read+0x41/0x90 [tun]\n"
    ),
    "UBSAN": "[    8.0] UBSAN: shift-out-of-bounds in net/core/dev.c:31:2\n",
    "lockdep": (
        "[   12.400000] ======================================================\n"
        "[   12.400001] WARNING: possible circular locking dependency detected\n"
        "[   12.400002] 7.3.4 #1 Not tainted\n"
    ),
    "RCU usage": "[    1.5] WARNING: suspicious RCU usage\n",
    "RCU stall": "[   61.5] rcu: INFO: rcu_sched self-detected stall on CPU\n",
    "hung task": "[   40.5] INFO: task udp_sender:87 blocked for more than 20 seconds.\n",
    "lockup": "[   40.5] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [kpktgend_1:33]\n",
    "atomic sleep": "[    2.5] BUG: scheduling while atomic: ip/93/0x00000002\n",
    "refcount": "[    2.5] refcount_t: underflow; use-after-free.\n",
    "reference leak": (
        "[   22.5] unregister_netdevice: waiting for tap0 to become free. Usage count = 2\n"
    ),
    "panic": "[    2.5] Kernel panic - not syncing: Fatal exception in interrupt\n",
    "oops": "[    2.5][   T93] Oops: general protection fault [#1] SMP\n",
}

FIRST_LINES = [
    ("lockdep", "WARNING: inconsistent lock state"),
    ("lockdep", "WARNING: possible recursive locking detected"),
    ("lockdep", "WARNING: possible irq lock inversion dependency detected"),
    ("lockdep", "WARNING: SOFTIRQ-safe -> SOFTIRQ-unsafe lock order detected"),
    ("lockdep", "WARNING: bad unlock balance detected!"),
    ("lockdep", "[ BUG: Invalid wait context ]"),
    ("lockdep", "INFO: trying to register non-static key."),
    ("RCU stall", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"),
    ("RCU stall", "rcu: rcu_sched kthread timer wakeup didn't happen for 2199 jiffies! starved"),
    ("atomic sleep", "BUG: sleeping function called from invalid context at mm/slub.c:99"),
    ("BUG", "BUG: kernel NULL pointer dereference, address: 0000000000000010"),
    ("oops", "Kernel mode fault at addr 0x10, ip 0x60012345"),
    ("oops", "Oops: Oops: 0000 [#1] SMP"),
    ("slab", "BUG skbuff_head_cache (Not tainted): Poison overwritten"),
    ("list corruption", "list_del corruption. next->prev should be ffff, but was 0"),
]

ORDINARY = """\
[    0.000000] Linux version 7.3.4 (nodrop@lab) (gcc 12.2.0) #1 SMP
[    0.040000] rcu: Hierarchical SRCU implementation.
[    0.100000] rcu: INFO about nothing at all
[    0.200000] tun: Universal TUN/TAP device driver, 1.6
[    0.300000] Warning: unable to open an initial console.
[    0.400000] tap0: entered promiscuous mode
[    0.500000] pktgen: Packet Generator for packet performance testing. Version: 2.75
[    0.600000] kunit: WARNING: is mentioned in the middle of a line
[    0.700000] debug: BUG_ON is compiled in
Checking that ptrace can change system call numbers...OK
[    0.800000] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar
[    0.900000] INFO: lockdep is turned off on request
[    1.000000] reboot: Power down
"""

DEBIAN = """\
[    0.018310] PCI: Using host bridge windows from ACPI; if necessary, use "pci=nocrs" and \
report a bug
[    0.090000] Spectre V2 : Mitigation: Retpolines
[    0.320000] acpi PNP0A03:00: fail to add MMCONFIG information, can't access extended \
configuration space under this bridge
[    0.410000] AMD-Vi: AMD IOMMUv2 functionality not available on this system - This is not a bug.
[    0.500000] calibrate_delay_direct() failed to get a good estimate for loops_per_jiffy.
[    0.600000] RAS: Correctable Errors collector initialized.
[    2.843848] 9p: Installing v9fs 9p2000 file system support
[    3.721384] nodrop: loading out-of-tree module taints kernel.
[    3.721933] nodrop: module verification failed: signature and/or required key missing - \
tainting kernel
[    3.751323] tun: Universal TUN/TAP device driver, 1.6
[    9.100000] clocksource: Long readout interval, skipping watchdog check: cs_nsec: 1345719011 \
wd_nsec: 1345719160
[    9.200000] clocksource: timekeeping watchdog on CPU1: Marking clocksource 'tsc' as unstable \
because the skew is too large:
[    9.300000] perf: interrupt took too long (2513 > 2500), lowering \
kernel.perf_event_max_sample_rate to 79500
[    9.400000] hrtimer: interrupt took 8123456 ns
[    9.500000] sched: RT throttling activated
[    9.600000] workqueue: drain_vmap_area_work hogged CPU for >10000us 4 times, consider switching \
to WQ_UNBOUND
[    9.700000] INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.203 msecs
[    9.800000] ndtest0: Caught tx_queue_len zero misconfig
"""
"""What Debian's kernels say in an emulated machine that a module of ours is loaded into."""


@pytest.mark.parametrize("kind", list(SPLATS))
def test_each_kind_is_found_once(kind: str) -> None:
    found = find_splats(ORDINARY + DEBIAN + SPLATS[kind] + "[   99.0] something else\n")
    assert [splat.kind for splat in found] == [kind]


@pytest.mark.parametrize(("kind", "line"), FIRST_LINES)
def test_first_lines(kind: str, line: str) -> None:
    found = find_splats(f"[   12.345678] {line}\n")
    assert [(splat.kind, splat.line) for splat in found] == [(kind, line)]


def test_ordinary_log_is_clean() -> None:
    assert find_splats(ORDINARY) == ()
    assert find_splats(DEBIAN) == ()


def test_text_goes_to_the_end_of_the_report_and_no_further() -> None:
    (splat,) = find_splats(SPLATS["WARNING"] + "[    3.2] tap0: link becomes ready\n")
    assert splat.line.startswith("WARNING: drivers/net/tun.c:1034")
    assert splat.text.startswith("------------[ cut here")
    assert splat.text.endswith("---[ end trace 0000000000000000 ]---")


def test_two_reports_in_a_row_are_two() -> None:
    found = find_splats(SPLATS["WARNING"] + SPLATS["lockdep"])
    assert [splat.kind for splat in found] == ["WARNING", "lockdep"]
