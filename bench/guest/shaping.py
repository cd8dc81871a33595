# SPDX-License-Identifier: GPL-2.0-only
"""Two classes of UDP traffic through a shaper on a TUN that a program reads, and their shares.

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
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.guest.base import END_GRACE_S, Kind, Metrics, account, drain, driver_metrics
from guestlib.drivers import device_flags
from guestlib.environment import GuestError
from guestlib.process import Service, finished, tool
from guestlib.tundev import IFF_TUN, TunDevice
from lab.variant import Variant

DEVICE = "ndtun0"
ADDRESS = "198.18.0.1 peer 198.18.0.2/32"
DESTINATION = "198.18.0.2"
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
    command = f"class add dev {{device}} parent {parent} classid {name} htb"
    command += f" rate {kbit * percent // 100}kbit ceil {kbit}kbit burst {burst} cburst {burst}"
    return f"{command} quantum {quantum}" if quantum else command


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


@dataclass(frozen=True)
class Arrival:
    """One received packet; times are CLOCK_MONOTONIC in ns."""

    sender: int
    sent_ns: int
    read_ns: int


def parse_log(text: str) -> list[Arrival]:
    """Parse the log of ``tun_reader --log``.

    Raises:
        GuestError: a line has another form.
    """
    try:
        return [Arrival(*map(int, line.split())) for line in text.splitlines()]
    except (TypeError, ValueError) as error:
        raise GuestError("cannot parse the reader's log") from error


def due(total: float, weights: Sequence[float], demands: Sequence[float]) -> list[float]:
    """Divide a total by weights; what a class does not demand is divided among the others.

    Args:
        total: to divide.
        weights: of the classes, > 0.
        demands: of the classes, in the unit of the total; math.inf: unlimited.
    """
    result = [0.0] * len(weights)
    open_classes = set(range(len(weights)))
    left = total
    while open_classes:
        unit = left / sum(weights[index] for index in open_classes)
        modest = {index for index in open_classes if demands[index] <= unit * weights[index]}
        for index in modest or open_classes:
            result[index] = demands[index] if modest else unit * weights[index]
        if not modest:
            break
        left -= sum(demands[index] for index in modest)
        open_classes -= modest
    return result


def window(classes: Iterable[Sequence[Arrival]], lead: float) -> tuple[int, int]:
    """Return start and end, in ns, of the time in which all classes sent.

    Args:
        lead: share of that time to skip at its start, while queues fill.

    Raises:
        GuestError: a class has no packets, or the classes did not send at the same time.
    """
    lists = list(classes)
    if not all(lists):
        raise GuestError("no packet of a traffic class arrived")
    begin = max(min(arrival.sent_ns for arrival in arrivals) for arrivals in lists)
    end = min(max(arrival.sent_ns for arrival in arrivals) for arrivals in lists)
    if begin >= end:
        raise GuestError("the traffic classes did not send at the same time")
    return begin + round(lead * (end - begin)), end


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0


class Shaping(Kind):
    """The shares of two classes, compared with their due shares."""

    parameters = (
        "bottleneck fast_kbit first_rate_pps first_senders payload_bytes qdisc reader_cpu "
        "rest_senders slow_kbit traffic_cpu txqueuelen work_ns"
    )

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        chosen = self._shaper()
        log = Path(stack.enter_context(TemporaryDirectory())) / "log"
        tun = stack.enter_context(TunDevice(DEVICE, IFF_TUN | device_flags(variant)))
        cpu, work_ns = self.case.reader_cpu, self.case.work_ns
        reader = self.tun_reader(tun.fd, cpu=cpu, work_ns=work_ns, log=log)
        stack.enter_context(reader)
        self.keep_cpus_awake(stack)
        self.configure(DEVICE, qdisc=chosen.root, address=ADDRESS)
        lines = "".join(f"{line.format(device=DEVICE)}\n" for line in chosen.below)
        tool(["tc", "-batch", "-"], text=lines)
        first, rest = self._send(chosen, seconds)
        offered = first["sent"] + rest["sent"]
        counts = drain(DEVICE, offered)
        driver = driver_metrics(DEVICE)
        read = reader.result()
        metrics = self._shares(chosen, parse_log(log.read_text()), first) | {
            "delivered_pps": read["marked"] / read["active_seconds"],
            "refused": first["errors"] + rest["errors"],
            "reader_involuntary_switches_per_s": read["involuntary_switches"] / read["seconds"],
        }
        return metrics | account(offered, read["marked"], counts) | driver

    def _shaper(self) -> Shaper:
        is_bottleneck = self.choice("bottleneck", "reader", "shaper") == "shaper"
        return shaper(
            self.case.qdisc,
            self.case.slow_kbit if is_bottleneck else self.case.fast_kbit,
            (self.case.first_senders, self.case.rest_senders),
            is_bottleneck=is_bottleneck,
        )

    def _send(self, chosen: Shaper, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
        rate = self.case.first_rate_pps
        first = self.command(
            "udp_sender",
            cpu=self.case.traffic_cpu,
            # A class with a fixed rate has priority over the others, so it keeps that rate.
            fifo=rate > 0,
            dest=DESTINATION,
            size=self.case.payload_bytes,
            rate=rate,
            senders=self.case.first_senders,
            seconds=seconds,
            tos=chosen.tos,
            priority=chosen.priorities[0],
        )
        rest = self.command(
            "udp_sender",
            "--announce",
            cpu=self.case.traffic_cpu,
            dest=DESTINATION,
            size=self.case.payload_bytes,
            senders=self.case.rest_senders,
            seconds=seconds + END_GRACE_S,
            first=self.case.first_senders,
            priority=chosen.priorities[1],
        )
        with Service(rest) as others:
            return finished(first, timeout=seconds + END_GRACE_S), others.result()

    def _shares(self, chosen: Shaper, arrivals: list[Arrival], first: dict[str, Any]) -> Metrics:
        senders = self.case.first_senders
        first_class = [arrival for arrival in arrivals if arrival.sender < senders]
        other_class = [arrival for arrival in arrivals if arrival.sender >= senders]
        begin, end = window((first_class, other_class), LEAD)
        seconds = (end - begin) / 1e9
        got = [
            sum(begin <= arrival.read_ns < end for arrival in arrivals_of_class)
            for arrivals_of_class in (first_class, other_class)
        ]
        demand = self.case.first_rate_pps * senders * seconds or math.inf
        should = due(sum(got), chosen.weights, (demand, math.inf))
        waited_ms = [(a.read_ns - a.sent_ns) / 1e6 for a in first_class if a.sent_ns >= begin]
        mbit = self.case.payload_bytes * 8 / 1e6 / seconds
        return {
            "first_due_percent": 100 * got[0] / should[0],
            "share_error_percent": 100 * abs(got[0] / should[0] - 1),
            "first_share_percent": 100 * got[0] / sum(got),
            "first_goodput_mbit_per_s": got[0] * mbit,
            "rest_goodput_mbit_per_s": got[1] * mbit,
            "first_loss_percent": 100 * (1 - len(first_class) / first["sent"]),
            "first_latency_p50_ms": percentile(waited_ms, 0.5),
            "first_latency_p99_ms": percentile(waited_ms, 0.99),
            "window_s": seconds,
        }
