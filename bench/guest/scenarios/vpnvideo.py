# SPDX-License-Identifier: GPL-2.0-only
"""A live video stream through a real VPN.

::

    (CPU 0)                  (CPU 1)       (CPU 0)
    video --> qdisc --> TUN --> VPN ==> veth ==> VPN --> TUN --> video
                                  netns ndfar: ...................

All packets of a frame leave at once, as with GStreamer and ffmpeg: the burst of a key frame is
longer than a short ring, although the VPN is fast enough for the stream.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.guest.plan import Parameters
from bench.guest.scenarios import base
from bench.guest.scenarios.vpnhost import LIBRARY, SETTINGS, settings, udp_drops, vpn_programs
from guestlib.drivers import awake_cpus
from guestlib.failure import GuestError
from guestlib.netstats import driver_counters
from guestlib.process import finished, netns_path
from guestlib.timing import time_limit
from guestlib.tundev import configure
from guestlib.vpns import FAR, KINDS, NEAR, Options, tunnel
from lab.variant import Variant

CLIPS = Path(__file__).resolve().parents[3] / "bench/scenarios/clips"
CPUS = (1, 0)
"""Of the near and the far VPN; the stream's program runs on the far VPN's CPU."""
STREAM_CPU = "0"
END_GRACE_S = time_limit(15.0)


def video_metrics(
    result: dict[str, Any], before: base.DeviceCounts, after: base.DeviceCounts
) -> base.Metrics:
    """Return what the viewer gets, and the account of the near device.

    Args:
        result: the stream's.
        before: of the near device, when its qdisc was new.
        after: of the drained near device.
    """
    delivered = after.link.tx_packets - before.link.tx_packets
    totals = base.account(result["sent"], delivered, after, before)
    missing = result["sent"] - result["received"]
    metrics: base.Metrics = {
        "lost_percent": 100 * missing / max(result["sent"], 1),
        "damaged_frames_percent": 100 * result["damaged"] / result["pictures"],
        "delay_p50_ms": result["p50_ns"] / 1e6,
        "delay_p99_ms": result["p99_ns"] / 1e6,
        "latest_send_ms": result["latest_send_ns"] / 1e6,
        "refused": result["send_errors"],
        "received": result["received"],
        # In the VPN, and in its sockets and the receiver's socket.
        "lost_elsewhere": delivered - result["received"],
        "pictures": result["pictures"],
    }
    return metrics | base.account_metrics(totals)


class VpnVideo(base.Scenario):
    """Dropped packets, damaged frames, and the delay of received packets."""

    parameters = frozenset(
        {"clip", "payload_bytes", "pictures_per_s", "qdisc", "txqueuelen", "vpn"}
    )

    @classmethod
    def host_programs(cls, parameters: Parameters) -> tuple[str, ...]:
        """Return the VPN's programs as well."""
        return (*super().host_programs(parameters), *vpn_programs(parameters))

    def run(self, variant: Variant, seconds: float) -> base.Metrics:
        """Stream for the window, wait for the last packets, read all counters."""
        name = self.text("vpn")
        if name not in KINDS:
            raise GuestError(f"there is no VPN called {name}: {', '.join(KINDS)}")
        library = self.environment.bin / LIBRARY
        preload = library if variant is Variant.UPSTREAM else None
        options = Options(offloads=False, backpressure=preload, cpus=CPUS)
        with ExitStack() as stack:
            stack.enter_context(settings(SETTINGS))
            vpn = stack.enter_context(tunnel(name, options=options))
            configure(NEAR.device, txqueuelen=self.number("txqueuelen"), qdisc=self.text("qdisc"))
            before, dropped = base.DeviceCounts.of(NEAR.device), self._udp_drops()
            stack.enter_context(awake_cpus(self.environment.modules))
            result = finished(self._stream(seconds), timeout=seconds + END_GRACE_S)
            after = base.drain(NEAR.device, result["sent"], before=before.gone)
            driver = driver_counters(NEAR.device)
            dropped = self._udp_drops() - dropped
            if trouble := vpn.lost():
                raise GuestError(f"{name} lost its peer: {', '.join(trouble)}")
        metrics = video_metrics(result, before, after) | {"udp_drops": dropped}
        return metrics | base.driver_metrics(driver)

    @staticmethod
    def _udp_drops() -> int:
        """Return the drops of UDP sockets at both ends, the VPN's and the receiver's."""
        return udp_drops(NEAR) + udp_drops(FAR)

    def _stream(self, seconds: float) -> list[str]:
        words = ["taskset", "--cpu-list", STREAM_CPU, str(self.environment.bin / "video")]
        words += ["--address", FAR.inner, "--netns-server", str(netns_path(str(FAR.netns)))]
        words += ["--pictures", str(CLIPS / f"{self.text('clip')}.txt")]
        words += ["--rate", self.text("pictures_per_s"), "--payload", self.text("payload_bytes")]
        return [*words, "--seconds", str(seconds)]
