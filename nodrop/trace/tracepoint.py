# SPDX-License-Identifier: GPL-2.0-only
"""Read the tracepoint's events one by one, if there is no bpftrace.

Each event costs time, so the number of events read per second is limited. The kernel counts the
others, which are reported as unseen.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter

from nodrop.trace.tracefs import EVENT, Tracefs
from nodrop.trace.tracer import Counted, Site, Tracer, of_virtual_links

_READ = 65536
_READS = 50
"""Reads in each poll; one read returns about sixty events."""
_READS_AT_END = 500
_LINE = re.compile(
    r" kfree_skb: .*\blocation=(?P<where>\S+)(?: \[(?P<module>\w+)\])?(?: reason: (?P<reason>\w+))?"
)
_ADDRESS = re.compile(r"[0-9a-f]{16}")
_LOST = re.compile(r"^(?:overrun|dropped events|entries): (?P<count>\d+)$", re.MULTILINE)


class EventsTracer(Tracer):
    """Counter of the drops of all TUN, TAP and vhost-net devices, by location.

    Args:
        files: the kernel's tracing files, open.
    """

    name = "events"
    device_known = False

    def __init__(self, files: Tracefs) -> None:
        self._files = files
        self._instance = files.instance()
        self._pipe = -1
        self._rest = ""
        self._counted = Counted()

    def start(self) -> None:
        """Start counting."""
        try:
            instance = self._instance
            instance.mkdir()
            # Before Linux 6.2, an event has the address instead of the function.
            (instance / "options/hash-ptr").write_text("0")
            self._pipe = os.open(instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
            (instance / "events" / EVENT / "enable").write_text("1")
        except OSError as error:
            raise self._files.refused(error) from error

    def begin(self) -> None:
        """Reset the counts."""
        try:
            # Opening it for truncation empties the buffers of our instance.
            (self._instance / "trace").write_text("")
        except OSError as error:
            raise self._files.refused(error) from error
        self._counted, self._rest = Counted(), ""

    def poll(self) -> None:
        """Read events, up to a limit."""
        self._take(_READS)

    def finish(self) -> Counted:
        """Stop tracing, and return the counts."""
        instance = self._instance
        try:
            (instance / "events" / EVENT / "enable").write_text("0")
            self._take(_READS_AT_END)
            for stats in instance.glob("per_cpu/cpu*/stats"):
                found = _LOST.finditer(stats.read_text())
                self._counted.unseen += sum(int(match["count"]) for match in found)
        except OSError as error:
            raise self._files.refused(error) from error
        return Counted(self._named(), self._counted.unseen)

    def close(self) -> None:
        """Remove the instance; may be called more than once."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        self._files.remove(self._instance)

    def _named(self) -> Counter[Site]:
        """Return the drops in TUN, TAP and vhost-net, by function."""
        packets = self._counted.packets
        names = self._files.functions(
            {int(site.where, 16) for site in packets if _ADDRESS.fullmatch(site.where)}
        )
        found: Counter[Site] = Counter()
        for site, count in packets.items():
            if _ADDRESS.fullmatch(site.where):
                function, module = names.get(int(site.where, 16), (site.where, ""))
                site = Site(function, module, site.reason)
            if of_virtual_links(site):
                found[site] += count
        return found

    def _take(self, reads: int) -> None:
        for _ in range(reads):
            try:
                data = os.read(self._pipe, _READ)
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    return
                raise self._files.refused(error) from error
            if not data:
                return
            *lines, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
            self._counted.packets.update(parse("\n".join(lines)))


def parse(text: str) -> Counter[Site]:
    """Return the drops in lines of a trace; some locations are addresses (``ffff...``)."""
    found: Counter[Site] = Counter()
    for line in text.splitlines():
        match = _LINE.search(line)
        if match is None:
            continue
        where = match["where"].partition("/")[0]
        found[Site(where, match["module"] or "", match["reason"] or "")] += 1
    return found
