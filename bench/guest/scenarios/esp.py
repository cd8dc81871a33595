# SPDX-License-Identifier: GPL-2.0-only
"""Floods a user-space VPN with UDP; the VPN encrypts each packet.

::

    netns nda                                          netns ndb
    udp_sender --> qdisc --> TUN --> esp ==> veth ==> socket: udp_sink
    (sender_cpu)                   (vpn_cpu)          (sender_cpu)

The sender and the VPN have a CPU each. The sink at the far end shares the sender's CPU and has
priority over it, so it is never late. It counts the encrypted packets in batches, which costs next
to nothing: the near end is what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from bench.guest.plan import Parameters
from bench.guest.scenarios import base
from guestlib.drivers import awake_cpus, device_flags
from guestlib.netstats import driver_counters, link_counters
from guestlib.process import Service, finished, in_netns, ip_batch, tool
from guestlib.timing import time_limit
from guestlib.tundev import IFF_TUN, TunDevice, configure
from guestlib.vpns import End
from guestlib.vpns.tunnel import VETH, veth_pair
from lab.variant import Variant

NEAR = End("nda", "ndesp-a", "192.0.2.1", "198.18.0.1")
FAR = End("ndb", "ndesp-b", "192.0.2.2", "198.18.0.2")
ESP_PORT = 4500
PORT = 9
SENDER_GRACE_S = time_limit(10.0)
SETTLE_S = 0.05
"""From the near end's last packet until that has passed the veth pair, seconds."""
NO_IPV6 = "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6"
"""Stops a namespace from sending packets of its own."""


def esp_metrics(
    reports: Sequence[dict[str, Any]],
    counts: base.DeviceCounts,
    veth_dropped: int,
    payload_bytes: int,
) -> base.Metrics:
    """Return rates, drops by place, and the account of the whole path.

    Args:
        reports: results of the sender, the VPN and the sink.
        counts: of the drained near device.
        veth_dropped: drops of the veth pair's near device.
        payload_bytes: of each of the sender's packets.
    """
    sender, near, sink = reports
    drops = {
        "lost_near_end": near["refused"],
        "lost_veth": veth_dropped,
        "lost_outer_socket": sink["socket_drops"],
    }
    elsewhere = sum(drops.values())
    delivered = sink["packets"]
    totals = base.account(sender["sent"], delivered + elsewhere, counts)
    mbit = payload_bytes * 8 / 1e6
    metrics: base.Metrics = {
        "sent_mbit_per_s": sender["sent"] * mbit / sender["seconds"],
        "received_mbit_per_s": delivered * mbit / max(sink["active_seconds"], 1e-6),
        "loss_percent": 100 * (sender["sent"] - delivered) / max(sender["sent"], 1),
        "refused": sender["errors"],
        "longest_send_ms": sender["longest_send_ns"] / 1e6,
        "lost_elsewhere": elsewhere,
    }
    for name, program in (("sender", sender), ("vpn", near)):
        cpu_us = program["cpu_seconds"] * 1e6
        metrics[f"{name}_cpu_us_per_packet"] = cpu_us / max(delivered, 1)
        for kind in ("voluntary", "involuntary"):
            per_s = program[f"{kind}_switches"] / sender["seconds"]
            metrics[f"{name}_{kind}_switches_per_s"] = per_s
    return metrics | drops | base.account_metrics(totals) | {"delivered": delivered}


class Esp(base.Scenario):
    """Sent, received and dropped packets, and the CPU time of each part."""

    parameters = frozenset(
        {
            "batch",
            "buffer_bytes",
            "payload_bytes",
            "qdisc",
            "sender_batch",
            "sender_cpu",
            "txqueuelen",
            "vpn_cpu",
        }
    )

    @classmethod
    def host_programs(cls, parameters: Parameters) -> tuple[str, ...]:
        """Return openssl as well, whose version is that of the libcrypto that encrypts."""
        return (*super().host_programs(parameters), "openssl")

    def run(self, variant: Variant, seconds: float) -> base.Metrics:
        """Send for the window, drain all queues, account for every packet."""
        with ExitStack() as stack:
            stack.enter_context(awake_cpus(self.environment.modules))
            stack.enter_context(veth_pair(NEAR, FAR))
            for end in (NEAR, FAR):
                tool(in_netns(end.netns, ["sh", "-c", NO_IPV6]))
            sink = stack.enter_context(Service(self._sink()))
            tun = stack.enter_context(TunDevice(NEAR.device, IFF_TUN | device_flags(variant)))
            ip_batch([f"link set dev {NEAR.device} netns {NEAR.netns}"])
            near = stack.enter_context(Service(self._vpn(tun.fd), pass_fds=[tun.fd]))
            configure(
                NEAR.device,
                txqueuelen=self.number("txqueuelen"),
                qdisc=self.text("qdisc"),
                address=f"{NEAR.inner} peer {FAR.inner}/32",
                netns=NEAR.netns,
            )
            sent = finished(self._sender(seconds), timeout=seconds + SENDER_GRACE_S)
            counts = base.drain(NEAR.device, sent["sent"], netns=NEAR.netns)
            driver = driver_counters(NEAR.device, netns=NEAR.netns)
            read = near.result()
            time.sleep(SETTLE_S)
            dropped = link_counters(VETH[0], netns=NEAR.netns).tx_dropped
            reports = (sent, read, sink.result())
        metrics = esp_metrics(reports, counts, dropped, self.number("payload_bytes"))
        return metrics | base.driver_metrics(driver)

    def _program(self, name: str, end: End, cpu: str, *, first: bool = False) -> list[str]:
        words = ["taskset", "--cpu-list", self.text(cpu)]
        words += ["chrt", "--fifo", "1"] if first else []
        return in_netns(end.netns, [*words, str(self.environment.bin / name)])

    def _vpn(self, tun_fd: int) -> list[str]:
        words = self._program("esp", NEAR, "vpn_cpu")
        words += ["--fd", str(tun_fd)]
        words += ["--local", NEAR.outer, "--remote", FAR.outer, "--port", str(ESP_PORT)]
        return [*words, "--batch", self.text("batch")]

    def _sink(self) -> list[str]:
        words = self._program("udp_sink", FAR, "sender_cpu", first=True)
        words += ["--local", FAR.outer, "--port", str(ESP_PORT)]
        return [*words, "--rcvbuf", self.text("buffer_bytes")]

    def _sender(self, seconds: float) -> list[str]:
        words = self._program("udp_sender", NEAR, "sender_cpu")
        words += ["--dest", FAR.inner, "--port", str(PORT)]
        words += ["--size", self.text("payload_bytes"), "--seconds", str(seconds)]
        return [*words, "--batch", self.text("sender_batch")]
