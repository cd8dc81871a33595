# SPDX-License-Identifier: GPL-2.0-only
"""What all scenarios with a real VPN ask of the guest's kernel, and count of its sockets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.guest.plan import Parameters
from lab.guest.netstats import parse_snmp
from lab.guest.process import in_netns, tool
from lab.guest.vpns import KINDS, End

LIBRARY = "backpressure.so"
"""In the traffic programs' folder: makes a VPN ask for upstream's flag (LD_PRELOAD)."""
BUFFER_MAX = 64 << 20
"""Bytes: neither a window of TCP nor a VPN's socket meets its limit."""
SETTINGS = {
    Path("/proc/sys/net/core/rmem_max"): str(BUFFER_MAX),
    Path("/proc/sys/net/core/wmem_max"): str(BUFFER_MAX),
    # VPNs that do not ask have this.
    Path("/proc/sys/net/core/rmem_default"): str(BUFFER_MAX),
    # It takes a pause of a virtual CPU for a queue, and ends slow start far too early.
    Path("/sys/module/tcp_cubic/parameters/hystart"): "0",
}
"""For the length of a run."""


def vpn_programs(parameters: Parameters) -> tuple[str, ...]:
    """Return the programs of a scenario's VPN; none of one that is not known."""
    kind = KINDS.get(str(parameters.get("vpn")))
    return kind.programs if kind else ()


@contextmanager
def settings(wanted: Mapping[Path, str]) -> Iterator[None]:
    """Write the kernel's settings for the block."""
    before = {path: path.read_text() for path in wanted}
    try:
        for path, value in wanted.items():
            path.write_text(f"{value}\n")
        yield
    finally:
        for path, value in before.items():
            path.write_text(value)


def udp_drops(end: End) -> int:
    """Return what an end's UDP sockets dropped, for want of buffers or otherwise, packets."""
    found = parse_snmp(tool(in_netns(end.netns, ["cat", "/proc/net/snmp"])), "Udp")
    return found["InErrors"] + found["SndbufErrors"]
