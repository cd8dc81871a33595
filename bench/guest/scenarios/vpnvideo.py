# SPDX-License-Identifier: GPL-2.0-only
"""A live video stream through a real VPN.

::

    (CPU 0)                  (CPU 1)       (CPU 0)
    video --> qdisc --> TUN --> VPN ==> veth ==> VPN --> TUN --> video
                                  netns ndfar: ...................

A picture's packets leave all at once, as those of GStreamer and ffmpeg do: the burst of a
whole picture is longer than a short ring, although the VPN is fast enough for the stream.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.guest.plan import Parameters
from bench.guest.scenarios.base import (
    DeviceCounts,
    Metrics,
    Scenario,
    account,
    account_metrics,
    drain,
    driver_metrics,
)
from bench.guest.scenarios.vpnhost import LIBRARY, SETTINGS, settings, udp_drops, vpn_programs
from lab.guest.drivers import awake_cpus
from lab.guest.failure import GuestError
from lab.guest.netstats import driver_counters
from lab.guest.process import finished, netns_path
from lab.guest.timing import time_limit
from lab.guest.tundev import configure
from lab.guest.variant import Variant
from lab.guest.vpns import FAR, KINDS, NEAR, Options, tunnel

CLIPS = Path(__file__).resolve().parents[3] / "bench/scenarios/clips"
CPUS = (1, 0)
"""Of the near and the far VPN; the stream's program is on the far one's."""
STREAM_CPU = "0"
END_GRACE_S = time_limit(15.0)


def video_metrics(said: dict[str, Any], before: DeviceCounts, after: DeviceCounts) -> Metrics:
    """Return what the viewer sees, and the account of the near device.

    Args:
        said: the stream's result.
        before: of the near device, when its qdisc was new.
        after: when it has come to rest.
    """
    delivered = after.link.tx_packets - before.link.tx_packets
    whole = account(said["sent"], delivered, after, before)
    missing = said["sent"] - said["received"]
    metrics: Metrics = {
        "lost_percent": 100 * missing / max(said["sent"], 1),
        "damaged_frames_percent": 100 * said["damaged"] / said["pictures"],
        "delay_p50_ms": said["p50_ns"] / 1e6,
        "delay_p99_ms": said["p99_ns"] / 1e6,
        "latest_send_ms": said["latest_send_ns"] / 1e6,
        "refused": said["send_errors"],
        "received": said["received"],
        # In the VPN, and in its sockets and the receiver's.
        "lost_elsewhere": delivered - said["received"],
        "pictures": said["pictures"],
    }
    return metrics | account_metrics(whole)


class VpnVideo(Scenario):
    """Packets lost, pictures damaged, and the delay of what comes."""

    parameters = frozenset(
        {"clip", "payload_bytes", "pictures_per_s", "qdisc", "txqueuelen", "vpn"}
    )

    @classmethod
    def host_programs(cls, parameters: Parameters) -> tuple[str, ...]:
        """Return the VPN's, too."""
        return (*super().host_programs(parameters), *vpn_programs(parameters))

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Stream for the window, wait for the last packets, read all counters."""
        name = self.text("vpn")
        if name not in KINDS:
            raise GuestError(f"there is no VPN called {name}: {', '.join(KINDS)}")
        library = self.environment.bin / LIBRARY
        asks = library if variant is Variant.UPSTREAM else None
        options = Options(offloads=False, backpressure=asks, cpus=CPUS)
        with ExitStack() as stack:
            stack.enter_context(settings(SETTINGS))
            vpn = stack.enter_context(tunnel(name, options=options))
            configure(NEAR.device, txqueuelen=self.number("txqueuelen"), qdisc=self.text("qdisc"))
            before, dropped = DeviceCounts.of(NEAR.device), self._udp_drops()
            stack.enter_context(awake_cpus(self.environment.modules))
            said = finished(self._stream(seconds), timeout=seconds + END_GRACE_S)
            after = drain(NEAR.device, said["sent"], before=before.gone)
            driver = driver_counters(NEAR.device)
            dropped = self._udp_drops() - dropped
            if trouble := vpn.lost():
                raise GuestError(f"{name} lost its peer: {', '.join(trouble)}")
        metrics = video_metrics(said, before, after) | {"udp_drops": dropped}
        return metrics | driver_metrics(driver)

    @staticmethod
    def _udp_drops() -> int:
        """Return what UDP sockets dropped at both ends, the VPN's and the receiver's."""
        return udp_drops(NEAR) + udp_drops(FAR)

    def _stream(self, seconds: float) -> list[str]:
        words = ["taskset", "--cpu-list", STREAM_CPU, str(self.environment.bin / "video")]
        words += ["--address", FAR.inner, "--netns-server", str(netns_path(str(FAR.netns)))]
        words += ["--pictures", str(CLIPS / f"{self.text('clip')}.txt")]
        words += ["--rate", self.text("pictures_per_s"), "--payload", self.text("payload_bytes")]
        return [*words, "--seconds", str(seconds)]
