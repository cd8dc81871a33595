# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop drops DEV``: where the kernel drops a device's packets, and why."""

from __future__ import annotations

import argparse
import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nodrop import screen
from nodrop.commands.common import print_json, progress, seconds_from
from nodrop.errors import NodropError, UnsupportedError, UsageError, deferred
from nodrop.host import ethtool, netns, settings
from nodrop.host.counters import Counters, by_cause, by_queue, total
from nodrop.host.read import tool
from nodrop.proc import quote
from nodrop.screen import Column, Screen
from nodrop.trace import pcap, reasons, tracers
from nodrop.trace.headers import Headers
from nodrop.trace.reasons import CAUSES, Way
from nodrop.trace.tracefs import Tracefs
from nodrop.trace.tracers import Counted, EventsTracer, Site, Target, Tracer

POLL_S = 0.1
TRACERS = ("auto", "bpftrace", "tracefs")
_INDENT = "  "
_COLUMNS = (
    Column("PACKETS", right=True),
    Column("SHARE", 4, right=True),
    Column("DIR", 3),
    Column("REASON"),
    Column("WHERE", 6),
    Column("MODULE", 2),
)
_FLOW_COLUMNS = (
    Column("PACKETS", right=True),
    Column("SHARE", 4, right=True),
    Column("PROTO"),
    Column("SOURCE"),
    Column("DESTINATION"),
)
_SHOWN_FLOWS = 10
_SHORT = {Way.TRANSMIT: "tx", Way.RECEIVE: "rx", None: "?"}
_NET = Path("/sys/class/net")
_SLACK_SHARE = 0.05
_SLACK_PACKETS = 5
"""Tolerated difference of trace and counters, which do not start and end at the same time."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "drops",
        description="Trace a network device for some seconds. Report where the kernel drops its "
        "packets, why, what that means and what to do, the packets' flows, and what the device's "
        "own counters show. Needs root.",
    )
    parser.add_argument("device", metavar="DEV", help="any network device")
    parser.add_argument(
        "--seconds",
        type=seconds_from(0.1, 86400, or_zero=True),
        default=5.0,
        metavar="S",
        help="how long to trace (5); 0: until Ctrl-C",
    )
    parser.add_argument(
        "--tracer",
        choices=TRACERS,
        default="auto",
        help="bpftrace, or the kernel's trace events (auto: bpftrace if it works)",
    )
    parser.add_argument(
        "--filter",
        metavar="EXPRESSION",
        help="count only IP packets that match an expression of pcap-filter(7); needs bpftrace "
        "and libpcap",
    )
    parser.add_argument(
        "--write",
        metavar="FILE",
        help="write the headers of the dropped IP packets to a pcapng file; needs bpftrace",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    report = watch(arguments)
    if arguments.json:
        print_json("drops", report.to_json())
    else:
        show(screen.console(arguments), report)
    return 0


def watch(arguments: argparse.Namespace) -> DropReport:
    """Trace the device.

    Raises:
        NodropError: there is no such device, no permission to trace, or no working tracer.
    """
    where = arguments.netns
    (name,) = settings.real_names(where, [arguments.device])
    matches, kind = None, arguments.tracer
    if arguments.filter is not None or arguments.write is not None:
        if kind == "tracefs":
            raise UsageError("--filter and --write need bpftrace: leave --tracer tracefs out.")
        kind = "bpftrace"
    if arguments.filter is not None:
        matches = pcap.pcap_filter(arguments.filter)
    target, _ = read_counters(name, where)
    files = Tracefs()
    files.open()
    if kind == "bpftrace":
        _require_bpftrace(files)
    with progress(arguments) as shown, ExitStack() as stack:
        file = None
        if arguments.write is not None:
            file = pcap.PacketFile(arguments.write)
            stack.callback(file.close)
        headers = Headers(matches, file.write if file else None)
        with shown.step("Prepare the tracer"):
            tracer = start_tracer(kind, files, target, shown.note, headers)
            stack.callback(tracer.close)
        traced, before = read_counters(name, where)
        tracer.begin()
        began = time.monotonic()
        title = f"Watch {name}" + ("" if arguments.seconds else " until Ctrl-C")
        # Handle signals before the step's title offers Ctrl-C.
        ending = nullcontext(lambda: False) if arguments.seconds else deferred()
        with ending as ended, shown.step(title, arguments.seconds or None) as step:
            _wait(tracer, arguments.seconds, ended, lambda done: step.update(done=done))
        grown = None
        with suppress(NodropError):  # the device was deleted: keep what was traced
            now, after = read_counters(name, where)
            grown = after.since(before, from_zero=True) if now == traced else None
        counted = tracer.finish()
        took = time.monotonic() - began
    causes = by_cause(total(grown.queues.values())) if grown else {}
    return DropReport(
        target=target,
        netns=where or "",
        tracer=tracer.name,
        device_known=tracer.device_known,
        interval_s=took,
        drops=explained(counted, name, causes),
        unseen=counted.unseen,
        headers=counted.headers,
        written=file.packets if file else None,
        counters=grown,
    )


def start_tracer(
    kind: str,
    files: Tracefs,
    target: Target,
    note: Callable[[str], None],
    headers: Headers | None = None,
) -> Tracer:
    """Return a started tracer; the caller closes it.

    Args:
        kind: one of TRACERS.
        note: called with a sentence if bpftrace does not work.
        headers: reads the packets' headers, if the tracer can.

    Raises:
        NodropError: no tracer works.
    """
    if kind == "bpftrace":
        _require_bpftrace(files)
    if kind != "tracefs" and tracers.bpftrace_available(files.root):
        ready_s = tracers.PATIENT_S if kind == "bpftrace" else tracers.READY_S
        try:
            return _started(tracers.BpftraceTracer(files, target, ready_s, headers))
        except NodropError as error:
            if kind == "bpftrace":
                raise
            note(f"{error.message} Using the kernel's trace events instead.")
    return _started(EventsTracer(files))


def _require_bpftrace(files: Tracefs) -> None:
    if not tracers.bpftrace_available(files.root):
        raise UnsupportedError(
            "bpftrace cannot be used: it is not installed, or the kernel has no type information "
            "(BTF).",
            "Install it (apt install bpftrace), or use no --tracer, --filter and --write.",
        )


def _started(tracer: Tracer) -> Tracer:
    try:
        tracer.start()
    except BaseException:
        tracer.close()
        raise
    return tracer


def _wait(
    tracer: Tracer, seconds: float, ended: Callable[[], bool], update: Callable[[float], None]
) -> None:
    """Poll the tracer for ``seconds``, or until ``ended``; 0 seconds: no time limit."""
    began = time.monotonic()
    while not ended() and (not seconds or (left := began + seconds - time.monotonic()) > 0):
        time.sleep(min(POLL_S, left) if seconds else POLL_S)
        tracer.poll()
        update(time.monotonic() - began)


def show(console: Screen, report: DropReport) -> None:
    name, took = report.target.name, f"{report.interval_s:.1f} s"
    if not report.device_known:
        console.text(
            "These drops are of all TUN, TAP and vhost-net devices in all network namespaces: the "
            "kernel's trace events do not name the device. bpftrace can tell them apart.",
            "yellow",
        )
    if report.drops:
        console.table(
            _COLUMNS,
            [
                (
                    str(drop.packets),
                    f"{100 * drop.packets / report.packets:.1f}%",
                    _SHORT[drop.way],
                    (drop.site.reason or "-", "bold"),
                    drop.site.where,
                    drop.site.module or "-",
                )
                for drop in report.drops
            ],
        )
        _explain(console, report)
        _show_flows(console, report)
    elif report.filtered:
        console.print(f"No packet of {name} that matches was dropped within {took}.", "green")
    elif report.counted(Way.TRANSMIT) == 0 and report.counted(Way.RECEIVE) == 0:
        console.print(f"No packet of {name} was dropped within {took}.", "green")
    else:
        console.print(f"The kernel's tracepoint reported no drop of {name} within {took}.")
    if report.netns and any(drop.advice for drop in report.drops):
        console.print()
        console.text(f"Run these commands in its namespace: {netns.prefix(report.netns)}COMMAND")
    if report.unseen:
        console.print(f"{report.unseen} more drops came too fast to be read.", "yellow")
    if report.written is not None:
        console.print(f"Packets written: {report.written}.")
    console.print()
    for line in counted_lines(report):
        console.text(line)


def _explain(console: Screen, report: DropReport) -> None:
    """Print each explanation once, the most frequent first."""
    done = set()
    for drop in report.drops:
        heading = drop.site.reason or drop.site.function
        if drop.meaning and (heading, drop.meaning) not in done:
            done.add((heading, drop.meaning))
            console.print()
            console.print(heading, "bold")
            console.text(drop.meaning, indent=_INDENT)
            console.text(drop.advice, indent=_INDENT)


def _show_flows(console: Screen, report: DropReport) -> None:
    if not report.headers or not report.headers.flows:
        return
    headers = report.headers
    console.print()
    console.table(
        _FLOW_COLUMNS,
        [
            (
                str(packets),
                f"{100 * packets / headers.decoded:.1f}%",
                flow.protocol_name,
                flow.end_text(0),
                flow.end_text(1),
            )
            for flow, packets in headers.flows.most_common(_SHOWN_FLOWS)
        ],
    )
    if (more := len(headers.flows) - _SHOWN_FLOWS) > 0:
        console.print(f"{more} more flows; -j lists them.")
    if headers.decoded < report.packets:
        console.text(
            f"The flows are those of {headers.decoded} packets. The others came too fast, are not "
            "IP, or have no IP header yet."
        )


def counted_lines(report: DropReport) -> list[str]:
    """Return lines on the device's own counters, and on drops that were not traced."""
    name, counters = report.target.name, report.counters
    if counters is None:
        return [f"{name} was deleted or created again meanwhile: its counters are not comparable."]
    lines = [
        f"Counters of {name} over {report.interval_s:.1f} s: "
        f"tx_dropped {counters.link['tx_dropped']}, rx_dropped {counters.link['rx_dropped']}, "
        f"{_qdisc(counters)}."
    ]
    for cause, packets in report.drops_by_cause.items():
        if packets:
            lines.append(f"nodrop dropped {packets}: {CAUSES.get(cause, cause)}.")
    if trips := report.guard_trips:
        times = "once" if trips == 1 else f"{trips} times"
        lines.append(f"The stall guard found the reader stalled {times} (guard_ms).")
    for way in Way:
        if missing := report.unexplained(way):
            lines.append(
                f"{missing} drops counted on {way} were not traced: the driver freed packets "
                "without the tracepoint, or counted something that is not a packet."
            )
    return lines


def _qdisc(counters: Counters) -> str:
    kind, drops, over_limit = (
        counters.qdisc_kind,
        counters.qdisc["drops"],
        counters.qdisc.get("over_limit"),
    )
    if kind == "noqueue":
        return "no qdisc"
    text = f"qdisc {kind} {drops}"
    if drops and over_limit is not None:
        text += f" ({over_limit} over its limit, the others by its AQM)"
    return text


def read_counters(name: str, where: str | None = None) -> tuple[Target, Counters]:
    """Return a device and its counters.

    These are "tx_dropped" and "rx_dropped" of the device; "drops" and, if reported, "over_limit" of
    its qdisc; nodrop's counters of its queues.

    Args:
        where: its network namespace; None: the caller's.

    Raises:
        NodropError: there is no such device or namespace, or a tool is missing.
    """
    try:
        ifindex, inode, link, kind, qdisc, stats = netns.run_inside(where, partial(_read, name))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.EINVAL):
            place = f" in the network namespace {where}" if where else ""
            raise NodropError(
                f"There is no device {name}{place}.", "'nodrop status' lists the virtual ones."
            ) from error
        raise NodropError(f"{name} cannot be read: {error.strerror}.") from error
    counters = Counters(link=link, qdisc=qdisc, queues=by_queue(stats), qdisc_kind=kind)
    return Target(name, ifindex, inode), counters


def _read(name: str) -> tuple[int, int, dict[str, int], str, dict[str, int], dict[str, int]]:
    """Return ifindex, namespace, the device's drops, its qdisc and drops, and driver counters."""
    if not name or "/" in name or name in (".", "..") or "\0" in name:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), name)
    files, space = _NET / name, netns.own()
    kind, qdisc = root_qdisc(
        [qdisc for qdisc in tool("tc", "-s", "qdisc") if qdisc.get("dev") == name]
    )
    stats: dict[str, int] = {}
    with suppress(OSError):
        stats = ethtool.stats(name)
    # Read these last: the tracer starts right afterwards, and both must cover the same time.
    ifindex = int((files / "ifindex").read_text())
    names = ("tx_dropped", "rx_dropped")
    link = {counter: int((files / "statistics" / counter).read_text()) for counter in names}
    return ifindex, space, link, kind, qdisc, stats


def root_qdisc(qdiscs: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, int]]:
    """Return the kind and the counters of drops of the root of a device's qdiscs."""
    root = next((qdisc for qdisc in qdiscs if qdisc.get("root")), {"kind": "noqueue"})
    counters = {"drops": int(root.get("drops", 0))}
    # Of its children's counters, mq only adds up the drops.
    limits = [int(qdisc["drop_overlimit"]) for qdisc in qdiscs if "drop_overlimit" in qdisc]
    if limits:
        counters["over_limit"] = sum(limits)
    return str(root["kind"]), counters


@dataclass(frozen=True)
class Drop:
    site: Site
    packets: int
    way: Way | None
    meaning: str
    advice: str


@dataclass(frozen=True)
class DropReport:
    """The drops of a device in an interval.

    Attributes:
        netns: name of its network namespace; "": the caller's.
        device_known: whether only the device's packets were counted.
        drops: the most frequent first.
        unseen: number of events that the tracer could not read.
        headers: of the packets; None: the tracer reads none. With a filter, ``drops`` are of the
            packets that match.
        written: number of packets written to a file; None: to none.
        counters: the increase of the device's counters; None: it was deleted or created again
            meanwhile.
    """

    target: Target
    netns: str
    tracer: str
    device_known: bool
    interval_s: float
    drops: Sequence[Drop]
    unseen: int
    headers: Headers | None
    written: int | None
    counters: Counters | None

    @property
    def packets(self) -> int:
        return sum(drop.packets for drop in self.drops)

    @property
    def filtered(self) -> bool:
        return self.headers is not None and self.headers.filtered

    @property
    def drops_by_cause(self) -> dict[str, int]:
        """nodrop's own drops, over all queues."""
        return by_cause(self._totals)

    @property
    def guard_trips(self) -> int | None:
        return self._totals.get("guard_trips")

    @property
    def _totals(self) -> dict[str, int]:
        return total(self.counters.queues.values()) if self.counters else {}

    def traced(self, way: Way) -> int:
        """Return the traced drops that were, or may have been, in a direction."""
        return sum(drop.packets for drop in self.drops if drop.way in (way, None))

    def counted(self, way: Way) -> int | None:
        """Return the drops that the device and its qdisc counted in a direction."""
        if self.counters is None:
            return None
        if way is Way.RECEIVE:
            return self.counters.link["rx_dropped"]
        return self.counters.link["tx_dropped"] + self.counters.qdisc["drops"]

    def unexplained(self, way: Way) -> int | None:
        """Return the drops that were counted but not traced; None: unknown."""
        counted = self.counted(way)
        if counted is None or not self.device_known or self.filtered:
            return None
        missing = counted - self.traced(way)
        return missing if missing > max(_SLACK_PACKETS, _SLACK_SHARE * counted) else 0

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.target.name,
            "ifindex": self.target.ifindex,
            "netns": self.netns or None,
            "tracer": self.tracer,
            "device_known": self.device_known,
            "interval_s": round(self.interval_s, 3),
            "packets": self.packets,
            "unseen_packets": self.unseen,
            "drops": [self._drop_json(drop) for drop in self.drops],
            "flows": self._flows_json(),
            "flow_packets": self.headers and self.headers.decoded,
            "written_packets": self.written,
            "counters": self._counters_json(),
            "unexplained": {
                "transmit_packets": self.unexplained(Way.TRANSMIT),
                "receive_packets": self.unexplained(Way.RECEIVE),
            },
        }

    def _drop_json(self, drop: Drop) -> dict[str, Any]:
        return {
            "packets": drop.packets,
            "share": round(drop.packets / self.packets, 4),
            "direction": drop.way and str(drop.way),
            "reason": drop.site.reason or None,
            "location": drop.site.where,
            "module": drop.site.module or None,
            "meaning": drop.meaning or None,
            "advice": drop.advice or None,
        }

    def _flows_json(self) -> list[dict[str, Any]] | None:
        if self.headers is None:
            return None
        flows = []
        for flow, packets in self.headers.flows.most_common():
            (source, source_port), (destination, destination_port) = flow.end(0), flow.end(1)
            flows.append(
                {
                    "packets": packets,
                    "protocol": flow.protocol_name,
                    "source": source,
                    "source_port": source_port,
                    "destination": destination,
                    "destination_port": destination_port,
                }
            )
        return flows

    def _counters_json(self) -> dict[str, Any] | None:
        if self.counters is None:
            return None
        return {
            "tx_dropped_packets": self.counters.link["tx_dropped"],
            "rx_dropped_packets": self.counters.link["rx_dropped"],
            "qdisc": self.counters.qdisc_kind,
            "qdisc_dropped_packets": self.counters.qdisc["drops"],
            "qdisc_over_limit_packets": self.counters.qdisc.get("over_limit"),
            "nodrop_dropped_packets": self.drops_by_cause or None,
            "guard_trips": self.guard_trips,
        }


def explained(counted: Counted, device: str, causes: Mapping[str, int]) -> list[Drop]:
    """Return the drops with their explanations, the most frequent first.

    Args:
        device: name to insert into the advice.
        causes: nodrop's own drops by cause; empty for other drivers.
    """
    drops = []
    for site, packets in sorted(
        counted.packets.items(), key=lambda item: (-item[1], item[0].where)
    ):
        rule = reasons.explain(site, causes)
        advice = rule.advice if rule else ""
        if device.startswith("-"):
            advice = advice.replace("nodrop set DEV", "nodrop set -- DEV")
        drops.append(
            Drop(
                site=site,
                packets=packets,
                way=reasons.way(site),
                meaning=rule.meaning if rule else "",
                advice=advice.replace("DEV", quote(device)),
            )
        )
    return drops
