# SPDX-License-Identifier: GPL-2.0-only
"""Settings of the guest's kernel, and socket counters, for all scenarios with a real VPN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.guest.plan import Parameters
from guestlib.netstats import parse_snmp
from guestlib.process import in_netns, tool
from guestlib.vpns import KINDS, End

LIBRARY = "backpressure.so"
"""In NODROP_BIN: adds upstream's flag when a VPN opens its device (LD_PRELOAD)."""
BUFFER_MAX = 64 << 20
"""Bytes; neither a TCP window nor a VPN's socket reaches its limit."""
SETTINGS = {
    Path("/proc/sys/net/core/rmem_max"): str(BUFFER_MAX),
    Path("/proc/sys/net/core/wmem_max"): str(BUFFER_MAX),
    # For VPNs that do not set SO_RCVBUF.
    Path("/proc/sys/net/core/rmem_default"): str(BUFFER_MAX),
    # HyStart mistakes a pause of a virtual CPU for a queue, and ends slow start far too early.
    Path("/sys/module/tcp_cubic/parameters/hystart"): "0",
}
"""Set during a run."""


def vpn_programs(parameters: Parameters) -> tuple[str, ...]:
    """Return the programs of a scenario's VPN; none for an unknown VPN."""
    kind = KINDS.get(str(parameters.get("vpn")))
    return kind.programs if kind else ()


@contextmanager
def settings(wanted: Mapping[Path, str]) -> Iterator[None]:
    """Write settings of the kernel during the block."""
    before = {path: path.read_text() for path in wanted}
    try:
        for path, value in wanted.items():
            path.write_text(f"{value}\n")
        yield
    finally:
        for path, value in before.items():
            path.write_text(value)


def udp_drops(end: End) -> int:
    """Return the drops of an end's UDP sockets, for lack of buffer space or otherwise, packets."""
    found = parse_snmp(tool(in_netns(end.netns, ["cat", "/proc/net/snmp"])), "Udp")
    return found["InErrors"] + found["SndbufErrors"]
