# SPDX-License-Identifier: GPL-2.0-only
"""Counts drops by the kernel's histogram triggers, without any program from outside.

The tracepoint tells the packet, but not its device. Where the kernel's types are known a
dynamic event on top of it (an eprobe, 5.15) follows the pointers from the packet to its device and
that device's network namespace, and the histogram takes only what fits.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress

from nodrop.errors import NodropError
from nodrop.trace.btf import Btf
from nodrop.trace.model import Counted, Site, Target, Tracer, of_virtual_links
from nodrop.trace.tracefs import EVENT, Tracefs, reason_names

_ENTRY = re.compile(r"^\{(?P<keys>.*)\} hitcount: +(?P<count>\d+)", re.MULTILINE)
_PLACE = re.compile(r"where: +\[[0-9a-f]+\] +(?P<where>[^ ,]+)(?: +\[(?P<module>\w+)\])?")
_LOCATION = re.compile(_PLACE.pattern.replace("where:", "location:", 1))
_REASON = re.compile(r"reason: +(?P<reason>\d+)")
_DROPPED = re.compile(r"^ *Dropped: +(?P<count>\d+)", re.MULTILINE)


class _Histogram(Tracer):
    """A histogram in an instance of our own."""

    def __init__(self, files: Tracefs) -> None:
        self._files = files
        self._name = files.own_name()
        text = (files.path / "events" / EVENT / "format").read_text()
        self._has_reason = "reason;" in text
        self._reasons = reason_names(text)
        self._before = Counted()

    def _arm(self, event: str, key: str, condition: str = "") -> None:
        instance = self._files.make(self._name)
        self._events = instance / "events" / event
        keys = f"{key}.sym-offset" + (",reason" if self._has_reason else "")
        self._files.append(self._events / "trigger", f"hist:keys={keys}:size=2048" + condition)

    def begin(self) -> None:
        """Forget what was counted so far."""
        self._before = self._read()

    def finish(self) -> Counted:
        """Return what was counted."""
        counted = self._read()
        counted.packets -= self._before.packets
        counted.unseen -= self._before.unseen
        return counted

    def _read(self) -> Counted:
        try:
            return parse((self._events / "hist").read_text(), self._reasons)
        except OSError as error:
            raise self._files.refused(error) from error

    def close(self) -> None:
        """Remove everything; may be called more than once."""
        self._files.remove(self._name)


class EprobeTracer(_Histogram):
    """Counts one device's drops.

    Args:
        files: the kernel's tracing files, open.
        target: the device.
        types: the kernel's.

    Raises:
        BtfError: the types have no such members.
    """

    name = "eprobe"
    device_known = True

    def __init__(self, files: Tracefs, target: Target, types: Btf) -> None:
        super().__init__(files)
        self._target = target
        self._probe = probe(self._name, types, has_reason=self._has_reason)

    def start(self) -> None:
        """Begin to count."""
        target = self._target
        try:
            self._files.append("dynamic_events", self._probe)
            self._arm(
                f"{self._name}/drop",
                "where",
                f" if ifindex == {target.ifindex} && netns == {target.netns}",
            )
        except OSError as error:
            raise self._files.refused(error) from error


class HistTracer(_Histogram):
    """Counts the drops of all TUN, TAP and vhost-net devices, by where they happen."""

    name = "histogram"
    device_known = False

    def start(self) -> None:
        """Begin to count."""
        try:
            self._arm(EVENT, "location")
        except OSError as error:
            raise self._files.refused(error) from error

    def finish(self) -> Counted:
        """Stop, and return what was counted."""
        counted = super().finish()
        ours = {site: n for site, n in counted.packets.items() if of_virtual_links(site)}
        return Counted(Counter(ours), counted.unseen)


def probe(group: str, types: Btf, *, has_reason: bool) -> str:
    """Return the line that makes the event GROUP/drop.

    Raises:
        BtfError: the types have no such members.
    """
    device = f"+{types.offset('sk_buff', 'dev')}($skbaddr)"
    ifindex = f"+{types.offset('net_device', 'ifindex')}({device}):s32"
    netns = types.offset("net", "ns.inum")
    net = f"+{types.offset('net_device', 'nd_net.net')}({device})"
    reason = " reason=$reason:u32" if has_reason else ""
    return (
        f"e:{group}/drop {EVENT} ifindex={ifindex} netns=+{netns}({net}):u32"
        f" where=$location:x64{reason}"
    )


def parse(text: str, reasons: dict[int, str]) -> Counted:
    """Return what a histogram's file tells.

    Args:
        reasons: number -> name.

    Raises:
        NodropError: it is no histogram of ours.
    """
    counted = Counted()
    for entry in _ENTRY.finditer(text):
        place = _PLACE.search(entry["keys"]) or _LOCATION.search(entry["keys"])
        if place is None:
            raise NodropError(f"The kernel's histogram has a line of a new form: {entry[0]}.")
        number = _REASON.search(entry["keys"])
        reason = reasons.get(int(number["reason"]), number["reason"]) if number else ""
        where = place["where"].partition("/")[0]
        counted.packets[Site(where, place["module"] or "", reason)] += int(entry["count"])
    with suppress(StopIteration):
        counted.unseen = int(next(_DROPPED.finditer(text))["count"])
    return counted
