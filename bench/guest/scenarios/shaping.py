# SPDX-License-Identifier: GPL-2.0-only
"""Two classes of UDP traffic through a shaper on a TUN that a program reads.

::

    CPU 0                                                              CPU 1
    class 1: sockets --+
                       +--> htb, cake or fq_codel --> TUN ring --> tun_reader
    class 2: sockets --+

The bottleneck is either the shaper or the reader, like a VPN that is slower than its administrator
assumes. A class's due share of all delivered packets follows from the configuration: from the rates
with htb, otherwise from the numbers of flows. A class that demands less should get all its demand.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.guest import shares
from bench.guest.scenarios import base
from guestlib.drivers import awake_cpus, device_flags
from guestlib.failure import GuestError
from guestlib.netstats import driver_counters
from guestlib.process import Service, finished, tool
from guestlib.timing import time_limit
from guestlib.tundev import IFF_TUN, TunDevice, configure
from lab.variant import Variant

DEVICE = "ndtun0"
ADDRESS = "198.18.0.1 peer 198.18.0.2/32"
DESTINATION = "198.18.0.2"
END_GRACE_S = time_limit(10.0)
LEAD = 0.2
"""Share of the window to skip at its start, while queues fill."""
HTB_PERCENT = (80, 20)
HTB_CLASSES = (0x10010, 0x10020)
"""SO_PRIORITY of the two classes: class 1:10 and class 1:20."""
HTB_QUANTA = (12000, 3000)
"""Bytes that a class may send in a turn, in the ratio of the rates. By default htb takes a tenth of
the rate, at most 200 kB, which is the same for all classes of a fast link."""
BURST_BYTES = 32000
EXPEDITED = 0xB8
"""TOS of DSCP EF, for which cake's diffserv4 has a separate tin."""


@dataclass(frozen=True)
class Shaper:
    """A shaping qdisc, and how packets are assigned to its two classes.

    Attributes:
        root: the root qdisc, in ``tc``'s syntax.
        below: further ``tc`` commands; ``{device}`` is the device.
        weights: of both classes.
        priorities: SO_PRIORITY of both classes, 0: none.
        tos: of class 1.
    """

    root: str
    below: tuple[str, ...]
    weights: tuple[float, float]
    priorities: tuple[int, int] = (0, 0)
    tos: int = 0


def _htb_class(parent: str, name: str, kbit: int, percent: int = 100, quantum: int = 0) -> str:
    """Return the ``tc`` command that adds a class; bursts are in the ratio of the rates, too."""
    burst = BURST_BYTES * percent // 100
    words = f"class add dev {{device}} parent {parent} classid {name} htb"
    words += f" rate {kbit * percent // 100}kbit ceil {kbit}kbit burst {burst} cburst {burst}"
    return f"{words} quantum {quantum}" if quantum else words


def shaper(qdisc: str, kbit: int, flows: tuple[int, int], *, is_bottleneck: bool) -> Shaper:
    """Return the configuration of a shaper.

    Args:
        qdisc: htb, with quanta in the ratio of the rates; htb-own, with htb's default quanta; cake
            or fq_codel.
        kbit: its rate, kbit/s.
        flows: of each class; fq_codel and cake divide the rate by flow.
        is_bottleneck: shape to the link's rate; fq_codel, which has no rate, gets an htb above it.

    Raises:
        GuestError: there is no such shaper.
    """
    if qdisc in ("htb", "htb-own"):
        quanta = HTB_QUANTA if qdisc == "htb" else (0, 0)
        leaves = (
            _htb_class("1:1", f"1:{name}", kbit, percent, quantum)
            for name, percent, quantum in zip((10, 20), HTB_PERCENT, quanta, strict=True)
        )
        return Shaper(
            "handle 1: htb default 20",
            (_htb_class("1:", "1:1", kbit), *leaves),
            (float(HTB_PERCENT[0]), float(HTB_PERCENT[1])),
            priorities=HTB_CLASSES,
        )
    by_flow = (float(flows[0]), float(flows[1]))
    if qdisc == "cake":
        return Shaper(f"cake bandwidth {kbit}kbit diffserv4", (), by_flow, tos=EXPEDITED)
    if qdisc == "fq_codel" and is_bottleneck:
        leaf = "qdisc add dev {device} parent 1:1 fq_codel"
        below = (_htb_class("1:", "1:1", kbit), leaf)
        return Shaper("handle 1: htb default 1", below, by_flow)
    if qdisc == "fq_codel":
        return Shaper("fq_codel", (), by_flow)
    raise GuestError(f"a shaper is htb, htb-own, cake or fq_codel, not '{qdisc}'")


class Shaping(base.Scenario):
    """The shares of two classes, compared with their due shares."""

    parameters = frozenset(
        {
            "bottleneck",
            "fast_kbit",
            "first_rate_pps",
            "first_senders",
            "payload_bytes",
            "qdisc",
            "reader_cpu",
            "rest_senders",
            "slow_kbit",
            "traffic_cpu",
            "txqueuelen",
            "work_ns",
        }
    )

    def run(self, variant: Variant, seconds: float) -> base.Metrics:
        """Send both classes for the window, drain the queue, account for every packet."""
        chosen = self._shaper()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            log = folder / "log"
            tun = stack.enter_context(TunDevice(DEVICE, IFF_TUN | device_flags(variant)))
            reader = stack.enter_context(Service(self._reader(tun.fd, log), pass_fds=[tun.fd]))
            stack.enter_context(awake_cpus(self.environment.modules))
            configure(
                DEVICE,
                txqueuelen=self.number("txqueuelen"),
                qdisc=chosen.root,
                address=ADDRESS,
            )
            lines = "".join(f"{line.format(device=DEVICE)}\n" for line in chosen.below)
            tool(["tc", "-batch", "-"], text=lines)
            first, rest = self._send(chosen, seconds)
            counts = base.drain(DEVICE, first["sent"] + rest["sent"])
            driver = driver_counters(DEVICE)
            read = reader.result()
            arrivals = shares.parse_log(log.read_text())
        totals = base.account(first["sent"] + rest["sent"], read["marked"], counts)
        metrics = self._metrics(chosen, arrivals, first)
        metrics |= {
            "delivered_pps": read["marked"] / read["active_seconds"],
            "refused": first["errors"] + rest["errors"],
            "reader_involuntary_switches_per_s": read["involuntary_switches"] / read["seconds"],
        }
        return metrics | base.account_metrics(totals) | base.driver_metrics(driver)

    def _shaper(self) -> Shaper:
        bottleneck = self.text("bottleneck")
        if bottleneck not in ("reader", "shaper"):
            raise GuestError(f"the bottleneck is the reader or the shaper, not '{bottleneck}'")
        return shaper(
            self.text("qdisc"),
            self.number("slow_kbit" if bottleneck == "shaper" else "fast_kbit"),
            (self.number("first_senders"), self.number("rest_senders")),
            is_bottleneck=bottleneck == "shaper",
        )

    def _reader(self, tun_fd: int, log: Path) -> list[str]:
        command = ["taskset", "--cpu-list", self.text("reader_cpu")]
        command += [str(self.environment.bin / "tun_reader"), "--fd", str(tun_fd)]
        return [*command, "--work-ns", self.text("work_ns"), "--log", str(log)]

    def _send(self, chosen: Shaper, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the results of both classes' senders."""
        command = ["taskset", "--cpu-list", self.text("traffic_cpu")]
        command += [str(self.environment.bin / "udp_sender"), "--dest", DESTINATION]
        command += ["--size", self.text("payload_bytes")]
        rate = self.number("first_rate_pps")
        # A class with a fixed rate has priority over the others, so it keeps that rate.
        one = [*(["chrt", "--fifo", "1"] if rate else []), *command, "--rate", str(rate)]
        one += ["--senders", self.text("first_senders"), "--seconds", str(seconds)]
        one += ["--tos", str(chosen.tos), "--priority", str(chosen.priorities[0])]
        many = [*command, "--announce", "--senders", self.text("rest_senders")]
        many += ["--seconds", str(seconds + END_GRACE_S), "--first", self.text("first_senders")]
        many += ["--priority", str(chosen.priorities[1])]
        with Service(many) as rest:
            return finished(one, timeout=seconds + END_GRACE_S), rest.result()

    def _metrics(
        self,
        chosen: Shaper,
        arrivals: list[shares.Arrival],
        first: dict[str, Any],
    ) -> base.Metrics:
        """Return what each class got while both sent."""
        senders = self.number("first_senders")
        ours = [one for one in arrivals if one.sender < senders]
        theirs = [one for one in arrivals if one.sender >= senders]
        begin, end = shares.window((ours, theirs), LEAD)
        seconds = (end - begin) / 1e9
        got = [sum(begin <= one.read_ns < end for one in some) for some in (ours, theirs)]
        demand = self.number("first_rate_pps") * senders * seconds or math.inf
        should = shares.due(sum(got), chosen.weights, (demand, math.inf))
        waited = [(one.read_ns - one.sent_ns) / 1e6 for one in ours if one.sent_ns >= begin]
        mbit = self.number("payload_bytes") * 8 / 1e6 / seconds
        return {
            "first_due_percent": 100 * got[0] / should[0],
            "share_error_percent": 100 * abs(got[0] / should[0] - 1),
            "first_share_percent": 100 * got[0] / sum(got),
            "first_goodput_mbit_per_s": got[0] * mbit,
            "rest_goodput_mbit_per_s": got[1] * mbit,
            "first_loss_percent": 100 * (1 - len(ours) / first["sent"]),
            "first_latency_p50_ms": shares.percentile(waited, 0.5),
            "first_latency_p99_ms": shares.percentile(waited, 0.99),
            "window_s": seconds,
        }
