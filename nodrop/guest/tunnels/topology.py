# SPDX-License-Identifier: GPL-2.0-only
"""A tunnel, and the device below it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import StrEnum

from nodrop.guest.command import in_netns, ip_batch, tool
from nodrop.guest.failure import GuestError
from nodrop.guest.netns import namespaces
from nodrop.guest.tunnels import ovpn
from nodrop.guest.tunnels.kinds import (
    HERE4,
    HERE6,
    INNER4,
    MAC,
    THERE4,
    THERE6,
    Kind,
    ends,
)

NAME = "ndtunnel0"
FAR = "ndfar"
BELOW, BEYOND = "ndbelow0", "ndbelow1"
_HERE_MAC = "02:00:00:00:04:01"
_FAR_MAC = "02:00:00:00:04:02"
_PORT = 51820


class Lower(StrEnum):
    """What is below the tunnel."""

    DUMMY = "dummy"
    """A device that drops all: the transmit path alone."""
    VETH = "veth"
    """Another network namespace, where the tunnel ends."""


def speaks_ipv6(device: str, netns: str | None) -> None:
    """The lab's guests switch IPv6 off where they can."""
    where = ["ip", "netns", "exec", netns] if netns else []
    setting = f"/proc/sys/net/ipv6/conf/{device}/disable_ipv6"
    tool([*where, "tee", setting], text="0\n")


@contextmanager
def below(lower: Lower, mtu: int) -> Iterator[None]:
    """The device below, with addresses and neighbours that need no asking."""
    with ExitStack() as stack:
        if lower is Lower.DUMMY:
            lines = [f"link add {BELOW} address {_HERE_MAC} type dummy"]
        else:
            stack.enter_context(namespaces(FAR))
            lines = [
                f"link add {BELOW} address {_HERE_MAC} type veth peer name {BEYOND} netns {FAR}"
            ]
        ip_batch(lines)
        stack.callback(ip_batch, [f"link delete {BELOW}"])
        speaks_ipv6(BELOW, None)
        lines = [
            f"link set {BELOW} mtu {mtu} up",
            f"address add {HERE4}/24 dev {BELOW}",
            f"address add {HERE6}/64 dev {BELOW} nodad",
            f"neigh replace {THERE4} lladdr {_FAR_MAC} dev {BELOW} nud permanent",
            f"neigh replace {THERE6} lladdr {_FAR_MAC} dev {BELOW} nud permanent",
        ]
        ip_batch(lines)
        if lower is Lower.VETH:
            speaks_ipv6(BEYOND, FAR)
            far = [
                f"link set {BEYOND} address {_FAR_MAC}",
                f"link set {BEYOND} mtu {mtu} up",
                f"address add {THERE4}/24 dev {BEYOND}",
                f"address add {THERE6}/64 dev {BEYOND} nodad",
                f"neigh replace {HERE4} lladdr {_HERE_MAC} dev {BEYOND} nud permanent",
                f"neigh replace {HERE6} lladdr {_HERE_MAC} dev {BEYOND} nud permanent",
            ]
            ip_batch(far, netns=FAR)
        yield


def share_route(mtu: int) -> None:
    """Make all CPUs use one route to the far end, by an exception for its MTU.

    Raises:
        GuestError: the kernel has none afterwards.
    """
    words = ["ip", "netns", "exec", FAR, sys.executable, "-m", "nodrop.guest.tunnels.pmtu"]
    tool([*words, HERE4, THERE4, str(mtu)])
    found = tool(["ip", "route", "get", THERE4])
    if f"mtu {mtu}" not in found:
        raise GuestError(f"the route to the far end has no exception: {found.strip()}")


def _wireguard_keys() -> tuple[str, str]:
    private = tool(["wg", "genkey"]).strip()
    return private, tool(["wg", "pubkey"], text=private + "\n").strip()


def _wireguard(peer: str, key: str, netns: str | None, private: str) -> None:
    where = ["ip", "netns", "exec", netns] if netns else []
    words = ["wg", "set", NAME, "listen-port", str(_PORT), "private-key", "/proc/self/fd/0"]
    endpoint = f"[{peer}]:{_PORT}" if ":" in peer else f"{peer}:{_PORT}"
    words += ["peer", key, "endpoint", endpoint, "allowed-ips", "0.0.0.0/0,::/0"]
    tool([*where, *words], text=private + "\n")


@contextmanager
def _fou(kind: Kind, netns: str | None) -> Iterator[None]:
    """What takes the UDP header off again."""
    if not kind.fou:
        yield
        return
    words = [*(["-n", netns] if netns else []), "-6" if kind.outer6 else "-4", "fou"]
    port = kind.fou.split()[0]
    tool(["ip", *words, "add", "port", *kind.fou.split()])
    try:
        yield
    finally:
        tool(["ip", *words, "del", "port", port])


@contextmanager
def _end(kind: Kind, netns: str | None) -> Iterator[None]:
    """One of both ends; it goes with its namespace, where that is not the caller's."""
    link = kind.link.format(**ends(netns is None))
    with _fou(kind, netns):
        ip_batch([f"link add {NAME} type {link}"], netns=netns)
        try:
            yield
        finally:
            ip_batch([f"link delete {NAME}"], netns=netns)


@contextmanager
def tunnel(kind: Kind, lower: Lower, *, mtu: int = 1500) -> Iterator[int]:
    """A tunnel that is up, and its far end, where there is one.

    Args:
        mtu: of the device below.

    Yields:
        The tunnel's index.
    """
    far = lower is Lower.VETH
    with ExitStack() as stack:
        stack.enter_context(below(lower, mtu))
        stack.enter_context(_end(kind, None))
        if far:
            stack.enter_context(_end(kind, FAR))
        if kind.link == "wireguard":
            _wireguard_both(kind, far)
        if kind.link == "ovpn":
            stack.enter_context(_ovpn(kind, None))
            if far:
                stack.enter_context(_ovpn(kind, FAR))
        _set_up(kind, far)
        yield socket.if_nametoindex(NAME)


def _wireguard_both(kind: Kind, far: bool) -> None:
    at = ends(True)
    here, there = (at["here6"], at["there6"]) if kind.outer6 else (at["here4"], at["there4"])
    near_keys, far_keys = _wireguard_keys(), _wireguard_keys()
    _wireguard(there, far_keys[1], None, near_keys[0])
    if far:
        _wireguard(here, near_keys[1], FAR, far_keys[0])


def _ovpn(kind: Kind, netns: str | None) -> AbstractContextManager[None]:
    at = ends(netns is None)
    if kind.outer6:
        family, addresses = socket.AF_INET6, (at["here6"], at["there6"])
    else:
        family, addresses = socket.AF_INET, (at["here4"], at["there4"])
    return ovpn.peer(NAME, family, addresses, here=netns is None, netns=netns)


def _set_up(kind: Kind, far: bool) -> None:
    if far:
        lines = [f"link set {NAME} up"]
        if kind.ethernet:
            lines.insert(0, f"link set {NAME} address {MAC.hex(':')}")
        ip_batch(lines, netns=FAR)
    ip_batch([f"link set {NAME} up", f"route add {INNER4}/32 dev {NAME}"])
    if kind.metadata:
        _add_metadata(kind, None)
        if far:
            _add_metadata(kind, FAR)


def _add_metadata(kind: Kind, netns: str | None) -> None:
    words = kind.metadata.format(**ends(netns is None)).split()
    tool(in_netns(netns, ["tc", "qdisc", "add", "dev", NAME, "clsact"]))
    where = ["tc", "filter", "add", "dev", NAME, "egress", "matchall"]
    tool(in_netns(netns, [*where, "action", "tunnel_key", "set", *words]))
