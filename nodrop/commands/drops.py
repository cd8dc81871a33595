# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop drops DEV``: where the kernel drops a device's packets, and why."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress

from nodrop import screen
from nodrop.columns import Column
from nodrop.commands.common import print_json, progress, seconds_from
from nodrop.errors import NodropError, UnsupportedError
from nodrop.host import netns
from nodrop.screen import Screen
from nodrop.signals import deferred
from nodrop.trace import bpftrace, counters
from nodrop.trace.reasons import CAUSES, Way
from nodrop.trace.tracefs import Tracefs
from nodrop.trace.tracepoint import EventsTracer
from nodrop.trace.tracer import Target, Tracer
from nodrop.trace.verdict import Verdict, conclude

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
_SHORT = {Way.TRANSMIT: "tx", Way.RECEIVE: "rx", None: "?"}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "drops",
        description="Trace a network device for some seconds. Report where the kernel drops its "
        "packets, why, what that means and what to do, and what the device's own counters show. "
        "Needs root.",
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
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Trace the device and print the result."""
    verdict = watch(arguments)
    if arguments.json:
        print_json("drops", verdict.to_json())
    else:
        show(screen.console(arguments), verdict)
    return 0


def watch(arguments: argparse.Namespace) -> Verdict:
    """Trace the device.

    Raises:
        NodropError: there is no such device, no permission to trace, or no working tracer.
    """
    name, where = arguments.device, arguments.netns
    target = counters.read(name, where).target(name)
    files = Tracefs()
    files.open()
    with progress(arguments) as shown, ExitStack() as stack:
        with shown.step("Prepare the tracer"):
            tracer = start_tracer(arguments.tracer, files, target, shown.note)
            stack.callback(tracer.close)
        before = counters.read(name, where)
        tracer.begin()
        began = time.monotonic()
        title = f"Watch {name}" + ("" if arguments.seconds else " until Ctrl-C")
        # Handle signals before the step's title offers Ctrl-C.
        ending = nullcontext(lambda: False) if arguments.seconds else deferred()
        with ending as ended, shown.step(title, arguments.seconds or None) as step:
            _wait(tracer, arguments.seconds, ended, lambda done: step.update(done=done))
        after = None
        with suppress(NodropError):  # the device was deleted: keep what was traced
            after = counters.read(name, where)
        counted = tracer.finish()
        took = time.monotonic() - began
    found = after.since(before) if after else None
    causes = found.drops_by_cause if found else {}
    return Verdict(
        target=target,
        netns=where or "",
        tracer=tracer.name,
        device_known=tracer.device_known,
        interval_s=took,
        drops=conclude(counted, name, causes),
        unseen=counted.unseen,
        counters=found,
    )


def start_tracer(kind: str, files: Tracefs, target: Target, note: Callable[[str], None]) -> Tracer:
    """Return a started tracer; the caller closes it.

    Args:
        kind: one of TRACERS.
        files: the kernel's tracing files, open.
        note: called with a sentence if bpftrace does not work.

    Raises:
        NodropError: no tracer works.
    """
    if kind != "tracefs" and bpftrace.available(files.root):
        ready_s = bpftrace.PATIENT_S if kind == "bpftrace" else bpftrace.READY_S
        try:
            return _started(bpftrace.BpftraceTracer(files, target, ready_s))
        except NodropError as error:
            if kind == "bpftrace":
                raise
            note(f"{error.message} Using the kernel's trace events instead.")
    elif kind == "bpftrace":
        raise UnsupportedError(
            "bpftrace cannot be used: it is not installed, or the kernel has no type information "
            "(BTF).",
            "apt install bpftrace, or leave --tracer out.",
        )
    return _started(EventsTracer(files))


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


def show(console: Screen, verdict: Verdict) -> None:
    """Print the table, the explanations and the device's counters."""
    name, took = verdict.target.name, f"{verdict.interval_s:.1f} s"
    if not verdict.device_known:
        console.text(
            "These drops are of all TUN, TAP and vhost-net devices in all network namespaces: the "
            "kernel's trace events do not name the device. bpftrace can tell them apart.",
            "yellow",
        )
    if verdict.drops:
        console.table(
            _COLUMNS,
            [
                (
                    str(drop.packets),
                    f"{100 * drop.packets / verdict.packets:.1f}%",
                    _SHORT[drop.way],
                    (drop.site.reason or "-", "bold"),
                    drop.site.where,
                    drop.site.module or "-",
                )
                for drop in verdict.drops
            ],
        )
        _explain(console, verdict)
    elif verdict.counted(Way.TRANSMIT) == 0 and verdict.counted(Way.RECEIVE) == 0:
        console.print(f"No packet of {name} was dropped within {took}.", "green")
    else:
        console.print(f"The kernel's tracepoint reported no drop of {name} within {took}.")
    if verdict.netns and any(drop.advice for drop in verdict.drops):
        console.print()
        console.text(f"Run these commands in its namespace: {netns.prefix(verdict.netns)}COMMAND")
    if verdict.unseen:
        console.print(f"{verdict.unseen} more drops came too fast to be read.", "yellow")
    console.print()
    for line in counted_lines(verdict):
        console.text(line)


def _explain(console: Screen, verdict: Verdict) -> None:
    """Print each explanation once, the most frequent first."""
    done = set()
    for drop in verdict.drops:
        heading = drop.site.reason or drop.site.function
        if drop.meaning and (heading, drop.meaning) not in done:
            done.add((heading, drop.meaning))
            console.print()
            console.print(heading, "bold")
            console.text(drop.meaning, indent=_INDENT)
            console.text(drop.advice, indent=_INDENT)


def counted_lines(verdict: Verdict) -> list[str]:
    """Return lines on the device's own counters, and on drops that were not traced."""
    name, found = verdict.target.name, verdict.counters
    if found is None:
        return [f"{name} was deleted or created again meanwhile: its counters are not comparable."]
    lines = [
        f"Counters of {name} over {verdict.interval_s:.1f} s: tx_dropped {found.tx_dropped}, "
        f"rx_dropped {found.rx_dropped}, {_qdisc(verdict)}."
    ]
    for cause, packets in found.drops_by_cause.items():
        if packets:
            lines.append(f"nodrop dropped {packets}: {CAUSES.get(cause, (cause,))[0]}.")
    if trips := found.nodrop("guard_trips"):
        times = "once" if trips == 1 else f"{trips} times"
        lines.append(f"The stall guard found the reader stalled {times} (guard_ms).")
    for way in Way:
        if missing := verdict.unexplained(way):
            lines.append(
                f"{missing} drops counted on {way} were not traced: the driver freed packets "
                "without the tracepoint, or counted something that is not a packet."
            )
    return lines


def _qdisc(verdict: Verdict) -> str:
    found = verdict.counters
    assert found is not None
    if found.qdisc == "noqueue":
        return "no qdisc"
    text = f"qdisc {found.qdisc} {found.qdisc_drops}"
    if found.qdisc_drops and found.qdisc_over_limit is not None:
        text += f" ({found.qdisc_over_limit} over its limit, the others by its AQM)"
    return text
