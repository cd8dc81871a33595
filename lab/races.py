# SPDX-License-Identifier: GPL-2.0-only
"""Which of KCSAN's reports are about nodrop.

KCSAN watches the whole kernel by the rules of its memory model, and much of the kernel does not
keep them. Of two accesses at once, one at least is plain: that one is the mistake. A report is
ours when a plain access is made by one of our modules, or by a function of the kernel that it
called for it.
"""

from __future__ import annotations

import re

OURS = frozenset({"nodrop", "tun", "tap", "vhost_net", "nodrop_flow_test", "broken"})
"""Modules, with the kernel's own code that nodrop's are built around; the last two are the
tests'. Not the benchmarks': they read counters of the scheduler."""
NEAR = 2
"""How deep in a stack the module may be: the access itself, and who called for it."""

KNOWN: dict[str, str] = {
    r" in (?:.* / )?netif_schedule_queue\b": "the network core reads a txq's state plainly",
}
"""Plain accesses of the kernel itself that are made for us: first line of the report -> why they
are left."""

_ACCESS = re.compile(r"(?:^|, with )([a-z][a-z -]*(?:\([a-z, ]+\))?) to 0x\w+ of \d+ bytes by .*:$")
_FRAME = re.compile(r"^ \S+\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[(\w+)\])?$")


def is_foreign(report: str) -> bool:
    """Whether a report is about other parts of the kernel, or known."""
    lines = report.splitlines()
    if any(re.search(pattern, lines[0]) for pattern in KNOWN):
        return True
    return not any(OURS & set(stack[:NEAR]) for stack in plain_stacks(lines))


def plain_stacks(lines: list[str]) -> list[list[str]]:
    """Return the stacks of plain accesses, each as its frames' modules ("": none)."""
    found: list[list[str]] = []
    inside = False
    for line in lines:
        frame = _FRAME.match(line)
        if access := _ACCESS.search(line):
            inside = "marked" not in access[1]
            if inside:
                found.append([])
        elif inside and frame:
            found[-1].append(frame[1] or "")
        else:
            inside = False
    return found
