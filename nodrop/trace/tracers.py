# SPDX-License-Identifier: GPL-2.0-only
"""Tracers of dropped packets: the tracepoint's events one by one, or bpftrace."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from nodrop import proc
from nodrop.errors import NodropError
from nodrop.trace.tracefs import EVENT, Instance, Tracefs, reason_names

_WRAPPED = "stock_"
"""Prefix that nodrop's modules give to the driver's functions that they wrap."""


@dataclass(frozen=True)
class Target:
    """The device to trace.

    Attributes:
        name: its name in its network namespace.
        ifindex: its ifindex there.
        netns: inode of the namespace.
    """

    name: str
    ifindex: int
    netns: int


@dataclass(frozen=True)
class Site:
    """A location in the kernel that freed packets, and the reason.

    Attributes:
        where: ``function+0x12``, or an address without a symbol.
        module: the function's module; "": the kernel itself, or unknown.
        reason: the kernel's name of the drop reason; "" before Linux 5.17.
    """

    where: str
    module: str
    reason: str

    @property
    def function(self) -> str:
        """The function's name in the kernel's source, without offset, suffix or nodrop's prefix."""
        return self.where.partition("+")[0].partition(".")[0].removeprefix(_WRAPPED)


@dataclass
class Counted:
    """The counts of a tracer.

    Attributes:
        packets: number of packets at each site.
        unseen: number of events that it could not read.
    """

    packets: Counter[Site] = field(default_factory=Counter)
    unseen: int = 0


class Tracer(ABC):
    """A counter of drops; leaves nothing in the kernel after :meth:`close`.

    Attributes:
        name: name of the tracer in JSON.
        device_known: whether only the device's packets are counted, instead of those of all TUN,
            TAP and vhost-net devices.
    """

    name: str
    device_known: bool

    @abstractmethod
    def start(self) -> None:
        """Start counting; the caller calls :meth:`close` even after an error.

        Raises:
            NodropError: the kernel refuses.
        """

    def begin(self) -> None:
        return

    def poll(self) -> None:
        """Do periodic work; the caller calls it several times a second.

        Raises:
            NodropError: the tracer has ended.
        """
        return

    @abstractmethod
    def finish(self) -> Counted:
        """Stop, and return the counts."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; may be called more than once."""


_OURS = ("tun", "tap", "vhost", "macvtap", "ipvtap", "nodrop")


def of_virtual_links(site: Site) -> bool:
    """Return whether a site is in the drivers of TUN, TAP or vhost-net."""
    if site.module:
        return site.module.startswith(_OURS)
    return site.function.startswith(tuple(f"{name}_" for name in _OURS))


_READS = 50
"""Reads in each poll."""
_READS_AT_END = 500
_LINE = re.compile(
    r" kfree_skb: .*\blocation=(?P<where>\S+)(?: \[(?P<module>\w+)\])?(?: reason: (?P<reason>\w+))?"
)
_ADDRESS = re.compile(r"[0-9a-f]{16}")
_LOST = re.compile(r"^(?:overrun|dropped events|entries): (?P<count>\d+)$", re.MULTILINE)


class EventsTracer(Tracer):
    """Counter of the drops of all TUN, TAP and vhost-net devices, by location; without bpftrace.

    Each event costs time, so the number of events read per second is limited. The kernel counts
    the others, which are reported as unseen.
    """

    name = "events"
    device_known = False

    def __init__(self, files: Tracefs) -> None:
        self._files = files
        self._instance = Instance(files)
        self._packets: Counter[Site] = Counter()

    def start(self) -> None:
        # Before Linux 6.2, an event has the address instead of the function.
        self._instance.create({"options/hash-ptr": "0"})
        self._instance.write(f"events/{EVENT}/enable", "1")

    def begin(self) -> None:
        self._instance.clear()
        self._packets.clear()

    def poll(self) -> None:
        self._packets.update(parse_events(self._instance.lines(_READS)))

    def finish(self) -> Counted:
        instance = self._instance
        instance.write(f"events/{EVENT}/enable", "0")
        self._packets.update(parse_events(instance.lines(_READS_AT_END)))
        with instance.refusals():
            texts = [path.read_text() for path in instance.path.glob("per_cpu/cpu*/stats")]
        unseen = sum(int(match["count"]) for text in texts for match in _LOST.finditer(text))
        return Counted(self._named(), unseen)

    def close(self) -> None:
        self._instance.close()

    def _named(self) -> Counter[Site]:
        """Return the drops in TUN, TAP and vhost-net, by function."""
        names = self._files.functions(
            {int(site.where, 16) for site in self._packets if _ADDRESS.fullmatch(site.where)}
        )
        packets: Counter[Site] = Counter()
        for site, count in self._packets.items():
            if _ADDRESS.fullmatch(site.where):
                function, module = names.get(int(site.where, 16), (site.where, ""))
                site = Site(function, module, site.reason)
            if of_virtual_links(site):
                packets[site] += count
        return packets


def parse_events(lines: Iterable[str]) -> Counter[Site]:
    """Return the drops in lines of a trace; some locations are addresses (``ffff...``)."""
    packets: Counter[Site] = Counter()
    for line in lines:
        if match := _LINE.search(line):
            where = match["where"].partition("/")[0]
            packets[Site(where, match["module"] or "", match["reason"] or "")] += 1
    return packets


READY_S = 20.0
"""Limit for compiling, which takes about a second; then use the other tracer."""
PATIENT_S = 240.0
"""The limit with --tracer bpftrace; on an emulated CPU it takes minutes."""
STOP_S = 120.0
_CHECK_S = 0.02
_TYPES = "sys/kernel/btf/vmlinux"

_PROGRAM = """\
interval:ms:50 /@on == 0/ {{ @on = 1; printf("ready\\n"); }}
interval:s:1 /@on == 1/ {{ printf("on\\n"); }}
tracepoint:skb:kfree_skb /@on == 1/ {{
	$device = ((struct sk_buff *)args->skbaddr)->dev;
	if ($device->ifindex == {ifindex} && $device->nd_net.net->ns.inum == {netns}) {{
		@drops[(uint64)args->location, {reason}] = count();
	}}
}}
"""
"""Counts after it has printed "ready". The second probe makes bpftrace before 0.21 notice a SIGINT
that arrives outside of its poll."""


def bpftrace_available(root: Path = Path("/")) -> bool:
    """Return whether bpftrace is installed and the kernel has type information (BTF)."""
    return shutil.which("bpftrace") is not None and (root / _TYPES).exists()


class BpftraceTracer(Tracer):
    """Counter of one device's drops by bpftrace, which knows the kernel's types and cleans up.

    Args:
        ready_s: time that it may take to start, seconds.
    """

    name = "bpftrace"
    device_known = True

    def __init__(self, files: Tracefs, target: Target, ready_s: float = READY_S) -> None:
        text = (files.path / "events" / EVENT / "format").read_text()
        self._reasons = reason_names(text)
        self._program = bpftrace_program(target, has_reason="reason;" in text)
        self._files = files
        self._ready_s = ready_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self._output: IO[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def start(self) -> None:
        # Files instead of pipes, which would have to be read meanwhile.
        self._output, self._errors = (
            self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            for _ in range(2)
        )
        self._process = subprocess.Popen(
            proc.killed_with_us(
                [proc.require("bpftrace", "bpftrace"), "-q", "-f", "json", "-e", self._program]
            ),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            start_new_session=True,
            env={**os.environ, "BPFTRACE_STRLEN": "64"},
        )
        deadline = time.monotonic() + self._ready_s
        while b"ready" not in _content(self._output):
            self.poll()
            if time.monotonic() > deadline:
                raise NodropError(f"bpftrace was not ready within {self._ready_s:.0f} s.")
            time.sleep(_CHECK_S)

    def poll(self) -> None:
        """Raise NodropError if bpftrace has exited."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise NodropError("bpftrace ended too early.", self._message())

    def finish(self) -> Counted:
        """Stop bpftrace, and return the counts."""
        assert self._process is not None
        assert self._output is not None
        self.poll()
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired as error:
            raise NodropError(f"bpftrace did not end within {STOP_S:.0f} s.") from error
        if self._process.returncode != 0:
            raise NodropError("bpftrace failed to report its counts.", self._message())
        counts = parse_bpftrace(_content(self._output).decode(errors="replace"))
        names = self._files.functions({address for address, _ in counts})
        counted = Counted(Counter())
        for (address, reason), packets in counts.items():
            where, module = names.get(address, (f"{address:#x}", ""))
            text = self._reasons.get(reason, str(reason)) if self._reasons else ""
            counted.packets[Site(where, module, text)] += packets
        return counted

    def close(self) -> None:
        """Kill bpftrace; the kernel then unloads its programs."""
        if self._process is not None:
            with suppress(NodropError):
                proc.kill_group(self._process)
        self._stack.close()

    def _message(self) -> str:
        assert self._errors is not None
        return proc.tail(_content(self._errors).decode(errors="replace").strip(), 4)


def bpftrace_program(target: Target, *, has_reason: bool) -> str:
    reason = "(uint64)args->reason" if has_reason else "(uint64)0"
    return _PROGRAM.format(ifindex=target.ifindex, netns=target.netns, reason=reason)


def parse_bpftrace(text: str) -> dict[tuple[int, int], int]:
    """Return (address, number of the reason) -> packets, from bpftrace's JSON.

    Raises:
        NodropError: the output is not understood.
    """
    counts: dict[tuple[int, int], int] = {}
    try:
        for line in filter(None, map(str.strip, text.splitlines())):
            message = json.loads(line)
            if message["type"] != "map":
                continue
            for key, packets in message["data"].get("@drops", {}).items():
                address, reason = re.findall(r"-?\d+", key)
                counts[int(address) % 2**64, int(reason)] = int(packets)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise NodropError(f"The output of bpftrace is not understood: {line}") from error
    return counts


def _content(file: IO[bytes]) -> bytes:
    """Return a file's content without moving the file offset, which the writer shares."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
