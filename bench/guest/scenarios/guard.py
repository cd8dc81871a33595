# SPDX-License-Identifier: GPL-2.0-only
"""UDP from blocking sockets into a device that nobody reads.

::

    udp_sender (N sockets) ---+
                              +--> qdisc --> TUN or TAP ring, never read
    then: ff02::1, fe80::2 ---+

A driver that holds packets back holds the senders, too; with a reader that never comes it
must let them go. Multicast and neighbour discovery follow, since a program that used
them is what hung with upstream's first version.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from pathlib import Path

from bench.guest.scenarios.base import Metrics, Scenario, driver_metrics
from lab.guest.drivers import device_flags
from lab.guest.failure import GuestError
from lab.guest.netstats import driver_counters, link_counters
from lab.guest.process import finished, ip_batch
from lab.guest.timing import time_limit
from lab.guest.tundev import IFF_TAP, IFF_TUN, TunDevice, configure
from lab.guest.variant import Variant

DEVICE = "nddev0"
MODES = {"tun": IFF_TUN, "tap": IFF_TAP}
HERE, THERE = "198.18.0.1", "198.18.0.2"
PORT = 9
SENDER_GRACE_S = time_limit(5.0)
MULTICAST_PACKETS = 600
"""More than a socket's default buffer can take."""
MULTICAST_LIMIT_S = 2
"""A send that takes longer has not been released."""
_TIMEVAL = struct.Struct("ll")


def multicast(device: str, packets: int) -> tuple[float, int]:
    """Send IPv6 multicast and neighbour discovery through a device from one socket.

    Ends at the first send that is held for MULTICAST_LIMIT_S.

    Returns:
        How long a send took at most, ms, and how many were held.
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
    """How long senders are held by a device that nobody reads."""

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
        """IPv6 is off for new devices (runner.SYSCTLS); here it is what is tested."""
        Path("/proc/sys/net/ipv6/conf", DEVICE, "disable_ipv6").write_text("0\n")
        configure(
            DEVICE,
            txqueuelen=self.number("txqueuelen"),
            qdisc=self.text("qdisc"),
            address=f"{HERE} peer {THERE}/32",
        )
        lines = [f"address add fe80::1/64 dev {DEVICE} nodad"]
        if mode == "tap":
            lines.append(f"neigh replace {THERE} lladdr 02:00:00:00:00:02 dev {DEVICE}")
        ip_batch(lines)

    def _command(self, seconds: float) -> list[str]:
        command = [str(self.environment.bin / "udp_sender"), "--dest", THERE]
        command += ["--senders", self.text("senders"), "--size", self.text("payload_bytes")]
        return [*command, "--seconds", str(seconds)]
