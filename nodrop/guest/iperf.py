# SPDX-License-Identifier: GPL-2.0-only
"""iperf3 as the bulk TCP sender, read interval by interval."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from nodrop.guest.failure import GuestError

INTERVAL_S = 0.1


@dataclass(frozen=True)
class Goodput:
    """What the receiver got within a window.

    Attributes:
        mbit_per_s: TCP payload.
        window_s: the part of the window that the intervals cover.
    """

    mbit_per_s: float
    window_s: float


def _object(text: str) -> dict[str, Any]:
    try:
        result = json.loads(text)
    except ValueError as error:
        raise GuestError(f"iperf3 printed no result: {text.strip()[:200]}") from error
    if not isinstance(result, dict) or not result.get("intervals"):
        why = result.get("error") if isinstance(result, dict) else None
        raise GuestError(f"iperf3 measured nothing: {why or 'no intervals'}")
    return result


def goodput(server_text: str, *, skip_s: float, window_s: float) -> Goodput:
    """Return the receiver's goodput from ``iperf3 --server --json``.

    Args:
        skip_s: seconds from the start that do not count.
        window_s: seconds after that which do.

    Raises:
        GuestError: no interval of the output touches the window.
    """
    total_bytes = 0.0
    total_s = 0.0
    for interval in _object(server_text)["intervals"]:
        part = interval["sum"]
        # A busy iperf3 reports late: an interval may reach into the window or out of it.
        inside = min(part["end"], skip_s + window_s) - max(part["start"], skip_s)
        if inside > 0:
            total_bytes += part["bytes"] * inside / (part["end"] - part["start"])
            total_s += inside
    if total_s <= 0:
        raise GuestError("iperf3's intervals do not cover the measured window")
    return Goodput(mbit_per_s=total_bytes * 8 / total_s / 1e6, window_s=total_s)


def retransmits(client_text: str) -> int:
    """Return the segments sent again, over the whole connection."""
    return sum(int(part["sum"]["retransmits"]) for part in _object(client_text)["intervals"])
