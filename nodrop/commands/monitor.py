# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop monitor``: events of the drivers' tracepoints, and drops, as they happen."""

from __future__ import annotations

import argparse
import re
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timezone

from nodrop import screen
from nodrop.commands.common import print_json, seconds_from
from nodrop.errors import NodropError, UnsupportedError, UsageError
from nodrop.host import ethtool, settings
from nodrop.host.counters import Counters, by_cause, by_queue
from nodrop.trace.tracefs import Instance, Tracefs

EVENTS = ("stop", "wake", "kick", "guard")
"""Events of the drivers' tracepoints. "drop" comes from their counters, "lost" from the trace."""
KINDS = (*EVENTS, "drop")
USUAL = ("stop", "wake", "guard", "drop")
COUNT_S = 1.0
"""Interval at which counters are read, seconds."""
_LINE = re.compile(
    r" (?P<time>\d+\.\d+): nodrop_(?P<event>\w+): dev=(?P<device>\S*) queue=(?P<queue>\d+) "
    r"held=(?P<held>\d+)/(?P<limit>\d+) max=(?P<max>\d+) cpu=(?P<cpu>-?\d+)"
)
_LOST = re.compile(r"\[LOST (?P<count>\d+) EVENTS\]")
_PLAIN = re.compile(r"[\w.:@+-]+", re.ASCII)


@dataclass(frozen=True)
class FlowEvent:
    """An event.

    Attributes:
        time_s: seconds since 1970.
        kind: one of EVENTS, "drop" or "lost".
        device: name of the device; "": none.
        more: other values by name: numbers, and the cause of drops.
    """

    time_s: float
    kind: str
    device: str
    more: Mapping[str, int | str]


def parse(line: str, offset_s: float) -> FlowEvent | None:
    """Return the event in a line of the kernel's trace; None: it is not nodrop's.

    Args:
        offset_s: seconds since 1970 at the trace clock's 0.
    """
    if match := _LOST.search(line):
        return FlowEvent(time.time(), "lost", "", {"events": int(match["count"])})
    match = _LINE.search(line)
    if not match:
        return None
    more = {name: int(match[name]) for name in ("queue", "held", "limit", "max", "cpu")}
    return FlowEvent(float(match["time"]) + offset_s, match["event"], match["device"], more)


class Monitor:
    """A reader of events, with its own instance of the kernel's tracing files.

    Args:
        devices: names of devices; empty: all, of all network namespaces.
        kinds: some of KINDS.

    Raises:
        UnsupportedError: nodrop's core is not loaded.
        UsageError: the kernel's filter does not support a name.
    """

    def __init__(self, files: Tracefs, devices: Sequence[str], kinds: Sequence[str]) -> None:
        if not (files.path / "events/nodrop").is_dir():
            raise UnsupportedError("nodrop's driver is not loaded.", "See 'nodrop install --help'.")
        for name in devices:
            if not _PLAIN.fullmatch(name):
                raise UsageError(f"The kernel cannot filter for '{name}'.", "Do not name it.")
        self._devices, self._kinds = tuple(devices), tuple(kinds)
        self._instance = Instance(files)
        self._drops: dict[str, Counters] = {}

    def start(self) -> None:
        """Start tracing; NodropError if the kernel refuses."""
        options = {"trace_clock": "mono"}
        if self._devices:
            names = (f'dev == "{name}"' for name in self._devices)
            options["events/nodrop/filter"] = " || ".join(names)
        self._instance.create(options)
        for kind in self._kinds:
            if kind in EVENTS:
                self._instance.write(f"events/nodrop/nodrop_{kind}/enable", "1")
        self._drops = self._counted()

    def events(self, seconds: float | None) -> Iterator[FlowEvent]:
        """Yield events for ``seconds``, or without end (None)."""
        end = time.monotonic() + (seconds or float("inf"))
        counted = time.monotonic()
        while (now := time.monotonic()) < end:
            if now - counted >= COUNT_S:
                yield from self._dropped()
                counted = now
            select.select([self._instance.pipe], [], [], min(COUNT_S / 4, end - now))
            yield from self.traced()
        yield from self._dropped()

    def close(self) -> None:
        """Remove the instance; may be called more than once."""
        self._instance.close()

    def traced(self) -> Iterator[FlowEvent]:
        offset = time.time() - time.monotonic()
        for line in self._instance.lines():
            if event := parse(line, offset):
                yield event

    def _counted(self) -> dict[str, Counters]:
        """Return the drops of the devices in this namespace: name -> drops by queue and cause."""
        if "drop" not in self._kinds:
            return {}
        drops = {}
        names = [name for name, tun in settings.device_names(None).items() if tun]
        for name in self._devices or names:
            with suppress(OSError, NodropError):
                queues = by_queue(ethtool.stats(name))
                causes = {queue: by_cause(counts) for queue, counts in queues.items()}
                drops[name] = Counters(queues=causes)
        return drops

    def _dropped(self) -> Iterator[FlowEvent]:
        before, self._drops = self._drops, self._counted()
        for name, counters in self._drops.items():
            grown = counters.since(before.get(name, Counters()), from_zero=True)
            for queue, causes in grown.queues.items():
                for cause, packets in causes.items():
                    if packets:
                        more = {"queue": queue, "packets": packets}
                        yield FlowEvent(time.time(), "drop", name, {**more, "cause": cause})


def _kinds(text: str) -> tuple[str, ...]:
    kinds = text.split(",")
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise argparse.ArgumentTypeError(f"unknown event '{unknown[0]}'; known: {', '.join(KINDS)}")
    return tuple(kinds)


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "monitor",
        description="Print flow-control events and drops of nodrop's drivers as they happen, one "
        "per line, until Ctrl-C; with -j, one JSON object per line. Needs root.",
    )
    parser.add_argument("devices", nargs="*", metavar="DEV", help="only these TUN and TAP devices")
    parser.add_argument(
        "--events",
        type=_kinds,
        default=USUAL,
        metavar="LIST",
        help=f"some of {','.join(KINDS)} ({','.join(USUAL)})",
    )
    parser.add_argument(
        "--seconds", type=seconds_from(0.1, 86400), metavar="S", help="exit after S seconds"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    files = Tracefs()
    files.open()
    names = settings.real_names(None, arguments.devices)
    with closing(Monitor(files, names, arguments.events)) as monitor:
        monitor.start()
        missing = ", ".join(sorted({*names} - {*settings.device_names(None)}))
        if missing and not arguments.quiet:
            note = f"There is no device {missing} in this network namespace now."
            screen.messages(arguments).text(note, "dim")
        for event in monitor.events(arguments.seconds):
            if arguments.json:
                when = datetime.fromtimestamp(event.time_s, timezone.utc).isoformat(
                    timespec="microseconds"
                )
                head = {"time": when, "event": event.kind, "device": event.device or None}
                print_json("monitor", {**head, **event.more}, compact=True)
            else:
                print(_line(event), flush=True)
    return 0


def _line(event: FlowEvent) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(event.time_s))
    parts = [f"{clock}.{int(event.time_s % 1 * 10**6):06}", event.device, event.kind]
    more = dict(event.more)
    if "held" in more:
        limit, most = more.pop("limit"), more.pop("max")
        more["ring"] = f"{more.pop('held')}/{limit}, at most {most}"
    parts += [f"{name} {value}" for name, value in more.items()]
    return "  ".join(filter(None, parts))
