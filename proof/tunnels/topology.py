# SPDX-License-Identifier: GPL-2.0-only
"""A tunnel from this network namespace to another, over a veth pair.

here                               ndfar
ndtunnel0 ........................ ndtunnel0
ndbelow0  ------------------------ ndbelow1
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from guestlib.failure import GuestError
from guestlib.namespaces import namespaces
from guestlib.process import in_netns, ip_batch, tool
from proof.tunnels import gtp, ovpn
from proof.tunnels.links import HERE4, HERE6, INNER4, MAC, THERE4, THERE6, Kind, ends

NAME = "ndtunnel0"
FAR = "ndfar"
BELOW, BEYOND = "ndbelow0", "ndbelow1"
_HERE_MAC, FAR_MAC = "02:00:00:00:04:01", "02:00:00:00:04:02"
_PORT = 51820


def enable_ipv6(device: str, netns: str | None = None) -> None:
    """Enable IPv6 on a device; the lab's guests disable it by default."""
    setting = f"/proc/sys/net/ipv6/conf/{device}/disable_ipv6"
    tool(in_netns(netns, ["tee", setting]), text="0\n")


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


def share_route(mtu: int) -> None:
    """Make all CPUs share one route to the far end, by a PMTU exception.

    Raises:
        GuestError: the kernel has created no exception.
    """
    words = ["ip", "netns", "exec", FAR, sys.executable, "-m", "proof.tunnels.pmtu"]
    tool([*words, HERE4, THERE4, str(mtu)])
    found = tool(["ip", "route", "get", THERE4])
    if f"mtu {mtu}" not in found:
        raise GuestError(f"the route to the far end has no exception: {found.strip()}")


def _wireguard(kind: Kind) -> None:
    """Give both ends keys, and each the other's public key."""
    keys = [tool(["wg", "genkey"]) for _ in range(2)]
    public = [tool(["wg", "pubkey"], text=key).strip() for key in keys]
    for number, netns in enumerate((None, FAR)):
        there = ends(netns is None)["there6" if kind.outer6 else "there4"]
        endpoint = f"[{there}]:{_PORT}" if kind.outer6 else f"{there}:{_PORT}"
        words = f"wg set {NAME} listen-port {_PORT} private-key /proc/self/fd/0"
        words += f" peer {public[1 - number]} endpoint {endpoint} allowed-ips 0.0.0.0/0,::/0"
        tool(in_netns(netns, words.split()), text=keys[number])


@contextmanager
def _end(kind: Kind, netns: str | None) -> Iterator[None]:
    """Create one end for the block; first the FOU port that decapsulates its packets."""
    at = ends(netns is None)
    fou = [f"fou add port {kind.fou}"] if kind.fou else []
    ip_batch([*fou, f"link add {NAME} type {kind.link.format(**at)}"], netns=netns)
    try:
        if kind.link == "ovpn":
            family, version = (socket.AF_INET6, 6) if kind.outer6 else (socket.AF_INET, 4)
            addresses = (at[f"here{version}"], at[f"there{version}"])
            with ovpn.peer(NAME, family, addresses, here=netns is None, netns=netns):
                yield
        else:
            yield
    finally:
        fou = [f"fou del port {kind.fou.split()[0]}"] if kind.fou else []
        ip_batch([f"link delete {NAME}", *fou], netns=netns)


@contextmanager
def tunnel(kind: Kind) -> Iterator[int]:
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
            gtp.add_context(NAME, INNER4, THERE4, None)
        if kind.metadata:
            for netns in (None, FAR):
                _add_metadata(kind, netns)
        yield socket.if_nametoindex(NAME)


def _add_metadata(kind: Kind, netns: str | None) -> None:
    words = kind.metadata.format(**ends(netns is None)).split()
    tool(in_netns(netns, ["tc", "qdisc", "add", "dev", NAME, "clsact"]))
    where = ["tc", "filter", "add", "dev", NAME, "egress", "matchall"]
    tool(in_netns(netns, [*where, "action", "tunnel_key", "set", *words]))
