# SPDX-License-Identifier: GPL-2.0-only
"""iperf3's TCP flows through one TAP queue, read by vhost-net or a program.

::

    netns nda (CPU 0)             CPU 1                         netns ndb (CPU 0)
    iperf3 -c --> qdisc --> TAP --> [vhost] --> [client] --> TAP --> iperf3 -s
        <---------- ACKs <--------- [vhost] <-- [client] <-- TAP <-- qdisc <--

The client stands for a virtual machine (guestlib/traffic/vhost_far.c), and the second TAP for the
network inside it; large packets are not segmented. The program
(guestlib/traffic/forwarder.c) stands for a VPN: packets of 1500 bytes, one ``read()`` and one
``write()`` for each.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.guest import iperf
from bench.guest.plan import Parameters
from bench.guest.scenarios.base import Metrics, Scenario, driver_metrics
from bench.guest.vhostpair import Ends, VhostReader, no_addresses, open_taps
from bench.guest.vpn import ADDRESSES, DEVICES, NETNS, set_up_ends, wait_until_idle
from guestlib.drivers import awake_cpus
from guestlib.failure import GuestError
from guestlib.namespaces import namespaces
from guestlib.netstats import driver_counters
from guestlib.process import Service
from lab.variant import Variant

WARM_UP_S = 0.4
"""From the first flow's start to the measured window, seconds: windows open, queues fill."""


class UserReader:
    """A program that forwards packets by read() and write()."""

    def __init__(self, program: Service) -> None:
        self._program = program

    def carried(self) -> int:
        """Return 0: it reports only at its end."""
        return 0

    def metrics(self, ends: Ends) -> Metrics:
        """Account for packets that the qdiscs passed on; without offloads the counts agree."""
        cpu_ns = self._program.cpu_ns
        result = self._program.result()
        forward, reverse = (result[way] for way in ("a_to_b", "b_to_a"))
        given = sum(end.qdisc.packets for end in ends)
        lost = sum(end.link.tx_dropped for end in ends)
        return {
            "delivered": forward["packets"],
            "bytes_per_packet": forward["bytes"] / max(forward["packets"], 1),
            "unaccounted": given - forward["packets"] - reverse["packets"] - lost,
            "reader_cpu_us_per_packet": cpu_ns / 1e3 / max(forward["packets"], 1),
        }


class Tcp(Scenario):
    """Goodput of several flows, and drops on the way to their reader."""

    parameters = frozenset(
        {
            "buffer_bytes",
            "client_cpu",
            "flows",
            "qdisc",
            "reader",
            "reader_cpu",
            "slots",
            "traffic_cpu",
            "txqueuelen",
        }
    )
    uses_vhost = True

    @classmethod
    def host_programs(cls, parameters: Parameters) -> tuple[str, ...]:
        """Return iperf3 as well."""
        return (*super().host_programs(parameters), "iperf3")

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Run iperf3, drain the queues, account for every packet."""
        with ExitStack() as stack:
            stack.enter_context(namespaces(*NETNS))
            reader = self._reader(variant, stack)
            set_up_ends(txqueuelen=self.number("txqueuelen"), qdisc=self.text("qdisc"))
            stack.enter_context(awake_cpus(self.environment.modules))
            flows = iperf.run(
                (NETNS[0], NETNS[1]),
                ADDRESSES[1],
                cpus=(self.text("traffic_cpu"), self.text("traffic_cpu")),
                flows=self.number("flows"),
                buffer_bytes=self.number("buffer_bytes"),
                warm_up_s=WARM_UP_S,
                seconds=seconds,
            )
            no_addresses()
            forward, reverse = wait_until_idle(reader.carried)
            driver = driver_counters(DEVICES[0], netns=NETNS[0])
            carried = reader.metrics((forward, reverse))
        metrics: Metrics = {
            "goodput_mbit_per_s": flows.bytes * 8 / flows.window_s / 1e6,
            "retransmits": flows.retransmits,
            "lost": forward.link.tx_dropped,
            "lost_back": reverse.link.tx_dropped,
            "qdisc_drops": forward.qdisc.drops + reverse.qdisc.drops,
            "requeues": forward.qdisc.requeues,
            "window_s": flows.window_s,
        }
        return metrics | carried | driver_metrics(driver)

    def _reader(self, variant: Variant, stack: ExitStack) -> VhostReader | UserReader:
        kind = self.text("reader")
        if kind == "vhost":
            return VhostReader(
                variant,
                self.environment,
                stack,
                slots=self.number("slots"),
                cpu=self.number("client_cpu"),
                worker_cpu=self.number("reader_cpu"),
            )
        if kind != "user":
            raise GuestError(f"a reader is vhost or user, not '{kind}'")
        command = ["taskset", "--cpu-list", self.text("reader_cpu")]
        command.append(str(self.environment.bin / "forwarder"))
        fds = open_taps(variant, stack, 0)
        command += ["--fd-a", str(fds[0]), "--fd-b", str(fds[1])]
        return UserReader(stack.enter_context(Service(command, pass_fds=fds)))
