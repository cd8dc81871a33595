# SPDX-License-Identifier: GPL-2.0-only
"""Read events of nodrop's own tracepoints, and its counters of drops."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from nodrop.errors import NodropError, UnsupportedError, UsageError
from nodrop.host import build, ethtool, switch
from nodrop.trace.tracefs import Tracefs

EVENTS = ("stop", "wake", "kick", "guard")
"""Events of the drivers' tracepoints. "drop" comes from their counters, "lost" from the trace."""
COUNT_S = 1.0
"""Interval at which counters are read, seconds."""
_READ = 65536
_LINE = re.compile(
    r" (?P<time>\d+\.\d+): nodrop_(?P<event>\w+): dev=(?P<device>\S*) queue=(?P<queue>\d+) "
    r"held=(?P<held>\d+)/(?P<limit>\d+) max=(?P<max>\d+) cpu=(?P<cpu>-?\d+)"
)
_LOST = re.compile(r"\[LOST (?P<count>\d+) EVENTS\]")
_PLAIN = re.compile(r"[\w.:@+-]+", re.ASCII)


@dataclass(frozen=True)
class Event:
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


def parse(line: str, offset_s: float) -> Event | None:
    """Return the event in a line of the kernel's trace; None: it is not nodrop's.

    Args:
        line: the line without its newline.
        offset_s: seconds since 1970 at the trace clock's 0.
    """
    if match := _LOST.search(line):
        return Event(time.time(), "lost", "", {"events": int(match["count"])})
    match = _LINE.search(line)
    if not match:
        return None
    more = {name: int(match[name]) for name in ("queue", "held", "limit", "max", "cpu")}
    return Event(float(match["time"]) + offset_s, match["event"], match["device"], more)


class Monitor:
    """A reader of events, with its own instance of the kernel's tracing files.

    Args:
        files: the kernel's tracing files, open.
        devices: names of devices; empty: all, of all network namespaces.
        kinds: some of EVENTS, and "drop".

    Raises:
        UnsupportedError: nodrop's core is not loaded.
        UsageError: the kernel's filter does not support a name.
    """

    def __init__(self, files: Tracefs, devices: Sequence[str], kinds: Sequence[str]) -> None:
        if not (files.path / "events/nodrop").is_dir():
            raise UnsupportedError("nodrop's driver is not loaded.", "See 'nodrop install --help'.")
        for name in devices:
            if not _PLAIN.fullmatch(name):
                raise UsageError(f"The kernel cannot filter for '{name}'.", "Leave the name out.")
        self._files, self._devices, self._kinds = files, tuple(devices), tuple(kinds)
        self._instance = files.instance()
        self._pipe = -1
        self._rest = ""
        self._drops: dict[tuple[str, int, str], int] = {}

    def start(self) -> None:
        """Start tracing.

        Raises:
            NodropError: the kernel refuses.
        """
        instance = self._instance
        try:
            instance.mkdir()
            (instance / "trace_clock").write_text("mono")
            if self._devices:
                text = " || ".join(f'dev == "{name}"' for name in self._devices)
                (instance / "events/nodrop/filter").write_text(text)
            self._pipe = os.open(instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
            for kind in self._kinds:
                if kind in EVENTS:
                    (instance / f"events/nodrop/nodrop_{kind}/enable").write_text("1")
        except OSError as error:
            raise self._files.refused(error) from error
        self._drops = self._counted()

    def events(self, seconds: float | None) -> Iterator[Event]:
        """Yield events for ``seconds``, or without end (None)."""
        end = time.monotonic() + (seconds or float("inf"))
        counted = time.monotonic()
        while (now := time.monotonic()) < end:
            if now - counted >= COUNT_S:
                yield from self._dropped()
                counted = now
            select.select([self._pipe], [], [], min(COUNT_S / 4, end - now))
            yield from self._traced()
        yield from self._dropped()

    def close(self) -> None:
        """Remove the instance; may be called more than once."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        self._files.remove(self._instance)

    def _traced(self) -> Iterator[Event]:
        offset = time.time() - time.monotonic()
        try:
            data = os.read(self._pipe, _READ)
        except BlockingIOError:
            return
        except OSError as error:
            raise self._files.refused(error) from error
        *lines, self._rest = (self._rest + data.decode(errors="surrogateescape")).split("\n")
        for line in lines:
            if event := parse(line, offset):
                yield event

    def _counted(self) -> dict[tuple[str, int, str], int]:
        """Return the drops of the devices in this namespace by name, queue and cause."""
        found: dict[tuple[str, int, str], int] = {}
        if "drop" not in self._kinds:
            return found
        for name in self._devices or [name for name, tun in switch.names(None).items() if tun]:
            with suppress(OSError, NodropError):
                for counter, value in ethtool.stats(name).items():
                    queue, what = build.place(counter) or (0, "")
                    if what.startswith("drop_"):
                        found[name, queue, what.removeprefix("drop_")] = value
        return found

    def _dropped(self) -> Iterator[Event]:
        before, self._drops = self._drops, self._counted()
        for (name, queue, cause), value in self._drops.items():
            if (packets := value - before.get((name, queue, cause), 0)) > 0:
                more: dict[str, int | str] = {"queue": queue, "cause": cause, "packets": packets}
                yield Event(time.time(), "drop", name, more)
