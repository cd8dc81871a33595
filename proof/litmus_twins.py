# SPDX-License-Identifier: GPL-2.0-only
"""Twins of the litmus tests: each leaves something out, and must be able to fail."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

LITMUS = {path.stem: path for path in sorted((Path(__file__).parent / "litmus").glob("*.litmus"))}
"""The litmus tests: name -> file."""


class Twin(NamedTuple):
    """One change to a litmus test.

    Attributes:
        name: of the changed test.
        why: it can fail.
        edits: text that occurs exactly once in the test's code -> its replacement.
    """

    name: str
    why: str
    edits: dict[str, str]


TWINS: dict[str, tuple[Twin, ...]] = {
    "2+2W+stop-wmb-stopped+wake-release-xon": (
        Twin(
            "2+2W+stop-stopped+wake-release-xon-broken",
            "without the barrier of the sender: others may see @stopped before XOFF",
            {"\tsmp_wmb();\n": ""},
        ),
        Twin(
            "2+2W+stop-wmb-stopped+wake-xon-broken",
            "without the barrier of the consumer: others may see XOFF cleared before @stopped",
            {
                "\tint r0;\n\n": "",
                "/* clear_bit_unlock() */\n\t": "",
                "r0 = atomic_fetch_andnot_release(": "atomic_andnot(",
            },
        ),
        Twin(
            "2+2W+stopped-mb-stop+wake-release-xon-broken",
            "the sender sets @stopped before XOFF",
            {
                "atomic_or(1, xoff);\n\tsmp_wmb();\n\tWRITE_ONCE(*stopped, 1);": (
                    "WRITE_ONCE(*stopped, 1);\n\tsmp_mb();\n\tatomic_or(1, xoff);"
                )
            },
        ),
        Twin(
            "2+2W+store-wmb-stopped+wake-release-xon-broken",
            "XOFF is set and cleared by stores",
            {
                "P0(atomic_t ": "P0(int ",
                "atomic_or(1, xoff)": "WRITE_ONCE(*xoff, 1)",
                "P1(atomic_t ": "P1(int ",
                "\tint r0;\n\n": "",
                "/* clear_bit_unlock() */\n\t": "",
                "r0 = atomic_fetch_andnot_release(1, xoff)": "smp_store_release(xoff, 0)",
            },
        ),
    ),
    "ISA2+trip-lock-open+clear+stop-lock-xoff": (
        Twin(
            "ISA2+trip-open+clear+stop-lock-xoff-broken",
            "the guard does not take the ring's lock",
            {
                "P0(int *stalled, int *xoff, spinlock_t *producer_lock)": (
                    "P0(int *stalled, int *xoff)"
                ),
                "spin_lock(producer_lock);\n\tWRITE_ONCE(": "WRITE_ONCE(",
                "WRITE_ONCE(*xoff, 0);\n\tspin_unlock(producer_lock);": "WRITE_ONCE(*xoff, 0);",
            },
        ),
    ),
    "ISA2+xon-release-todo+take-lock-qlen+enqueue-lock-xoff": (
        Twin(
            "ISA2+xon-todo+take-lock-qlen+enqueue-lock-xoff-broken",
            "without the release: @todo is seen before the txq runs",
            {"smp_store_release(todo, 2)": "WRITE_ONCE(*todo, 2)"},
        ),
    ),
    "LB+use-lock-mb-slot+take-reuse": (
        Twin(
            "LB+use-lock-slot+take-reuse-broken",
            "the lock and the barrier of __ptr_ring_produce() alone, as in the stock driver:"
            " the sender may read what the packet's memory is used for next",
            {"\tsmp_mb__after_spinlock();\n": ""},
        ),
    ),
    "LB+use-release+acquire-free": (
        Twin(
            "LB+use+acquire-free-broken",
            "the kick reports its end by a plain store",
            {"smp_store_release(kicking, 0)": "WRITE_ONCE(*kicking, 0)"},
        ),
    ),
    "MP+mark-wmb-stopped+stopped-rmb-mark": (
        Twin(
            "MP+mark-stopped+stopped-rmb-mark-broken",
            "without the barrier of the sender",
            {"\tsmp_wmb();\n": ""},
        ),
        Twin(
            "MP+mark-wmb-stopped+stopped-mark-broken",
            "without the barrier of the consumer",
            {"\t\tsmp_rmb();\n": ""},
        ),
    ),
    "MP+unbind-sync-free+rcu-txq-use": (
        Twin(
            "MP+unbind-free+rcu-txq-use-broken",
            "the memory is freed without a grace period",
            {"\tsynchronize_rcu();\n": ""},
        ),
        Twin(
            "MP+unbind-sync-free+txq-use-broken",
            "the consumer is not in an RCU read-side critical section",
            {"\trcu_read_lock();\n": "", "\trcu_read_unlock();\n": ""},
        ),
    ),
    "SB+burst-mb-sleeps+sleep-mb-ring": (
        Twin(
            "SB+burst-mb-sleeps+sleep-ring-broken",
            "without the barrier of the consumer",
            {"smp_mb();\n\tr1": "r1"},
        ),
        Twin(
            "SB+burst-sleeps+sleep-mb-ring-broken",
            "without the barrier of the sender",
            {"smp_mb();\n\tr0": "r0"},
        ),
        Twin(
            "SB+first-mb-sleeps-last+sleep-mb-ring-broken",
            "the first packet of the burst notifies, and not the last",
            {
                "\tsmp_wmb();\n\tWRITE_ONCE(*last, 1);\n": "",
                "r0 = READ_ONCE(*sleeps);\n": "r0 = READ_ONCE(*sleeps);\n\tWRITE_ONCE(*last, 1);\n",
            },
        ),
    ),
    "SB+expire-lock-xoff+stop-lock-pending": (
        Twin(
            "SB+expire-xoff+stop-lock-pending-broken",
            "the guard samples without the ring's lock",
            {
                "P0(int *xoff, int *pending, spinlock_t *producer_lock)": (
                    "P0(int *xoff, int *pending)"
                ),
                "spin_lock(producer_lock);\n\tr0": "r0",
                "\tspin_unlock(producer_lock);\n}\n\nP1": "}\n\nP1",
            },
        ),
    ),
    "SB+open-lock-qlen+enqueue-lock-xoff": (
        Twin(
            "SB+open-qlen+enqueue-lock-xoff-broken",
            "the consumer reads the qdisc's length without its lock:"
            " the packet stays in the qdisc of a txq that runs",
            {
                "spin_lock(qdisc_lock);\n\tr0": "r0",
                "\tspin_unlock(qdisc_lock);\n}\n\nP1": "}\n\nP1",
            },
        ),
    ),
    "SB+open-mb-kicking+begin-mb-xoff": (
        Twin(
            "SB+open-kicking+begin-mb-xoff-broken",
            "without the barrier of the consumer",
            {"smp_mb();\n\tr0": "r0"},
        ),
        Twin(
            "SB+open-mb-kicking+begin-xoff-broken",
            "without the barrier of the kick",
            {"smp_mb();\n\tr1": "r1"},
        ),
        Twin(
            "SB+open-mb-kicking+xoff-done-broken",
            "the kick reports its end after it has read the txq's state,"
            " instead of its beginning before",
            {
                "WRITE_ONCE(*kicking, 2);\n\tsmp_mb();\n\t": "",
                "r1 = READ_ONCE(*xoff);\n": (
                    "r1 = READ_ONCE(*xoff);\n\tsmp_store_release(kicking, 0);\n"
                ),
            },
        ),
    ),
    "SB+stop-mb-taken+take-mb-stopped": (
        Twin(
            "SB+stop-mb-taken+take-stopped-broken",
            "without the barrier of the consumer: it may read @stopped before others see @taken",
            {"smp_mb();\n\tr1": "r1"},
        ),
        Twin(
            "SB+stop-taken+take-mb-stopped-broken",
            "without the barrier of the sender: it may read @taken before others see @stopped",
            {"smp_mb();\n\tr0": "r0"},
        ),
    ),
}
"""Whole test -> its twins."""


def code(test: str) -> str:
    """Return what follows the comment of a litmus test."""
    return LITMUS[test].read_text(encoding="utf-8").partition("*)\n")[2]


def twin_text(test: str, twin: Twin) -> str:
    """Return the litmus test that a twin of `test` is."""
    text = code(test)
    for old, new in twin.edits.items():
        assert text.count(old) == 1, f"{twin.name}: {old!r} occurs {text.count(old)} times"
        text = text.replace(old, new)
    return f"C {twin.name}\n{text}"
