# SPDX-License-Identifier: GPL-2.0-only
"""One TCP flow and an echo probe through a user-space VPN that does no cryptography.

::

    netns nda                                                  netns ndb
    iperf3 -c ---+                                         +--> iperf3 -s
                 +--> qdisc --> TUN --> [forwarder] --> TUN +
    echo_probe --+                                         +--> echo thread
       <-------------- TUN <-- [forwarder] <-- TUN <-- qdisc <-------
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from nodrop.guest.command import Service, in_netns, netns_path, parse_last_json, tool
from nodrop.guest.counters import driver_counters
from nodrop.guest.drivers import flag_words
from nodrop.guest.iperf import INTERVAL_S, goodput, retransmits, wait_listening
from nodrop.guest.netns import namespaces
from nodrop.guest.plan import Variant
from nodrop.guest.scenarios.base import Metrics, Scenario, drain, driver_metrics
from nodrop.guest.tundev import configure

NETNS = ("nda", "ndb")
DEVICES = ("ndvpn-a", "ndvpn-b")
ADDRESSES = ("198.18.0.1", "198.18.0.2")
WARM_UP_S = 0.3
"""From the start of the TCP flow to the measured window."""
PROBE_GRACE_S = 0.1
IPERF_LIMIT_S = 3600
SERVER_GRACE_S = 1.0
END_GRACE_S = 15.0


class NullVpn(Scenario):
    """Latency under load, goodput and retransmits of traffic through a VPN."""

    parameters = frozenset(
        {"txqueuelen", "qdisc", "work_ns", "vpn_cpu", "probe_interval_us", "keep_cpus_awake"}
    )

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Load the VPN, probe it during the window, read all counters."""
        with ExitStack() as stack:
            stack.enter_context(namespaces(*NETNS))
            forwarder = stack.enter_context(Service(self._forwarder(variant)))
            for netns, device, index in zip(NETNS, DEVICES, (0, 1), strict=True):
                configure(
                    device,
                    txqueuelen=self.number("txqueuelen"),
                    qdisc=self.text("qdisc"),
                    address=f"{ADDRESSES[index]} peer {ADDRESSES[1 - index]}/32",
                    netns=netns,
                )
            if self.flag("keep_cpus_awake"):
                spin_s = WARM_UP_S + seconds + END_GRACE_S
                spinner = [str(self.environment.bin / "cpu_spinner"), "--seconds", str(spin_s)]
                stack.enter_context(Service(spinner, announces=False))
            probe, client, server = self._traffic(seconds)
            counts = [
                drain(device, netns=netns) for device, netns in zip(DEVICES, NETNS, strict=True)
            ]
            driver = (
                driver_counters(DEVICES[0], netns=NETNS[0]) if variant is Variant.NODROP else {}
            )
            forwarded = forwarder.result()
        flow = goodput(server, skip_s=WARM_UP_S, window_s=seconds)
        lost = sum(count.link.tx_dropped for count in counts)
        given = sum(count.qdisc.packets for count in counts)
        read = sum(forwarded[way]["packets"] for way in ("a_to_b", "b_to_a"))
        metrics: Metrics = {
            "goodput_mbit_per_s": flow.mbit_per_s,
            "retransmits": retransmits(client),
            "latency_p50_ms": probe["p50_ns"] / 1e6,
            "latency_p90_ms": probe["p90_ns"] / 1e6,
            "latency_p99_ms": probe["p99_ns"] / 1e6,
            "latency_p999_ms": probe["p999_ns"] / 1e6,
            "latency_max_ms": probe["max_ns"] / 1e6,
            "probes": probe["sent"],
            "probes_lost": probe["lost"],
            "latest_probe_ms": probe["latest_send_ns"] / 1e6,
            "lost": lost,
            "delivered": read,
            "given_to_driver": given,
            "unaccounted": given - read - lost,
            "qdisc_drops": sum(count.qdisc.drops for count in counts),
            "requeues": sum(count.qdisc.requeues for count in counts),
            "write_errors": sum(forwarded[way]["write_errors"] for way in ("a_to_b", "b_to_a")),
            **_switches(forwarded),
            "window_s": flow.window_s,
        }
        return metrics | driver_metrics(driver)

    def _forwarder(self, variant: Variant) -> list[str]:
        command = ["taskset", "--cpu-list", self.text("vpn_cpu")]
        command += [str(self.environment.bin / "forwarder"), "--work-ns", self.text("work_ns")]
        for side, netns, device in zip("ab", NETNS, DEVICES, strict=True):
            command += [f"--netns-{side}", str(netns_path(netns)), f"--name-{side}", device]
        return [*command, "--flags", flag_words(variant)]

    def _traffic(self, seconds: float) -> tuple[dict[str, Any], str, str]:
        """Return the probe's result, and what iperf3's two sides printed."""
        common = ["iperf3", "--json", "--interval", str(INTERVAL_S)]
        serve = in_netns(NETNS[1], [*common, "--server", "--one-off"])
        send = in_netns(NETNS[0], [*common, "--client", ADDRESSES[1], "--time", str(IPERF_LIMIT_S)])
        # The probe runs ahead of the load, so that it tells of queues and of the VPN rather
        # than of its own turn on a busy CPU.
        probe = ["chrt", "--fifo", "1", str(self.environment.bin / "echo_probe")]
        probe += ["--address", ADDRESSES[1]]
        probe += ["--netns-client", str(netns_path(NETNS[0]))]
        probe += ["--netns-server", str(netns_path(NETNS[1]))]
        probe += ["--interval-us", self.text("probe_interval_us"), "--seconds", str(seconds)]
        probe += ["--grace", str(PROBE_GRACE_S)]
        with Service(serve, announces=False, stopped_status=1) as server:
            wait_listening(server.pid)
            with Service(send, announces=False, stopped_status=1) as client:
                time.sleep(WARM_UP_S)
                echoed = tool(probe, timeout=seconds + END_GRACE_S)
                client_text = client.stop()
            server_text = server.finish(SERVER_GRACE_S)
        return parse_last_json(echoed, "echo_probe"), client_text, server_text


def _switches(forwarded: dict[str, Any]) -> Metrics:
    sides = [forwarded[way] for way in ("a_to_b", "b_to_a")]
    seconds = forwarded["seconds"]
    return {
        "forwarder_sleeps_per_s": sum(side["voluntary_switches"] for side in sides) / seconds,
        "forwarder_involuntary_switches_per_s": sum(side["involuntary_switches"] for side in sides)
        / seconds,
    }
