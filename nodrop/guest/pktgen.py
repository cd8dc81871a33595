# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's packet generator, through its files in /proc/net/pktgen.

In ``queue_xmit`` mode it gives its packets to the qdisc. It does not wait when the qdisc
is full: the qdisc drops, and pktgen counts that as an error.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nodrop.guest.failure import GuestError

PROC = Path("/proc/net/pktgen")
STOP_TIMEOUT_S = 5.0

_CURRENT = re.compile(r"pkts-sofar:\s*(\d+)\s+errors:\s*(\d+)")
_TIMES = re.compile(r"started:\s*(\d+)us\s+stopped:\s*(\d+)us\s+idle:\s*(\d+)us")


@dataclass(frozen=True)
class PktgenResult:
    """What one pktgen device sent.

    Attributes:
        accepted: packets the qdisc took.
        refused: packets for which it answered that it dropped one.
        active_s: seconds from the first packet to the last.
    """

    accepted: int
    refused: int
    active_s: float

    @property
    def offered(self) -> int:
        """Packets given to the qdisc."""
        return self.accepted + self.refused


def parse_device(text: str) -> PktgenResult:
    """Parse the contents of a pktgen device file."""
    current = _CURRENT.search(text)
    times = _TIMES.search(text)
    if not current or not times:
        raise GuestError("a pktgen device file has an unknown form")
    return PktgenResult(
        accepted=int(current[1]),
        refused=int(current[2]),
        active_s=(int(times[2]) - int(times[1])) / 1e6,
    )


def _write(name: str, *commands: str) -> None:
    for command in commands:
        try:
            (PROC / name).write_text(command + "\n")
        except OSError as error:
            raise GuestError(f"pktgen refused '{command}' in {name}: {error.strerror}") from error


class Pktgen:
    """Senders to one device, one on each of the first CPUs.

    Args:
        device: a running Ethernet device.
        senders: number of threads; each is bound to a CPU, starting with 0.
        packet_bytes: frame length without the checksum, bytes.
    """

    def __init__(self, device: str, *, senders: int, packet_bytes: int) -> None:
        self._names = [f"{device}@{index}" for index in range(senders)]
        self._packet_bytes = packet_bytes
        self._failure: OSError | None = None

    @contextmanager
    def configured(self) -> Iterator[None]:
        """Add the senders; remove them at the end, before the device may go."""
        if not PROC.exists():
            raise GuestError("this kernel has no pktgen")
        for cpu, name in enumerate(self._names):
            _write(f"kpktgend_{cpu}", f"add_device {name}")
            _write(
                name,
                "count 0",
                "delay 0",
                f"pkt_size {self._packet_bytes}",
                "xmit_mode queue_xmit",
                # Each packet has its own buffer: a queue may hold it.
                "flag !SHARED",
                # No address of this machine, so that nothing answers.
                "dst 198.18.0.1",
                "dst_mac 02:00:00:00:00:01",
            )
        try:
            yield
        finally:
            _write("pgctrl", "reset")

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send from here to the end of the block."""
        self._failure = None
        # Writing "start" returns when the senders have stopped.
        starter = threading.Thread(target=self._start, daemon=True)
        starter.start()
        try:
            yield
        finally:
            self._stop(starter)
        if self._failure:
            raise GuestError(f"pktgen did not start: {self._failure.strerror}")

    def results(self) -> list[PktgenResult]:
        """Return what each sender sent in the last :meth:`sending` block."""
        return [parse_device((PROC / name).read_text()) for name in self._names]

    def _start(self) -> None:
        try:
            (PROC / "pgctrl").write_text("start\n")
        except OSError as error:
            self._failure = error

    def _stop(self, starter: threading.Thread) -> None:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while starter.is_alive():
            if time.monotonic() > deadline:
                raise GuestError(f"pktgen did not stop within {STOP_TIMEOUT_S:g} s")
            _write("pgctrl", "stop")
            starter.join(0.02)
