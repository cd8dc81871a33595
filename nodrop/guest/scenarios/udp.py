# SPDX-License-Identifier: GPL-2.0-only
"""UDP from blocking sockets through a qdisc into a TUN that a program reads.

::

    udp_sender (N sockets) --> qdisc --> TUN ring (txqueuelen) --> tun_reader

A socket's packets stay charged to it while the qdisc holds them, so a driver that holds
packets back holds the application back, and nothing is lost.
"""

from __future__ import annotations

from nodrop.guest.account import Account
from nodrop.guest.command import Service, parse_last_json, tool
from nodrop.guest.counters import driver_counters
from nodrop.guest.drivers import flag_words
from nodrop.guest.plan import Variant
from nodrop.guest.scenarios.base import (
    Metrics,
    Scenario,
    account_metrics,
    drain,
    driver_metrics,
)
from nodrop.guest.tundev import configure

DEVICE = "ndtun0"
ADDRESS = "198.18.0.1 peer 198.18.0.2/32"
DESTINATION = "198.18.0.2"
SENDER_GRACE_S = 5.0


class Udp(Scenario):
    """What an application that sends UDP sees."""

    parameters = frozenset(
        {"senders", "txqueuelen", "qdisc", "payload_bytes", "rate_pps", "work_ns"}
    )

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Send for the window, let the queue drain, account for every packet."""
        programs = self.environment.bin
        reader_command = [str(programs / "tun_reader"), "--mode", "tun", "--name", DEVICE]
        reader_command += ["--flags", flag_words(variant), "--work-ns", self.text("work_ns")]
        sender_command = [str(programs / "udp_sender"), "--dest", DESTINATION]
        sender_command += ["--seconds", str(seconds), "--senders", self.text("senders")]
        sender_command += ["--size", self.text("payload_bytes"), "--rate", self.text("rate_pps")]
        with Service(reader_command) as reader:
            configure(
                DEVICE,
                txqueuelen=self.number("txqueuelen"),
                qdisc=self.text("qdisc"),
                address=ADDRESS,
            )
            sent = parse_last_json(tool(sender_command, timeout=seconds + SENDER_GRACE_S), "sender")
            counts = drain(DEVICE, sent["sent"])
            driver = driver_counters(DEVICE) if variant is Variant.NODROP else {}
            read = reader.result()

        account = Account(
            offered=sent["sent"],
            delivered=read["marked"],
            queued=counts.qdisc.queued,
            lost=counts.link.tx_dropped,
            qdisc_drops=counts.qdisc.drops,
        )
        metrics: Metrics = {
            "delivered_pps": read["marked"] / read["active_seconds"],
            "offered_pps": sent["sent"] / sent["seconds"],
            "lost_pps": account.lost / sent["seconds"],
            "refused": sent["eagain"] + sent["enobufs"] + sent["other_errors"],
            "sequence_gaps": read["gaps"],
            "longest_send_ms": sent["longest_send_ns"] / 1e6,
            "reader_sleeps_per_s": read["voluntary_switches"] / read["seconds"],
            "reader_involuntary_switches_per_s": read["involuntary_switches"] / read["seconds"],
        }
        return metrics | account_metrics(account) | driver_metrics(driver)
