# SPDX-License-Identifier: GPL-2.0-only
"""UDP from blocking sockets into a device without a reader.

::

    udp_sender (N sockets) ---+
                              +--> qdisc --> TUN or TAP ring, never read
    then: ff02::1, fe80::2 ---+

A driver with backpressure blocks the senders, and must release them if no reader ever comes.
Multicast and neighbour discovery follow, because upstream's first version made a program hang
that used them.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from pathlib import Path

from bench.guest.scenarios.base import Metrics, Scenario, driver_metrics
from guestlib.drivers import device_flags
from guestlib.failure import GuestError
from guestlib.netstats import driver_counters, link_counters
from guestlib.process import finished, ip_batch
from guestlib.timing import time_limit
from guestlib.tundev import IFF_TAP, IFF_TUN, TunDevice, configure
from lab.variant import Variant

DEVICE = "nddev0"
MODES = {"tun": IFF_TUN, "tap": IFF_TAP}
LOCAL, REMOTE = "198.18.0.1", "198.18.0.2"
PORT = 9
SENDER_GRACE_S = time_limit(5.0)
MULTICAST_PACKETS = 600
"""More than a socket's default buffer holds."""
MULTICAST_LIMIT_S = 2
"""A send() that takes longer counts as blocked for good."""
_TIMEVAL = struct.Struct("ll")


def multicast(device: str, packets: int) -> tuple[float, int]:
    """Send IPv6 multicast and neighbour discovery through a device from one socket.

    Stop at the first send() that blocks for MULTICAST_LIMIT_S.

    Returns:
        The longest time of a send(), ms, and how many were blocked.
    """
    longest_ms, held = 0.0, 0
    scope = socket.if_nametoindex(device)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        limit = _TIMEVAL.pack(MULTICAST_LIMIT_S, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        for number in range(packets):
            address = "fe80::2" if number % 16 == 0 else "ff02::1"
            started = time.monotonic()
            try:
                sock.sendto(bytes(64), (address, PORT, 0, scope))
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                    raise
                held += error.errno == errno.EAGAIN
            longest_ms = max(longest_ms, (time.monotonic() - started) * 1e3)
            if held:
                break
    return longest_ms, held


class Guard(Scenario):
    """How long a device without a reader blocks its senders."""

    parameters = frozenset({"device", "senders", "txqueuelen", "qdisc", "payload_bytes"})

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Send for the window, then multicast; read the counters."""
        mode = self.text("device")
        if mode not in MODES:
            raise GuestError(f"a device is tun or tap, not '{mode}'")
        with TunDevice(DEVICE, MODES[mode] | device_flags(variant)):
            self._configure(mode)
            sent = finished(self._command(seconds), timeout=seconds + SENDER_GRACE_S)
            longest_ms, held = multicast(DEVICE, MULTICAST_PACKETS)
            link = link_counters(DEVICE)
            driver = driver_counters(DEVICE)
        senders = self.number("senders")
        metrics: Metrics = {
            "longest_send_ms": sent["longest_send_ns"] / 1e6,
            "not_released": sent["held_at_the_end"],
            "released": senders - sent["held_at_the_end"],
            "multicast_longest_send_ms": longest_ms,
            "multicast_not_released": held,
            "trips": sum(value for name, value in driver.items() if name.endswith("_guard_trips")),
            "sent": sent["sent"],
            "refused": sent["errors"],
            "dropped": link.tx_dropped,
            "window_s": sent["seconds"],
        }
        return metrics | driver_metrics(driver)

    def _configure(self, mode: str) -> None:
        """Configure the device with IPv6, which is off by default (guestlib.prepare.SYSCTLS)."""
        Path("/proc/sys/net/ipv6/conf", DEVICE, "disable_ipv6").write_text("0\n")
        configure(
            DEVICE,
            txqueuelen=self.number("txqueuelen"),
            qdisc=self.text("qdisc"),
            address=f"{LOCAL} peer {REMOTE}/32",
        )
        lines = [f"address add fe80::1/64 dev {DEVICE} nodad"]
        if mode == "tap":
            lines.append(f"neigh replace {REMOTE} lladdr 02:00:00:00:00:02 dev {DEVICE}")
        ip_batch(lines)

    def _command(self, seconds: float) -> list[str]:
        command = [str(self.environment.bin / "udp_sender"), "--dest", REMOTE]
        command += ["--senders", self.text("senders"), "--size", self.text("payload_bytes")]
        return [*command, "--seconds", str(seconds)]
