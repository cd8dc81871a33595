# SPDX-License-Identifier: GPL-2.0-only
"""iperf3 as the bulk TCP sender, read interval by interval."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodrop.guest.failure import GuestError

INTERVAL_S = 0.1
PORT = 5201
LISTEN_TIMEOUT_S = 5.0
LISTEN_STEP_S = 0.005
_LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""


@dataclass(frozen=True)
class Goodput:
    """What the receiver got within a window.

    Attributes:
        mbit_per_s: TCP payload.
        window_s: the part of the window that the intervals cover.
    """

    mbit_per_s: float
    window_s: float


def listens(table: str, port: int = PORT) -> bool:
    """Whether a port is listened to, by the text of /proc/net/tcp or tcp6."""
    rows = (line.split() for line in table.splitlines()[1:])
    return any(row[1].endswith(f":{port:04X}") and row[3] == _LISTEN for row in rows if row)


def wait_listening(pid: int) -> None:
    """Wait until the server ``pid`` listens, in its own network namespace.

    Raises:
        GuestError: it does not within LISTEN_TIMEOUT_S seconds, or it is gone.
    """
    deadline = time.monotonic() + LISTEN_TIMEOUT_S
    tables = [
        path for name in ("tcp", "tcp6") if (path := Path(f"/proc/{pid}/net/{name}")).exists()
    ]
    while tables and time.monotonic() < deadline:
        try:
            if any(listens(path.read_text()) for path in tables):
                return
        except OSError:
            break
        time.sleep(LISTEN_STEP_S)
    raise GuestError("iperf3's server does not listen")


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
