# SPDX-License-Identifier: GPL-2.0-only
"""What must hold between programs: the kernel says nothing, and a device works as ever."""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodrop.guest.failure import GuestError
from nodrop.guest.slow import patience
from nodrop.guest.tundev import IFF_TUN, TunDevice, configure
from nodrop.lab.splats import find_splats

_NAME, _HERE, _THERE = "ndfuzz0", "198.18.0.1", "198.18.0.2"
_PACKETS = 100
_RING = 5
_WAIT_S = 10.0
_MORE_S = 1.0
"""How long the kernel may go on with a complaint."""


@dataclass(frozen=True)
class Finding:
    """Something that must not be.

    Attributes:
        kind: such as "KASAN", "held", "stuck".
        line: what it is.
        text: what else is known of it.
    """

    kind: str
    line: str
    text: str = ""


class Log:
    """The kernel's log from now on."""

    def __init__(self) -> None:
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._fd, 0, os.SEEK_END)

    def finding(self) -> Finding | None:
        """Return the first complaint since the last time."""
        lines = self._lines()
        if not lines or not find_splats(lines):
            return None
        time.sleep(_MORE_S)
        lines += self._lines()
        splat = find_splats(lines)[0]
        return Finding(splat.kind, splat.line, "\n".join(lines))

    def _lines(self) -> list[str]:
        lines: list[str] = []
        while True:
            try:
                record = os.read(self._fd, 8192)
            except BlockingIOError:
                return lines
            except BrokenPipeError:
                # Some were overwritten; the next ones come.
                continue
            text = record.decode(errors="replace").partition(";")[2]
            lines.append(text.splitlines()[0] if text else "")


class Health:
    """What a kernel is like while no program runs."""

    def __init__(self) -> None:
        self._users = self._read_users()

    def finding(self) -> Finding | None:
        """Return what is not as it was."""
        problem = self._carries() or self._leaves()
        return Finding("health", problem) if problem else None

    def _carries(self) -> str:
        """Return what is wrong with a fresh device; "": nothing."""
        try:
            came = self._send_and_read()
        except (GuestError, OSError) as error:
            return f"a fresh device does not work: {error}"
        return "" if came == _PACKETS else f"a fresh device carries {came} of {_PACKETS} packets"

    def _send_and_read(self) -> int:
        with (
            TunDevice(_NAME, IFF_TUN) as device,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            address = f"{_HERE} peer {_THERE}/32"
            configure(_NAME, txqueuelen=_RING, qdisc="pfifo limit 1000", address=address)
            for _ in range(_PACKETS):
                sender.sendto(bytes(100), socket.MSG_DONTWAIT, (_THERE, 9))
            os.set_blocking(device.fd, False)
            came, deadline = 0, time.monotonic() + patience(_WAIT_S)
            while came < _PACKETS and time.monotonic() < deadline:
                if select.select([device.fd], [], [], 1.0)[0]:
                    with suppress(BlockingIOError):
                        came += len(os.read(device.fd, 2000)) == 128
            return came

    def _leaves(self) -> str:
        """Return which module has users that it did not have before; "": none."""
        deadline = time.monotonic() + patience(_WAIT_S)
        while (users := self._read_users()) != self._users:
            if time.monotonic() >= deadline:
                return f"files that are not closed: {self._users} users before, {users} now"
            time.sleep(0.02)
        return ""

    @staticmethod
    def _read_users() -> dict[str, int]:
        paths = (Path("/sys/module", name, "refcnt") for name in ("tun", "vhost_net"))
        return {path.parent.name: int(path.read_text()) for path in paths if path.exists()}
