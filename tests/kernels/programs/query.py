# SPDX-License-Identifier: GPL-2.0-only
"""Query the command as JSON and check it against its schema; traffic meanwhile."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from command import as_json
from devices import THERE
from harness import equal
from schema import validate
from traffic import SEND_TIMEOUT

from guestlib.environment import time_limit


def query(*words: str, status: int | Collection[int] = 0) -> dict[str, Any]:
    """Run ``nodrop -j WORDS``; return the object that it prints, validated by its schema."""
    data = as_json(*words, status=status)
    validate(data["command"], data)
    return data


def device(data: dict[str, Any], name: str, netns: str | None = None) -> dict[str, Any]:
    """Return one of the devices in the command's output.

    Args:
        netns: its namespace; None: the command's.
    """
    found: list[dict[str, Any]] = [
        one for one in data["devices"] if (one["name"], one["netns"]) == (name, netns)
    ]
    equal(len(found), 1, f"devices {name} in {netns or 'this namespace'}")
    return found[0]


class Bursts:
    """Send bursts of datagrams during the block, with pauses for other traffic."""

    def __init__(self, packets: int = 100, pause_s: float = 0.05) -> None:
        self._packets = packets
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Bursts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(time_limit(5))

    def _run(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND_TIMEOUT)
            while not self._stop.wait(self._pause_s):
                for _ in range(self._packets):
                    try:
                        sock.sendto(bytes(64), (THERE, 1000))
                    except BlockingIOError:
                        break
