# SPDX-License-Identifier: GPL-2.0-only
"""Decides which of KCSAN's reports are about nodrop.

KCSAN checks the whole kernel against the LKMM, and much of the kernel violates it. At least one of
two racing accesses is plain, and that one is the bug. A report counts as nodrop's if a plain
access is made by one of nodrop's modules, or by a kernel function that such a module called.
"""

from __future__ import annotations

import re

OURS = frozenset({"nodrop", "tun", "tap", "vhost_net", "nodrop_flow_test", "broken"})
"""Modules that are nodrop's or built around its hooks; the last two belong to the tests. The
benchmarks' modules are left out: they read counters of the scheduler."""
MAX_DEPTH = 2
"""In how many frames of a stack the module is searched: the access itself and its caller."""

KNOWN: dict[str, str] = {
    r" in (?:.* / )?netif_schedule_queue\b": "the network core reads a txq's state plainly",
}
"""Races in the kernel's own code that nodrop triggers and leaves: pattern of the report's first
line -> reason."""

_ACCESS = re.compile(r"(?:^|, with )([a-z][a-z -]*(?:\([a-z, ]+\))?) to 0x\w+ of \d+ bytes by .*:$")
_FRAME = re.compile(r"^ \S+\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[(\w+)\])?$")


def is_foreign(report: str) -> bool:
    """Return whether a report is about another part of the kernel, or a known race."""
    lines = report.splitlines()
    if any(re.search(pattern, lines[0]) for pattern in KNOWN):
        return True
    return not any(OURS & set(stack[:MAX_DEPTH]) for stack in plain_stacks(lines))


def plain_stacks(lines: list[str]) -> list[list[str]]:
    """Return the stacks of plain accesses; a frame is its module's name, or "" for none."""
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
