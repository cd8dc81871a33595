# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's packet generator, controlled by its files in /proc/net/pktgen.

It passes packets to the qdisc, or directly to the driver. It counts a packet that either of them
drops as an error.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from guestlib.environment import GuestError, time_limit, wait_until
from guestlib.process import tool

PROC = Path("/proc/net/pktgen")
STOP_TIMEOUT_S = 5.0
STEP_S = 0.005
START_TIMEOUT_S = 15.0
ENOUGH_S = 1.0
"""How long to wait for senders on a CPU that a reader with realtime priority never leaves."""

_FINISHED = re.compile(r"Result: OK: \d+\(c")
_CURRENT = re.compile(r"pkts-sofar:\s*(\d+)\s+errors:\s*(\d+)")
_TIMES = re.compile(r"started:\s*(\d+)us\s+stopped:\s*(\d+)us\s+idle:\s*(\d+)us")


@dataclass(frozen=True)
class PktgenResult:
    """The counts of one pktgen device.

    Attributes:
        accepted: packets that the qdisc or the driver took.
        refused: packets that it reported as dropped.
        active_s: seconds from the first packet to the last.
    """

    accepted: int
    refused: int
    active_s: float

    @property
    def offered(self) -> int:
        """Packets passed to the qdisc or the driver."""
        return self.accepted + self.refused


def parse_device(text: str) -> PktgenResult:
    current = _CURRENT.search(text)
    times = _TIMES.search(text)
    if not current or not times:
        raise GuestError("cannot parse a pktgen device file")
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
    """Senders to one device, spread over the CPUs; a context manager.

    They are removed at its end, or earlier by :meth:`removing`, because pktgen holds the device.

    Args:
        device: a running Ethernet device.
        senders: how many; sender N runs on CPU N modulo the number of CPUs. pktgen has one thread
            per CPU, so senders on the same CPU take turns.
        packet_bytes: frame length without the checksum, bytes.
        direct: pass packets directly to the driver, bypassing the qdisc, and wait while the queue
            is stopped; otherwise pass them to the qdisc and never wait.
    """

    def __init__(self, device: str, *, senders: int, packet_bytes: int, direct: bool) -> None:
        self._names = [f"{device}@{index}" for index in range(senders)]
        self._packet_bytes = packet_bytes
        self._mode = "start_xmit" if direct else "queue_xmit"
        self._failure: OSError | None = None
        self._removed = True

    def __enter__(self) -> Self:
        if not PROC.exists():
            tool(["modprobe", "pktgen"])
        self._removed = False
        cpus = os.cpu_count() or 1
        # Without a delay the first sender of a thread is always due, and the others starve.
        delay_ns = int(len(self._names) > cpus)
        for index, name in enumerate(self._names):
            _write(f"kpktgend_{index % cpus}", f"add_device {name}")
            _write(
                name,
                "count 0",
                f"delay {delay_ns}",
                f"pkt_size {self._packet_bytes}",
                f"xmit_mode {self._mode}",
                # A new skb for each packet: a queue may hold on to it.
                "flag !SHARED",
                # Not an address of this machine, so nothing replies.
                "dst 198.18.0.1",
                "dst_mac 02:00:00:00:00:01",
            )
        return self

    def __exit__(self, *_: object) -> None:
        if not self._removed:
            self._remove()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send during the block, from its first statement on."""
        self._failure = None
        # Writing "start" returns only some time after the senders have stopped.
        starter = threading.Thread(target=self._start, daemon=True)
        starter.start()
        try:
            self._wait_running()
            yield
        finally:
            self._stop()

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Remove the senders during the block; pktgen takes 125 ms for that."""
        remover = threading.Thread(target=self._remove, daemon=True)
        remover.start()
        try:
            yield
        finally:
            remover.join(time_limit(STOP_TIMEOUT_S))
        if not self._removed:
            raise GuestError("pktgen did not remove its devices")

    def results(self) -> list[PktgenResult]:
        """Return what each sender sent in the last :meth:`sending` block."""
        return [parse_device((PROC / name).read_text()) for name in self._names]

    def _start(self) -> None:
        try:
            (PROC / "pgctrl").write_text("start\n")
        except OSError as error:
            self._failure = error

    def _wait_running(self) -> None:
        """Wait until every sender has sent, at least one of them after ENOUGH_S.

        pktgen reads commands ten times a second.
        """
        begun = time.monotonic()

        def running() -> bool:
            if self._failure:
                raise GuestError(f"pktgen did not start: {self._failure.strerror}")
            sent = [sender.offered for sender in self.results()]
            return all(sent) or (any(sent) and time.monotonic() > begun + ENOUGH_S)

        if not wait_until(running, START_TIMEOUT_S, step_s=STEP_S):
            raise GuestError(f"pktgen did not send within {time_limit(START_TIMEOUT_S):g} s")

    def _remove(self) -> None:
        _write("pgctrl", "reset")
        self._removed = True

    def _stop(self) -> None:
        _write("pgctrl", "stop")

        def stopped() -> bool:
            return all(_FINISHED.search((PROC / name).read_text()) for name in self._names)

        if not wait_until(stopped, STOP_TIMEOUT_S, step_s=STEP_S):
            raise GuestError(f"pktgen did not stop within {time_limit(STOP_TIMEOUT_S):g} s")
