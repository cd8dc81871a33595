# SPDX-License-Identifier: GPL-2.0-only
"""Tracers of dropped packets: the tracepoint's events one by one, or bpftrace."""

from __future__ import annotations

import fcntl
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
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from nodrop import proc
from nodrop.errors import NodropError
from nodrop.trace.headers import FIELDS, WORDS, Headers, parse_packet
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
        headers: the packets whose headers were read; None: this tracer reads none.
    """

    packets: Counter[Site] = field(default_factory=Counter)
    unseen: int = 0
    headers: Headers | None = None


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
_READ_BYTES = 1 << 16
_PIPE = 1 << 20
"""Size of the pipe from bpftrace, bytes: what it prints in a fifth of a second at most."""
_SET_PIPE_SIZE = 1031
"""fcntl.F_SETPIPE_SZ, which Python has from 3.10 on."""

_PROGRAM = """\
interval:ms:50 /@on == 0/ {{ @on = 1; printf("ready\\n"); }}
interval:s:1 /@on == 1/ {{ printf("on\\n"); }}
interval:ms:50 {{ @read = 0; }}
tracepoint:skb:kfree_skb /@on == 1/ {{
	$skb = (struct sk_buff *)args->skbaddr;
	$device = $skb->dev;
	if ($device->ifindex == {ifindex} && $device->nd_net.net->ns.inum == {netns}) {{
		@drops[(uint64)args->location, {reason}] = count();
		if (@read < {limit}) {{
			@read = @read + 1;
			$header = (uint64)$skb->head + (uint64)$skb->network_header;
			$words = (uint64 *)$header;
			printf("{format}\\n", nsecs, (uint64)args->location, {reason},
				(uint64)args->protocol, (uint64)$skb->network_header,
				(uint64)$skb->data + $skb->len - $header,
				(uint64)$skb->head + $skb->tail - $header, {words});
		}}
	}}
}}
"""
"""Counts after it has printed "ready". The second probe makes bpftrace before 0.21 notice a SIGINT
that arrives outside of its poll. It prints a line for parse_packet() of the first packets of each
50 ms, so that many drops cost no more."""
_READ = 500
"""Packets whose headers are read in each 50 ms."""


def bpftrace_available(root: Path = Path("/")) -> bool:
    """Return whether bpftrace is installed and the kernel has type information (BTF)."""
    return shutil.which("bpftrace") is not None and (root / _TYPES).exists()


class BpftraceTracer(Tracer):
    """Counter of one device's drops by bpftrace, which knows the kernel's types and cleans up.

    Args:
        ready_s: time that it may take to start, seconds.
        headers: filters, counts and writes packets. With a filter, only the packets that match
            count, and those whose headers were not read are unseen.
    """

    name = "bpftrace"
    device_known = True

    def __init__(
        self,
        files: Tracefs,
        target: Target,
        ready_s: float = READY_S,
        headers: Headers | None = None,
    ) -> None:
        text = (files.path / "events" / EVENT / "format").read_text()
        self._reasons = reason_names(text)
        self._program = bpftrace_program(target, has_reason="reason;" in text)
        self._files = files
        self._headers = headers or Headers()
        self._ready_s = ready_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self._errors: IO[bytes] | None = None
        self._rest = b""
        self._messages: list[Mapping[str, Any]] = []
        self._ready = False

    def start(self) -> None:
        # A file instead of a pipe, which would have to be read meanwhile.
        self._errors = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._process = subprocess.Popen(
            proc.killed_with_us(
                [proc.require("bpftrace", "bpftrace"), "-q", "-f", "json", "-e", self._program]
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env={**os.environ, "BPFTRACE_STRLEN": "64"},
        )
        assert self._process.stdout is not None
        self._stack.callback(self._process.stdout.close)
        os.set_blocking(self._process.stdout.fileno(), False)
        with suppress(OSError):
            fcntl.fcntl(self._process.stdout, _SET_PIPE_SIZE, _PIPE)
        deadline = time.monotonic() + self._ready_s
        while not self._ready:
            self.poll()
            if time.monotonic() > deadline:
                raise NodropError(f"bpftrace was not ready within {self._ready_s:.0f} s.")
            time.sleep(_CHECK_S)

    def poll(self) -> None:
        """Read what bpftrace printed.

        Raises:
            NodropError: it has exited, or its output is not understood.
        """
        assert self._process is not None
        if self._process.poll() is not None:
            raise NodropError("bpftrace ended too early.", self._message())
        self._read()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for _ in range(2 * _PIPE // _READ_BYTES):
            try:
                data = os.read(self._process.stdout.fileno(), _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(line.decode(errors="replace").strip())

    def _take(self, line: str) -> None:
        try:
            message = json.loads(line or "{}")
            if message.get("type") == "map":
                self._messages.append(message)
            elif message.get("type") == "printf":
                fields = message["data"].split()
                if len(fields) == FIELDS:
                    packet = parse_packet(fields)
                    self._headers.add(packet, self._reason(packet.reason))
                self._ready = True
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _not_understood(line) from error

    def _reason(self, number: int) -> str:
        return self._reasons.get(number, str(number)) if self._reasons else ""

    def finish(self) -> Counted:
        """Stop bpftrace, and return the counts."""
        assert self._process is not None
        self.poll()
        self._process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + STOP_S
        while self._process.poll() is None:
            if time.monotonic() > deadline:
                raise NodropError(f"bpftrace did not end within {STOP_S:.0f} s.")
            self._read()
            time.sleep(_CHECK_S)
        if self._process.returncode != 0:
            raise NodropError("bpftrace failed to report its counts.", self._message())
        self._read()
        counts = counts_of(self._messages)
        headers, counted = self._headers, Counted(headers=self._headers)
        if headers.filtered:
            counted.unseen = max(sum(counts.values()) - headers.seen, 0)
            counts = headers.sites
        names = self._files.functions({address for address, _ in counts})
        for (address, reason), packets in counts.items():
            where, module = names.get(address, (f"{address:#x}", ""))
            counted.packets[Site(where, module, self._reason(reason))] += packets
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
    return _PROGRAM.format(
        ifindex=target.ifindex,
        netns=target.netns,
        reason="(uint64)args->reason" if has_reason else "(uint64)0",
        limit=_READ,
        format=" ".join(["%llx"] * FIELDS),
        words=", ".join(f"*($words + {index})" for index in range(WORDS)),
    )


def counts_of(messages: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    """Return (address, number of the reason) -> packets, from bpftrace's maps.

    Raises:
        NodropError: a message is not understood.
    """
    counts: Counter[tuple[int, int]] = Counter()
    for message in messages:
        try:
            for key, packets in message["data"].get("@drops", {}).items():
                address, reason = re.findall(r"-?\d+", key)
                counts[int(address) % 2**64, int(reason)] = int(packets)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _not_understood(str(message)) from error
    return counts


def _not_understood(text: str) -> NodropError:
    return NodropError(f"The output of bpftrace is not understood: {text}")


def _content(file: IO[bytes]) -> bytes:
    """Return a file's content without moving the file offset, which the writer shares."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
