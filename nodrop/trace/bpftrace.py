# SPDX-License-Identifier: GPL-2.0-only
"""Count a device's drops by bpftrace, which knows the kernel's types and cleans up after itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from nodrop import proc
from nodrop.errors import NodropError
from nodrop.trace.tracefs import EVENT, Tracefs, reason_names
from nodrop.trace.tracer import Counted, Site, Target, Tracer

READY_S = 20.0
"""Limit for compiling, which takes about a second; then use the other tracer."""
PATIENT_S = 240.0
"""The limit with --tracer bpftrace; on an emulated CPU it takes minutes."""
STOP_S = 120.0
_LOOK_S = 0.02
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


def available(root: Path = Path("/")) -> bool:
    """Return whether bpftrace is installed and the kernel has type information (BTF)."""
    return shutil.which("bpftrace") is not None and (root / _TYPES).exists()


class BpftraceTracer(Tracer):
    """Counter of one device's drops.

    Args:
        files: the kernel's tracing files, open.
        target: the device.
        ready_s: time that it may take to start, seconds.
    """

    name = "bpftrace"
    device_known = True

    def __init__(self, files: Tracefs, target: Target, ready_s: float = READY_S) -> None:
        text = (files.path / "events" / EVENT / "format").read_text()
        self._reasons = reason_names(text)
        self._program = program(target, has_reason="reason;" in text)
        self._files = files
        self._ready_s = ready_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self._output: IO[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def start(self) -> None:
        """Start counting."""
        # Files instead of pipes, which would have to be read meanwhile.
        self._output, self._errors = (
            self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            for _ in range(2)
        )
        self._process = subprocess.Popen(
            [
                proc.require("setpriv", "util-linux"),
                *("--pdeathsig", "KILL", "--"),
                proc.require("bpftrace", "bpftrace"),
                *("-q", "-f", "json", "-e", self._program),
            ],
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
            time.sleep(_LOOK_S)

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
        counts = parse(_content(self._output).decode(errors="replace"))
        names = self._files.functions({address for address, _ in counts})
        counted = Counted(Counter())
        for (address, reason), packets in counts.items():
            where, module = names.get(address, (f"{address:#x}", ""))
            word = self._reasons.get(reason, str(reason)) if self._reasons else ""
            counted.packets[Site(where, module, word)] += packets
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


def program(target: Target, *, has_reason: bool) -> str:
    """Return bpftrace's program for a device."""
    reason = "(uint64)args->reason" if has_reason else "(uint64)0"
    return _PROGRAM.format(ifindex=target.ifindex, netns=target.netns, reason=reason)


def parse(text: str) -> dict[tuple[int, int], int]:
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
