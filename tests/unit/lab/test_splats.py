# SPDX-License-Identifier: GPL-2.0-only
"""Reports in a guest's kernel log: splats, whether they are about nodrop, and KTAP."""

from __future__ import annotations

import pytest

from lab import splats
from lab.splats import find_all, find_splats, is_foreign_leak
from proof.leaks import split_kmemleak
from proof.selftests import Outcome, parse_ktap

FIRST_LINES = [
    ("BUG", "kernel BUG at lib/dynamic_queue_limits.c:99!"),
    ("BUG", "BUG: kernel NULL pointer dereference, address: 0000000000000010"),
    ("KASAN", "BUG: KASAN: slab-use-after-free in tun_do_read+0x41/0x90 [tun]"),
    ("UBSAN", "UBSAN: shift-out-of-bounds in net/core/dev.c:31:2"),
    ("lockdep", "WARNING: possible circular locking dependency detected"),
    ("lockdep", "WARNING: inconsistent lock state"),
    ("lockdep", "WARNING: SOFTIRQ-safe -> SOFTIRQ-unsafe lock order detected"),
    ("lockdep", "[ BUG: Invalid wait context ]"),
    ("lockdep", "INFO: trying to register non-static key."),
    ("RCU usage", "WARNING: suspicious RCU usage"),
    ("RCU stall", "rcu: INFO: rcu_sched self-detected stall on CPU"),
    ("RCU stall", "rcu: rcu_sched kthread timer wakeup didn't happen for 2199 jiffies! starved"),
    ("hung task", "INFO: task udp_sender:87 blocked for more than 20 seconds."),
    ("lockup", "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [kpktgend_1:33]"),
    ("atomic sleep", "BUG: sleeping function called from invalid context at mm/slub.c:99"),
    ("refcount", "refcount_t: underflow; use-after-free."),
    ("reference leak", "unregister_netdevice: waiting for tap0 to become free. Usage count = 2"),
    ("slab", "BUG skbuff_head_cache (Not tainted): Poison overwritten"),
    ("list corruption", "list_del corruption. next->prev should be ffff, but was 0"),
    ("panic", "Kernel panic - not syncing: Fatal exception in interrupt"),
    ("oops", "Oops: general protection fault [#1] SMP"),
    ("oops", "Kernel mode fault at addr 0x10, ip 0x60012345"),
]
WARNING = (
    "[    3.121000] ------------[ cut here ]------------\n"
    "[    3.121004] WARNING: drivers/net/tun.c:1034 at tun_net_xmit+0x1c/0x30 [tun], CPU#1\n"
    "[    3.121009] Modules linked in: tun\n"
    "[    3.121031] ---[ end trace 0000000000000000 ]---\n"
)
ORDINARY = """\
[    0.000000] Linux version 7.3.4 (nodrop@lab) (gcc 12.2.0) #1 SMP
[    0.100000] rcu: INFO about nothing at all
[    0.300000] Warning: unable to open an initial console.
[    0.410000] AMD-Vi: AMD IOMMUv2 functionality not available on this system - This is not a bug.
[    0.600000] kunit: WARNING: is mentioned in the middle of a line
[    0.700000] debug: BUG_ON is compiled in
[    0.800000] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar
[    0.900000] INFO: lockdep is turned off on request
[    3.721933] nodrop: module verification failed: signature and/or required key missing
[    9.100000] clocksource: Long readout interval, skipping watchdog check: cs_nsec: 1345719011
[    9.700000] INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.203 msecs
[   10.000000] reboot: Power down
"""


@pytest.mark.parametrize(("kind", "line"), FIRST_LINES)
def test_each_kind_is_found_once(kind: str, line: str) -> None:
    found = find_splats(f"{ORDINARY}[   12.345678][   T93] {line}\n[   99.0] something else\n")
    assert [(splat.kind, splat.line) for splat in found] == [(kind, line)]


def test_end_of_reports() -> None:
    assert find_splats(ORDINARY) == ()
    first, second = find_splats(f"{WARNING}[    3.2] tap0: link becomes ready\n{WARNING}")
    assert first.line.startswith("WARNING: drivers/net/tun.c:1034")
    assert first.text == second.text
    assert len(first.text.splitlines()) == 4


RULE = "=" * 66
OURS = "nodrop_release+0x10/0x200 [nodrop]"
CORE = "dql_completed+0x1/0x90"
SYSCALL = "do_syscall_64+0x4d/0x110"


def race(*stacks: tuple[str, ...], head: str = "data-race in a / b", how: str = "write") -> str:
    """Return a report of KCSAN in a kernel log; ``how`` is the first access."""
    lines = [RULE, f"BUG: KCSAN: {head}", ""]
    for cpu, frames in enumerate(stacks):
        access = "read" if cpu else how
        lines.append(f"{access} to 0xffff888003c3f0a8 of 4 bytes by task 7{cpu} on cpu {cpu}:")
        lines += [f" {frame}" for frame in frames]
        lines.append("")
    lines += ["value changed: 0x00000001 -> 0x00000002", "", "Reported by ... on:", RULE]
    return "".join(f"[   12.{at:06d}] {line}\n" for at, line in enumerate(lines))


@pytest.mark.parametrize(
    ("stacks", "how", "foreign"),
    [
        (((CORE, SYSCALL), (CORE, SYSCALL)), "write", True),
        (((OURS, SYSCALL), (CORE, SYSCALL)), "write", False),
        ((("tun_net_xmit+0x1/0x90 [nodrop_tun]",), (CORE, SYSCALL)), "write", False),
        (((CORE, SYSCALL), (OURS, SYSCALL)), "write", False),
        (((CORE, OURS, SYSCALL), (CORE, SYSCALL)), "write", False),
        (((CORE, SYSCALL, SYSCALL, OURS), (CORE, SYSCALL)), "write", True),
        (((CORE, *[SYSCALL] * 60), (OURS, SYSCALL)), "write", False),
        # A marked access is no bug.
        (((OURS, SYSCALL), (CORE, SYSCALL)), "write (marked)", True),
        (((CORE, SYSCALL), (OURS, SYSCALL)), "write (marked)", False),
        (((OURS, SYSCALL),), "race at unknown origin, with read", False),
    ],
)
def test_race_counts_by_module_of_plain_access(
    stacks: tuple[tuple[str, ...], ...], how: str, foreign: bool
) -> None:
    (found,) = find_all(race(*stacks, how=how))
    assert (found.kind, found.foreign) == ("KCSAN", foreign)


def test_races_are_separate_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    log = race((CORE,), (CORE,)) + race((OURS,), (CORE,)) + race((CORE,), (CORE,))
    assert [one.foreign for one in find_all(log)] == [True, False, True]
    monkeypatch.setattr(splats, "KNOWN_RACES", {r"in a / b$": "why"})
    assert find_splats(log) == ()


LEAK = "unreferenced object 0x0000000061a3c400 (size 256):\n  backtrace (crc 8f1e2a):\n"
PACKET = LEAK + "    __alloc_skb+0xb2/0x1d0\n    udp_sendmsg+0x4a1/0xb60\n"
GONE = LEAK + "    kmalloc_noprof+0x9a/0x240\n    0x64a81234\n"
HOSTFS = LEAK + "    __kmalloc_noprof+0xb2/0x1d0\n    hostfs_parse_param+0x4a/0x90\n"


def in_log(text: str) -> str:
    return "".join(f"[   31.250000] {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("place", "handler", "foreign"),
    [
        ("default_idle_call", "ipi_sig_handler", True),
        ("default_idle_call", "tun_net_xmit", False),
        ("tun_net_xmit", "ipi_sig_handler", False),
    ],
)
def test_idle_loop_of_uml(place: str, handler: str, foreign: bool) -> None:
    log = (
        "------------[ cut here ]------------\n"
        f"WARNING: kernel/locking/lockdep.c:4546 at {place}+0xc8/0x1b8, CPU#1: swapper/1/0\n"
        + " [<600633c6>] ? do_idle+0x122/0x290\n"
        * 60
        + f"hardirqs last  enabled at (10261): [<600633c6>] {handler}+0x56/0x70\n"
        "---[ end trace 0000000000000000 ]---"
    )
    (found,) = find_all(log)
    assert found.foreign == foreign


def test_leaks_count_unless_known() -> None:
    log = in_log(HOSTFS + PACKET + HOSTFS + GONE) + "[   31.3] reboot: Power down\n"
    assert [one.foreign for one in find_all(log)] == [True, False, True, False]
    assert [one.text for one in find_splats(log)] == [PACKET.rstrip(), GONE.rstrip()]
    reports = split_kmemleak(PACKET + HOSTFS)
    assert [is_foreign_leak(report) for report in reports] == [False, True]


def test_kmemleak_disabled() -> None:
    off = "kmemleak: Kernel memory leak detector disabled"
    full = "kmemleak: Cannot allocate a kmemleak_object structure"
    area = "kmemleak: Cannot allocate a scan area, scanning the full object"
    for line, found in ((off, 1), (full, 1), (area, 0)):
        assert len(find_splats(in_log(line))) == found, line


PASSED, FAILED, SKIPPED = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED


@pytest.mark.parametrize(
    ("text", "outcomes"),
    [
        (
            "TAP version 13\n1..3\nok 1 - a\nnot ok 2 b\nok 3 c # SKIP no vhost\n",
            {"a": PASSED, "b": FAILED, "c": SKIPPED},
        ),
        (
            "[    1.0] KTAP version 1\n[    1.0] 1..1\n[    1.0]     KTAP version 1\n"
            "[    1.0]     1..2\n[    1.0]     ok 1 x\n[    1.0] tun: another line\n"
            "[    1.0]     # y: EXPECTATION FAILED\n[    1.0]     not ok 2 y\n"
            "[    1.0] not ok 1 s\n",
            {"s/x": PASSED, "s/y": FAILED},
        ),
        ("1..1\n  1..1\n  not ok 1 inner\nok 1 outer\n", {"outer/inner": FAILED}),
        ("1..1\n  1..1\n  ok 1 i\nnot ok 1 o\n", {"o/i": PASSED, "o": FAILED}),
        ("1..3\nok 1 a\nok 2 b\n", {"a": PASSED, "b": PASSED, "plan": FAILED}),
        ("1..1\n  1..2\n  ok 1 i\nok 1 o\n", {"o/i": PASSED, "o/plan": FAILED}),
        ("just text\nokay then\n", {}),
        ("1..1\nok 1\n", {"1": PASSED}),
    ],
)
def test_ktap(text: str, outcomes: dict[str, Outcome]) -> None:
    assert {n: c.outcome for case in parse_ktap(text) for n, c in case.leaves()} == outcomes
