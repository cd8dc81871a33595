# SPDX-License-Identifier: GPL-2.0-only
"""A tunnel from this network namespace to another, over a veth pair; its packets and counters.

here                               ndfar
ndtunnel0 ........................ ndtunnel0
ndbelow0  ------------------------ ndbelow1
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from guestlib.environment import GuestError, set_sysctls
from guestlib.namespaces import inside, namespaces
from guestlib.packets import checksum, ip4
from guestlib.process import in_netns, ip_batch, tool
from tunnels.links import HERE4, HERE6, INNER4, MAC, THERE4, THERE6, LinkKind, ends
from tunnels.netlink import add_gtp_context, ovpn_peer
from tunnels.packets import VNET

NAME = "ndtunnel0"
FAR = "ndfar"
BELOW, BEYOND = "ndbelow0", "ndbelow1"
SINK = "ndsink0"
_HERE_MAC, FAR_MAC = "02:00:00:00:04:01", "02:00:00:00:04:02"
_WIREGUARD_PORT = 51820
_UNREACHABLE, _NEEDS_FRAGMENTATION = 3, 4
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
    # No probe of a stale neighbour while packets are recorded.
    "net/ipv4/neigh/default/delay_first_probe_time": "3600",
    "net/ipv6/neigh/default/delay_first_probe_time": "3600",
}
_COUNTED = ("IpOut", "IpFrag", "IpExtOut", "Ip6Out", "Ip6Frag")


def enable_ipv6(device: str, netns: str | None = None) -> None:
    """Enable IPv6 on a device; the lab's guests disable it by default."""
    with inside(netns):
        set_sysctls({f"net/ipv6/conf/{device}/disable_ipv6": "0"})


@contextmanager
def below() -> Iterator[None]:
    """Create the veth pair for the block, with addresses and permanent neighbours."""
    here = (None, BELOW, (HERE4, HERE6), (THERE4, THERE6), FAR_MAC)
    there = (FAR, BEYOND, (THERE4, THERE6), (HERE4, HERE6), _HERE_MAC)
    pair = f"link add {BELOW} address {_HERE_MAC} type veth peer name {BEYOND} address {FAR_MAC}"
    with namespaces(FAR):
        ip_batch([f"{pair} netns {FAR}"])
        try:
            for netns, device, own, others, mac in (here, there):
                enable_ipv6(device, netns)
                lines = [f"link set {device} up"]
                lines += [f"address add {own[0]}/24 dev {device}"]
                lines += [f"address add {own[1]}/64 dev {device} nodad"]
                for other in others:
                    lines += [f"neigh replace {other} lladdr {mac} dev {device} nud permanent"]
                ip_batch(lines, netns=netns)
            yield
        finally:
            ip_batch([f"link delete {BELOW}"])


@contextmanager
def sink() -> Iterator[None]:
    """Route the far end to a device that drops all packets, for the block."""
    ip_batch([f"link add {SINK} type dummy"])
    try:
        enable_ipv6(SINK)
        lines = [f"link set {SINK} up"]
        lines += [
            f"route add {there} dev {SINK} src {here}"
            for there, here in ((THERE4, HERE4), (THERE6, HERE6))
        ]
        ip_batch(lines)
        yield
    finally:
        ip_batch([f"link delete {SINK}"])


def pmtu_message(sender: str, target: str, mtu: int) -> bytes:
    """Return ICMP's "fragmentation needed" about a packet from ``sender`` to ``target``.

    It is about an echo reply, for which the kernel needs no socket.

    Args:
        mtu: of the link that was too small, bytes.
    """
    about = ip4(bytes(8), socket.IPPROTO_ICMP, fragment=0x4000, at=(sender, target))
    message = struct.pack("!BBHHH", _UNREACHABLE, _NEEDS_FRAGMENTATION, 0, 0, mtu) + about
    return message[:2] + struct.pack("!H", checksum(message)) + message[4:]


def lower_pmtu(mtu: int) -> None:
    """Let the far end report a smaller path MTU, as a router on the path would.

    The route to the far end gets an exception. All CPUs share an exception's cached route; without
    one each CPU has its own.
    """
    with inside(FAR), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.sendto(pmtu_message(HERE4, THERE4, mtu), (HERE4, 0))


def share_route(mtu: int) -> None:
    """Make all CPUs share one route to the far end's IPv4 address, by a PMTU exception.

    Raises:
        GuestError: the kernel has created no exception.
    """
    lower_pmtu(mtu)
    route = tool(["ip", "route", "get", THERE4])
    if f"mtu {mtu}" not in route:
        raise GuestError(f"the route to the far end has no exception: {route.strip()}")


def _wireguard(kind: LinkKind) -> None:
    """Give both ends keys, and each the other's public key."""
    keys = [tool(["wg", "genkey"]) for _ in range(2)]
    public = [tool(["wg", "pubkey"], text=key).strip() for key in keys]
    for number, netns in enumerate((None, FAR)):
        there = ends(netns is None)["there6" if kind.outer6 else "there4"]
        endpoint = f"[{there}]:{_WIREGUARD_PORT}" if kind.outer6 else f"{there}:{_WIREGUARD_PORT}"
        command = f"wg set {NAME} listen-port {_WIREGUARD_PORT} private-key /proc/self/fd/0"
        command += f" peer {public[1 - number]} endpoint {endpoint} allowed-ips 0.0.0.0/0,::/0"
        tool(in_netns(netns, command.split()), text=keys[number])


@contextmanager
def _end(kind: LinkKind, netns: str | None) -> Iterator[None]:
    """Create one end for the block; first the FOU port that decapsulates its packets."""
    at = ends(netns is None)
    fou = [f"fou add port {kind.fou}"] if kind.fou else []
    ip_batch([*fou, f"link add {NAME} type {kind.link.format(**at)}"], netns=netns)
    try:
        if kind.link == "ovpn":
            family, version = (socket.AF_INET6, 6) if kind.outer6 else (socket.AF_INET, 4)
            addresses = (at[f"here{version}"], at[f"there{version}"])
            with ovpn_peer(NAME, family, addresses, netns=netns):
                yield
        else:
            yield
    finally:
        fou = [f"fou del port {kind.fou.split()[0]}"] if kind.fou else []
        ip_batch([f"link delete {NAME}", *fou], netns=netns)


@contextmanager
def tunnel(kind: LinkKind) -> Iterator[int]:
    """Create a tunnel and its far end for the block.

    Yields:
        The interface index of the near end.
    """
    with ExitStack() as stack:
        stack.enter_context(below())
        stack.enter_context(_end(kind, None))
        stack.enter_context(_end(kind, FAR))
        if kind.link == "wireguard":
            _wireguard(kind)
        mac = f"address {MAC.hex(':')} " if kind.ethernet else ""
        ip_batch([f"link set {NAME} {mac}up"], netns=FAR)
        ip_batch([f"link set {NAME} up", f"route add {INNER4}/32 dev {NAME}"])
        if kind.link.startswith("gtp"):
            add_gtp_context(NAME, INNER4, THERE4)
        if kind.metadata:
            for netns in (None, FAR):
                _add_metadata(kind, netns)
        yield socket.if_nametoindex(NAME)


def _add_metadata(kind: LinkKind, netns: str | None) -> None:
    key = kind.metadata.format(**ends(netns is None)).split()
    tool(in_netns(netns, ["tc", "qdisc", "add", "dev", NAME, "clsact"]))
    command = ["tc", "filter", "add", "dev", NAME, "egress", "matchall"]
    tool(in_netns(netns, [*command, "action", "tunnel_key", "set", *key]))


def mtu() -> int:
    """Return the MTU of the tunnel's near device, at most that of Ethernet."""
    return min(1500, int(Path(f"/sys/class/net/{NAME}/mtu").read_text(encoding="ascii")))


def prepare(netns: str | None = None, more: Sequence[str] = ()) -> None:
    """Set the sysctls of tunnels in a namespace, and ``more`` to 1."""
    with inside(netns):
        set_sysctls(_SETTINGS | dict.fromkeys(more, "1"))


def packet_socket(
    device: str, netns: str | None = None, *, receive: bool = False, mark: int = 0
) -> socket.socket:
    """Return a packet socket that sends to a device, or also receives the device's frames.

    A struct virtio_net_hdr precedes each frame.

    Args:
        mark: of the packets that it sends.
    """
    with inside(netns):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.setsockopt(_PACKET, _VNET_HDR, 1)
        sock.setsockopt(_PACKET, _IGNORE_OUTGOING, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
        sock.bind((device, _ALL if receive else 0))
    return sock


def take(socks: Sequence[socket.socket], quiet: float) -> list[list[tuple[bytes, bytes]]]:
    """Receive until no socket gets a frame for ``quiet`` seconds.

    Returns:
        For each socket its frames: the struct virtio_net_hdr, and all from the link header on.

    Raises:
        OSError: the kernel cannot deliver a frame, or had no memory for it.
    """
    frames: list[list[tuple[bytes, bytes]]] = [[] for _ in socks]
    end = time.monotonic() + _LIMIT_S
    while time.monotonic() < end:
        ready, _, _ = select.select(socks, [], [], quiet)
        if not ready:
            break
        for sock in ready:
            data = sock.recv(1 << 18)
            frames[socks.index(sock)].append((data[: VNET.size], data[VNET.size :]))
    return frames


def counters() -> dict[str, int]:
    """Return the transmit counters of the tunnel, the device below and the IP layers."""
    lines = (line.split() for line in tool(["nstat", "-asz"]).splitlines())
    values = {line[0]: int(line[1]) for line in lines if line[0].startswith(_COUNTED)}
    for device in (NAME, BELOW):
        for path in Path("/sys/class/net", device, "statistics").glob("tx_*"):
            values[f"{device} {path.name}"] = int(path.read_text(encoding="ascii"))
    return values
