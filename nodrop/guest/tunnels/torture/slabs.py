# SPDX-License-Identifier: GPL-2.0-only
"""Routes that do not come back: how many there are of each kind, by the kernel's own count."""

from __future__ import annotations

import time
from pathlib import Path

from nodrop.guest.slow import patience
from nodrop.guest.torture.leaks import SHRINK

SLABINFO = Path("/proc/slabinfo")
CACHES = (
    "net_namespace",
    "rtable",
    "ip6_dst_cache",
    "xfrm_dst",
    "xfrm_state",
    "fib6_node",
    "ip_fib_alias",
    "ip_fib_trie",
    "sctp_chunk",
)
GOING_S = 20.0
"""How long namespaces and devices may take to go."""
_STEP_S = 0.25


def counts() -> dict[str, int]:
    """Return how many objects of each cache are in use, what is free given back.

    Empty where the kernel does not tell (SLUB_DEBUG).
    """
    for name in CACHES:
        for file in SHRINK.glob(f"{name}/shrink"):
            file.write_text("1")
    if not SLABINFO.exists():
        return {}
    found: dict[str, int] = {}
    for line in SLABINFO.read_text().splitlines():
        name, *numbers = line.split()
        if name in CACHES:
            found[name] = int(numbers[0])
    return found


def settled(start: dict[str, int] | None = None) -> dict[str, int]:
    """Wait until there is no more of anything than at the start; return how many there are.

    Args:
        start: None: wait until the numbers stay.
    """
    deadline = time.monotonic() + patience(GOING_S)
    before: dict[str, int] = {}
    while True:
        now = counts()
        same = not grown(start, now) if start is not None else now == before
        if same or time.monotonic() > deadline:
            return now
        before = now
        time.sleep(_STEP_S if start is not None else 4 * _STEP_S)


def grown(start: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """Return by how much which caches have more objects in use than at the start."""
    return {name: count - start[name] for name, count in now.items() if count > start.get(name, 0)}
