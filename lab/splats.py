# SPDX-License-Identifier: GPL-2.0-only
"""Finds splats in a kernel log.

Search only a kernel log: any program may print the word BUG.

KCSAN and kmemleak watch the whole kernel. Their reports about parts that nodrop does not touch are
marked as foreign, and so is one lockdep warning in UML's idle loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from nodrop.host.modules import MODULES

TIMESTAMP = re.compile(r"^(?:<\d+>)?\[\s*\d+\.\d+\](?:\[\s*[TC]\d+\])? ?")
"""What printk puts before a line; lines of the UML program itself have none."""

CONTEXT_LINES = 40
"""At most this many lines of the log belong to a splat; four times as many if a cut begins it."""

# The kind, and how its first line begins, without the time stamp. The first match names the splat,
# so the order matters.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("KASAN", r"BUG: KASAN: "),
    ("KCSAN", r"BUG: KCSAN: "),
    ("leak", r"unreferenced object\b"),
    ("leak", r"kmemleak: .*(?:disabled|Cannot allocate(?! a scan area))"),
    ("KFENCE", r"BUG: KFENCE: "),
    ("UBSAN", r"UBSAN: "),
    ("lockdep", r"WARNING: possible (?:circular locking|recursive locking|irq lock inversion)"),
    ("lockdep", r"WARNING: (?:inconsistent lock state|bad unlock balance detected)"),
    ("lockdep", r"WARNING: .*(?:lock order detected|lock held when|locks still held)"),
    ("lockdep", r"WARNING: held lock freed"),
    ("lockdep", r"WARNING: lock held when returning to user space"),
    ("lockdep", r"(?:INFO: trying to register non-static key|DEBUG_LOCKS_WARN_ON)"),
    ("lockdep", r"\[ BUG: Invalid wait context \]"),
    ("lockdep", r"BUG: MAX_LOCK(?:DEP|_DEPTH|ING)"),
    ("RCU usage", r"WARNING: suspicious RCU usage"),
    ("RCU stall", r"rcu: INFO: .*(?:detected stall|self-detected stall|detected expedited stall)"),
    ("RCU stall", r"(?:INFO: rcu_.* detected|rcu: .* kthread .*starved)"),
    ("hung task", r"INFO: task .* blocked (?:for more than|in I/O wait for more than) \d+ seconds"),
    ("lockup", r"(?:watchdog: )?BUG: (?:soft|hard) lockup|Watchdog detected hard LOCKUP"),
    ("lockup", r"BUG: workqueue lockup"),
    ("atomic sleep", r"BUG: (?:scheduling while atomic|sleeping function called from invalid)"),
    ("refcount", r"refcount_t: "),
    ("reference leak", r"unregister_netdevice: waiting for .* to become free"),
    ("reference leak", r"ref_tracker: .*(?:leaked|has \d+/\d+ users)"),
    ("list corruption", r"(?:list_add|list_del|slab|SLUB).* corrupt"),
    ("slab", r"BUG \S+.*: "),
    ("panic", r"Kernel panic - not syncing"),
    ("oops", r"(?:Oops: |general protection fault|Kernel (?:mode )?(?:fault|segfault|tried to))"),
    ("oops", r"(?:Segfault with no mm|Unable to handle kernel )"),
    ("BUG", r"(?:kernel BUG at |BUG: |------------\[ cut here)"),
    ("WARNING", r"WARNING: "),
)
_KNOWN_LEAKS = ("hostfs_",)
"""Prefixes of functions that are known to leak: UML's hostfs."""
_FRAME = re.compile(r"^\s+(?:\[<\w+>\] )?(\w+)\+0x", re.MULTILINE)
_KINDS = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)
# An IPI arrives while the idle loop has disabled interrupts, and its handler tells lockdep that
# they are enabled. Lockdep is off in this guest from then on.
_IDLE = re.compile(
    r"lockdep\.c:\d+ at default_idle_call\+.*hardirqs last  enabled .*ipi_sig_handler", re.S
)
_CUT = "------------[ cut here ]------------"
_END = re.compile(r"---\[ end (?:trace|Kernel panic)")
_LAST: dict[str, tuple[re.Pattern[str], int]] = {
    "KCSAN": (re.compile(r"={60}"), 200),
    "leak": (re.compile(r"(?! )"), 60),
}
"""By kind: a pattern of the line after a report, and the report's maximum number of lines."""
OURS = frozenset({*MODULES, "nodrop_flow_test", "broken"})
"""Modules that are nodrop's or built around its hooks; the last two belong to the tests. The
benchmarks' modules are left out: they read counters of the scheduler."""
MAX_DEPTH = 2
"""In how many frames of a stack the module is searched: the access itself and its caller."""

KNOWN_RACES: dict[str, str] = {
    r" in (?:.* / )?netif_schedule_queue\b": "the network core reads a txq's state plainly",
}
"""Races in the kernel's own code that nodrop triggers and leaves: pattern of the report's first
line -> reason."""

_ACCESS = re.compile(r"(?:^|, with )([a-z][a-z -]*(?:\([a-z, ]+\))?) to 0x\w+ of \d+ bytes by .*:$")
_RACE_FRAME = re.compile(r"^ \S+\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[(\w+)\])?$")


@dataclass(frozen=True)
class Splat:
    """One splat.

    Attributes:
        kind: such as ``"lockdep"`` or ``"WARNING"``.
        line: its most specific line, without the time stamp.
        text: the whole report.
        foreign: whether it is about a part of the kernel that nodrop does not touch.
    """

    kind: str
    line: str
    text: str
    foreign: bool = False


def strip_timestamp(line: str) -> str:
    return TIMESTAMP.sub("", line, count=1)


def classify(line: str) -> str | None:
    for kind, pattern in _KINDS:
        if pattern.match(line):
            return kind
    return None


def find_splats(log: str | Iterable[str]) -> tuple[Splat, ...]:
    """Return the splats in a kernel log that are not foreign, in order."""
    return tuple(splat for splat in find_all(log) if not splat.foreign)


def find_all(log: str | Iterable[str]) -> tuple[Splat, ...]:
    """Return all splats in a kernel log, in order.

    A report with several matching lines counts once, for example a WARNING after its "cut here"
    line.
    """
    lines = [strip_timestamp(line) for line in (log.splitlines() if isinstance(log, str) else log)]
    found: list[Splat] = []
    index = 0
    while index < len(lines):
        kind = classify(lines[index])
        if kind is None:
            index += 1
            continue
        end = _report_end(lines, index, kind)
        first = index
        if lines[index].startswith(_CUT):
            for at in range(index + 1, end):
                better = classify(lines[at])
                if better and not lines[at].startswith(_CUT):
                    kind, first = better, at
                    break
        text = "\n".join(lines[index:end])
        found.append(Splat(kind, lines[first], text, _is_foreign(kind, text)))
        index = end
    return tuple(found)


def is_foreign_leak(report: str) -> bool:
    """Return whether kmemleak reports a function that is known to leak.

    The rest of the stack does not matter: a packet that the driver leaks was allocated by its
    sender, and functions of an unloaded module have no names.
    """
    return any(name.startswith(_KNOWN_LEAKS) for name in _FRAME.findall(report))


def is_foreign_race(report: str) -> bool:
    """Return whether KCSAN reports another part of the kernel, or a known race.

    KCSAN checks the whole kernel against the LKMM, and much of the kernel violates it. At least one
    of two racing accesses is plain, and that one is the bug. A report counts as nodrop's if a plain
    access is made by one of nodrop's modules, or by a kernel function that such a module called.
    """
    lines = report.splitlines()
    if any(re.search(pattern, lines[0]) for pattern in KNOWN_RACES):
        return True
    return not any(OURS & set(stack[:MAX_DEPTH]) for stack in plain_stacks(lines))


def plain_stacks(lines: list[str]) -> list[list[str]]:
    """Return the stacks of plain accesses; a frame is its module's name, or "" for none."""
    found: list[list[str]] = []
    inside = False
    for line in lines:
        frame = _RACE_FRAME.match(line)
        if access := _ACCESS.search(line):
            inside = "marked" not in access[1]
            if inside:
                found.append([])
        elif inside and frame:
            found[-1].append(frame[1] or "")
        else:
            inside = False
    return found


def _is_foreign(kind: str, text: str) -> bool:
    if kind == "KCSAN":
        return is_foreign_race(text)
    if kind == "WARNING":
        return bool(_IDLE.search(text))
    return kind == "leak" and is_foreign_leak(text)


def _report_end(lines: list[str], start: int, kind: str) -> int:
    """Return the index after the last line of the report that starts at ``start``."""
    if kind in _LAST:
        last, most = _LAST[kind]
        for at in range(start + 1, min(len(lines), start + most)):
            if last.match(lines[at]):
                return at
        return min(len(lines), start + most)
    # What a cut begins has a mark at its end, behind a stack of any length.
    most = 4 * CONTEXT_LINES if lines[start].startswith(_CUT) else CONTEXT_LINES
    limit = min(len(lines), start + most)
    for at in range(start + 1, limit):
        if _END.match(lines[at]):
            return at + 1
        if lines[at].startswith(_CUT):
            return at
    return limit
