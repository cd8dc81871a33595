# SPDX-License-Identifier: GPL-2.0-only
"""The link below a tunnel: packet sockets, sysctls that suppress other traffic, counters."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from guestlib.namespaces import inside
from guestlib.process import in_netns, netns_path, tool
from proof.tunnels.packets import VNET
from proof.tunnels.topology import BELOW, NAME

_ALL = 0x0003
_PACKET, _VNET_HDR, _IGNORE_OUTGOING = 263, 15, 23
_LIMIT_S = 60.0
"""Bound of take() if frames never stop."""
_SETTINGS = {
    # ICMP errors are compared, too: disable their rate limits.
    "net/ipv4/icmp_ratelimit": "0",
    "net/ipv4/icmp_msgs_per_sec": "1000000",
    "net/ipv6/icmp/ratelimit": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    # Automatic flow labels are a hash with a random seed.
    "net/ipv6/auto_flowlabels": "0",
    "net/ipv6/conf/default/accept_ra": "0",
    "net/ipv6/conf/default/router_solicitations": "0",
    "net/ipv6/conf/default/dad_transmits": "0",
    "net/ipv6/conf/default/addr_gen_mode": "1",
    "net/ipv6/mld_qrv": "1",
    "net/ipv6/conf/default/mldv2_unsolicited_report_interval": "1",
    "net/ipv4/igmp_qrv": "1",
}
_COUNTED = ("IpOut", "IpFrag", "IpExtOut", "Ip6Out", "Ip6Frag")


def set_sysctls(netns: str | None = None, more: Sequence[str] = ()) -> None:
    """Set those of the sysctls that this kernel has, and ``more`` to 1."""
    settings = _SETTINGS | dict.fromkeys(more, "1")
    lines = (f"test ! -e {name} || echo {value} >{name}" for name, value in settings.items())
    tool(in_netns(netns, ["sh", "-ec", "cd /proc/sys\n" + "\n".join(lines)]))


def packet_socket(device: str, netns: str | None = None, *, receive: bool = False) -> socket.socket:
    """Return a packet socket that sends to a device, or also receives the device's frames.

    A struct virtio_net_hdr precedes each frame.
    """
    with inside(netns_path(netns) if netns else Path("/proc/self/ns/net")):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.setsockopt(_PACKET, _VNET_HDR, 1)
        sock.setsockopt(_PACKET, _IGNORE_OUTGOING, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        sock.bind((device, _ALL if receive else 0))
    return sock


def take(socks: Sequence[socket.socket], quiet: float) -> list[list[tuple[bytes, bytes]]]:
    """Receive until no socket gets a frame for ``quiet`` seconds.

    Returns:
        For each socket its frames: the struct virtio_net_hdr, and all from the link header on.

    Raises:
        OSError: the kernel cannot deliver a frame, or had no memory for it.
    """
    found: list[list[tuple[bytes, bytes]]] = [[] for _ in socks]
    end = time.monotonic() + _LIMIT_S
    while time.monotonic() < end:
        ready, _, _ = select.select(socks, [], [], quiet)
        if not ready:
            break
        for sock in ready:
            data = sock.recv(1 << 18)
            found[socks.index(sock)].append((data[: VNET.size], data[VNET.size :]))
    return found


def counters() -> dict[str, int]:
    """Return the transmit counters of the tunnel, the device below and the IP layers."""
    lines = (line.split() for line in tool(["nstat", "-asz"]).splitlines())
    found = {line[0]: int(line[1]) for line in lines if line[0].startswith(_COUNTED)}
    for device in (NAME, BELOW):
        for path in Path("/sys/class/net", device, "statistics").glob("tx_*"):
            found[f"{device} {path.name}"] = int(path.read_text(encoding="ascii"))
    return found
