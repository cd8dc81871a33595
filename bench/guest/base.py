# SPDX-License-Identifier: GPL-2.0-only
"""What all kinds of scenario share: parameters, commands, and an account of all packets."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from bench.plan import NO_QUEUE, Parameters
from guestlib import drivers, tundev
from guestlib.environment import Environment, GuestError, time_limit
from guestlib.netstats import (
    LinkCounters,
    QdiscCounters,
    driver_counters,
    link_counters,
    qdisc_counters,
)
from guestlib.process import Service, finished, in_netns, netns_path, parse_last_json
from lab.variant import Variant

Metrics = dict[str, int | float]
"""Results of one run; the unit is in the name."""

DRAIN_TIMEOUT_S = time_limit(10.0)
DRAIN_STEP_S = 0.005
PROBE_GRACE_S = 0.1
"""How long echo_probe waits for the last reply, seconds."""
END_GRACE_S = time_limit(15.0)
"""From the end of the window until a traffic program must have ended, seconds."""


class Kind(ABC):
    """One kind of scenario with its parameters.

    Args:
        parameters: of the scenario's case; checked here.
        environment: directories of programs and results.

    Raises:
        GuestError: a parameter is missing or unknown.
    """

    parameters: ClassVar[str]
    """The names of the parameters, all of them required; separated by spaces."""

    uses_vhost: ClassVar[bool] = False

    def __init__(self, parameters: Parameters, environment: Environment) -> None:
        if wrong := set(parameters) ^ set(self.parameters.split()):
            names = ", ".join(sorted(wrong))
            raise GuestError(f"missing or unknown parameters of a scenario: {names}")
        self.case = SimpleNamespace(**parameters)
        self.environment = environment

    @classmethod
    def modules(cls, variant: Variant) -> list[str]:
        return drivers.modules(variant, variant if cls.uses_vhost else None)

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Make one run with the loaded driver.

        Args:
            seconds: length of the measured window.

        Raises:
            Unsupported: this kernel lacks a feature that the case needs.
            GuestError: the run failed.
        """
        with ExitStack() as stack:
            return self.measure(variant, seconds, stack)

    @abstractmethod
    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        """Make one run; the stack removes what it creates."""

    def choice(self, name: str, *allowed: str) -> str:
        """Return a text parameter that has one of several values.

        Raises:
            GuestError: it has another one.
        """
        value = str(getattr(self.case, name))
        if value not in allowed:
            raise GuestError(f"{name} is one of {', '.join(allowed)}, not '{value}'")
        return value

    def configure(
        self, device: str, *, address: str = "", netns: str | None = None, qdisc: str = ""
    ) -> None:
        """Set a device's ring, qdisc (of the case, unless given) and address; bring it up."""
        tundev.configure(
            device,
            txqueuelen=self.case.txqueuelen,
            qdisc=qdisc or self.case.qdisc,
            address=address,
            netns=netns,
        )

    def keep_cpus_awake(self, stack: ExitStack) -> None:
        """Keep the CPUs from going idle from now on."""
        stack.enter_context(drivers.awake_cpus(self.environment.modules))

    def command(
        self,
        program: str,
        *arguments: str,
        cpu: int = -1,
        fifo: bool = False,
        netns: str | None = None,
        **options: Any,
    ) -> list[str]:
        """Return the command that runs a traffic program.

        Args:
            arguments: further words, first.
            cpu: its CPU; -1: any.
            fifo: run it as SCHED_FIFO, with priority over other programs on its CPU.
            netns: its network namespace; None: this one.
            options: their values; ``work_ns=1`` is ``--work-ns 1``.
        """
        command = ["taskset", "--cpu-list", str(cpu)] if cpu >= 0 else []
        command += ["chrt", "--fifo", "1"] if fifo else []
        command += [str(self.environment.bin / program), *arguments]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        return in_netns(netns, command)

    def tun_reader(self, fd: int, *words: str, **options: Any) -> Service:
        """Return the program that reads an open file of a device; arguments as for a command."""
        return Service(self.command("tun_reader", *words, fd=fd, **options), pass_fds=[fd])

    def tcp_flows(
        self,
        netns: Sequence[str],
        address: str,
        *,
        flows: int,
        warm_up_s: float,
        seconds: float,
        **options: Any,
    ) -> Service:
        """Return the service that sends TCP flows; it is ready when the measured window begins.

        Args:
            netns: the senders' and the receivers'.
            address: of the receivers.
            warm_up_s: from the first flow's start to the window, seconds.
            seconds: length of the window.
            options: further ones of :meth:`command` and tcp_flows.
        """
        client, server = map(netns_path, netns)
        command = self.command(
            "tcp_flows",
            netns_client=client,
            netns_server=server,
            address=address,
            flows=flows,
            warm_up=warm_up_s,
            seconds=seconds,
            **options,
        )
        return Service(command)

    def echo_probe(
        self,
        netns: Sequence[str],
        address: str,
        seconds: float,
        *,
        cpu: int,
        grace_s: float = PROBE_GRACE_S,
    ) -> dict[str, Any]:
        """Send probes at the case's interval; return echo_probe's results.

        The probe has priority over the load, so it measures queues and the reader, not the wait for
        its turn on a busy CPU.

        Args:
            netns: the sender's and the echo's.
            address: of the echo.
            seconds: how long to send.
            cpu: of both.
            grace_s: how long to wait for the last reply, seconds.
        """
        client, server = map(netns_path, netns)
        probe = self.command(
            "echo_probe",
            cpu=cpu,
            fifo=True,
            grace=grace_s,
            netns_client=client,
            netns_server=server,
            address=address,
            interval_us=self.case.probe_interval_us,
            seconds=seconds,
        )
        return finished(probe, timeout=seconds + grace_s + END_GRACE_S)

    @staticmethod
    def probe_seconds(seconds: float) -> float:
        """Return for how long to probe in a window, seconds: the load outlasts the last reply."""
        return max(seconds - 2 * PROBE_GRACE_S, seconds / 2)

    @staticmethod
    def flow_metrics(service: Service, seconds: float) -> Metrics:
        """Wait for the end of :meth:`tcp_flows`, and return the window's results.

        ``rtt_mean_ms`` is TCP's smoothed RTT, the mean over the window and all flows.
        """
        result = parse_last_json(service.wait(seconds + END_GRACE_S), "tcp_flows")
        return {
            "goodput_mbit_per_s": result["bytes"] * 8 / result["seconds"] / 1e6,
            "retransmits": result["retransmits"],
            "rtt_mean_ms": result["rtt_mean_us"] / 1e3,
            "window_s": result["seconds"],
        }


@dataclass(frozen=True)
class DeviceCounts:
    link: LinkCounters
    qdisc: QdiscCounters

    @classmethod
    def of(cls, name: str, netns: str | None = None) -> DeviceCounts:
        return cls(link_counters(name, netns=netns), qdisc_counters(name, netns=netns))

    @property
    def has_queue(self) -> bool:
        """Whether there is a qdisc that can queue packets."""
        return self.qdisc.kind != NO_QUEUE

    @property
    def gone(self) -> int:
        """Packets that have left the device: read or dropped."""
        return self.link.tx_packets + self.link.tx_dropped

    def driver_drops(self, before: int = 0) -> Metrics:
        """Return the driver's drops: ``lost``, or with noqueue, which never queues, ``unqueued``.

        Args:
            before: drops that are not to be counted.
        """
        dropped = self.link.tx_dropped - before
        lost = dropped if self.has_queue else 0
        return {"lost": lost, "unqueued": dropped - lost}

    def is_drained(self, offered: int | None, before: int = 0) -> bool:
        """Return whether qdisc and ring are empty.

        Args:
            offered: packets that the senders passed on; None if only the qdisc has counted them.
            before: packets that had left the device before the qdisc was attached.
        """
        gone = self.gone - before
        if offered is None:
            return not self.qdisc.queued and self.qdisc.packets == gone
        return gone + self.qdisc.drops == offered


def drain(
    name: str,
    offered: int | None = None,
    *,
    netns: str | None = None,
    before: int = 0,
    segments: bool = False,
) -> DeviceCounts:
    """Wait until the reader has emptied qdisc and ring, at most DRAIN_TIMEOUT_S; read the counters.

    The device must be new, so its counters are those of the run, or ``before`` must be given.

    Args:
        name: of the device.
        offered: packets that the senders passed on; None if only the qdisc has counted them.
        netns: the device's namespace; None: this one.
        before: packets that had left the device before the qdisc was attached.
        segments: the qdisc counts the segments of each packet: wait until no packet moves instead.
    """
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    last = -1
    while True:
        counts = DeviceCounts.of(name, netns)
        still = not counts.qdisc.queued and counts.gone == last
        drained = still if segments else counts.is_drained(offered, before)
        if drained or time.monotonic() > deadline:
            return counts
        last = counts.gone
        time.sleep(DRAIN_STEP_S)


def account(
    offered: int,
    delivered: int,
    after: DeviceCounts,
    before: DeviceCounts | None = None,
    *,
    elsewhere: int = 0,
) -> Metrics:
    """Return the account of all packets of a run.

    ``unaccounted`` are in no counter; negative if some were counted twice.

    Args:
        offered: passed to the device's qdisc by the senders.
        delivered: that arrived.
        after: of the drained device, which only this run has used since ``before``.
        before: the device's counts before the run; None: it is new.
        elsewhere: read from the device, and lost on their further way.
    """
    drops = after.driver_drops(before.link.tx_dropped if before else 0)
    drops["qdisc_drops"] = after.qdisc.drops
    known = delivered + elsewhere + sum(drops.values()) + after.qdisc.queued
    return {
        "offered": offered,
        "delivered": delivered,
        "queued": after.qdisc.queued,
        **drops,
        "unaccounted": offered - known,
    }


def driver_metrics(device: str, netns: str | None = None) -> Metrics:
    """Return the driver's own counters of a device, if it has some, as metrics."""
    counters = driver_counters(device, netns=netns)
    return {f"driver_{name}": value for name, value in counters.items()}
