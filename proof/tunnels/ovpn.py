# SPDX-License-Identifier: GPL-2.0-only
"""Configure peers of the kernel's OpenVPN device by generic netlink (linux/ovpn.h)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guestlib.namespaces import inside
from guestlib.process import netns_path
from proof.netlink import attribute, nested, u32
from proof.tunnels.generic import Family

PORT = 1194
PEER = 1
_PEER_NEW, _KEY_NEW = 1, 6
_IFINDEX, _PEER, _KEYCONF = 1, 2, 3
_ID, _REMOTE4, _REMOTE6, _REMOTE_PORT, _SOCKET, _TX_ID = 1, 2, 3, 5, 6, 24
_KEY_PEER, _SLOT, _KEY_ID, _ALGORITHM, _ENCRYPT, _DECRYPT = 1, 2, 3, 4, 5, 6
_CIPHER_KEY, _NONCE_TAIL = 1, 2
_AES_GCM = 1


def _key(here: bool) -> bytes:
    ways = [attribute(_CIPHER_KEY, bytes([n]) * 32) for n in ((1, 2) if here else (2, 1))]
    out, into = (way + attribute(_NONCE_TAIL, bytes(8)) for way in ways)
    body = attribute(_KEY_PEER, u32(PEER)) + attribute(_SLOT, u32(0))
    body += attribute(_KEY_ID, u32(0)) + attribute(_ALGORITHM, u32(_AES_GCM))
    return body + nested(_ENCRYPT, out) + nested(_DECRYPT, into)


@contextmanager
def peer(
    device: str, family: int, addresses: tuple[str, str], *, here: bool, netns: str | None
) -> Iterator[None]:
    """Add a peer to a point-to-point device for the block, with a UDP socket to carry it.

    Args:
        family: AF_INET or AF_INET6.
        addresses: the local one and the peer's.
        here: True at one end, False at the other; determines the keys' directions.
        netns: the device's namespace; None: this one.

    Raises:
        OSError: the kernel refused it.
    """
    with inside(netns_path(netns) if netns else Path("/proc/self/ns/net")):
        carrier = socket.socket(family, socket.SOCK_DGRAM)
        generic = Family("ovpn")
        index = attribute(_IFINDEX, u32(socket.if_nametoindex(device)))
    with carrier, generic:
        carrier.bind((addresses[0], PORT))
        remote = _REMOTE4 if family == socket.AF_INET else _REMOTE6
        body = attribute(_ID, u32(PEER)) + attribute(_TX_ID, u32(PEER))
        body += attribute(remote, socket.inet_pton(family, addresses[1]))
        body += attribute(_REMOTE_PORT, struct.pack("!H", PORT))
        body += attribute(_SOCKET, u32(carrier.fileno()))
        generic.command(_PEER_NEW, index + nested(_PEER, body))
        generic.command(_KEY_NEW, index + nested(_KEYCONF, _key(here)))
        yield
