# SPDX-License-Identifier: GPL-2.0-only
"""Peers of the kernel's own OpenVPN device, by generic netlink (linux/ovpn.h)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from nodrop.guest.command import netns_path
from nodrop.guest.netlink import (
    ACK,
    ERROR,
    REQUEST,
    attribute,
    attributes,
    message,
    messages,
    nested,
    raise_for,
    text,
    u32,
)
from nodrop.guest.netns import inside

PORT = 1194
PEER = 1
KEY_BYTES = 32
_GENERIC = 16  # NETLINK_GENERIC
_CTRL, _GETFAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2
_GENERIC_HEADER = struct.Struct("=BBH")
_PEER_NEW, _KEY_NEW = 1, 6
_IFINDEX, _PEER, _KEYCONF = 1, 2, 3
_ID, _REMOTE4, _REMOTE6, _REMOTE_PORT, _SOCKET, _VPN4, _VPN6 = 1, 2, 3, 5, 6, 8, 9
_TX_ID = 24
_KEY_PEER, _SLOT, _KEY_ID, _ALGORITHM, _ENCRYPT, _DECRYPT = 1, 2, 3, 4, 5, 6
_CIPHER_KEY, _NONCE_TAIL = 1, 2
_AES_GCM = 1


class _Generic:
    """A generic netlink socket of the network namespace that it is made in."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _GENERIC)
        self._socket.settimeout(60)
        self._sequence = 0
        name = text(_FAMILY_NAME, "ovpn")
        answer = self.ask(_CTRL, _GETFAMILY, name)
        found = dict(attributes(answer[_GENERIC_HEADER.size :]))[_FAMILY_ID]
        self.family = int(struct.unpack("=H", found)[0])

    def __enter__(self) -> _Generic:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, family: int, command: int, body: bytes) -> bytes:
        """Send a request; return what came before its acknowledgement.

        Raises:
            OSError: the kernel's errno.
        """
        self._sequence += 1
        body = _GENERIC_HEADER.pack(command, 1, 0) + body
        self._socket.send(message(family, REQUEST | ACK, self._sequence, body))
        found = b""
        while True:
            for what, _, content in messages(self._socket.recv(1 << 16)):
                if what == ERROR:
                    raise_for(content)
                    return found
                found = content


def _direction(key: bytes) -> bytes:
    return attribute(_CIPHER_KEY, key) + attribute(_NONCE_TAIL, bytes(8))


def _key(peer: int, here: bool) -> bytes:
    there, back = (bytes([n]) * KEY_BYTES for n in (1, 2))
    out, into = (there, back) if here else (back, there)
    body = attribute(_KEY_PEER, u32(peer)) + attribute(_SLOT, u32(0))
    body += attribute(_KEY_ID, u32(0)) + attribute(_ALGORITHM, u32(_AES_GCM))
    body += nested(_ENCRYPT, _direction(out))
    return body + nested(_DECRYPT, _direction(into))


@contextmanager
def peer(
    device: str, family: int, addresses: tuple[str, str], *, here: bool, netns: str | None
) -> Iterator[None]:
    """The peer of a point-to-point device; a socket carries it.

    Args:
        family: AF_INET or AF_INET6.
        addresses: own and the peer's.
        here: one of both ends says so; the keys' directions follow from it.
        netns: where the device is (None: here).

    Raises:
        OSError: the kernel does not want it.
    """
    if netns is None:
        sock, generic = socket.socket(family, socket.SOCK_DGRAM), _Generic()
        index = socket.if_nametoindex(device)
    else:
        with inside(netns_path(netns)):
            sock, generic = socket.socket(family, socket.SOCK_DGRAM), _Generic()
            index = socket.if_nametoindex(device)
    with sock, generic:
        sock.bind((addresses[0], PORT))
        remote = _REMOTE4 if family == socket.AF_INET else _REMOTE6
        body = attribute(_ID, u32(PEER)) + attribute(_TX_ID, u32(PEER))
        body += attribute(remote, socket.inet_pton(family, addresses[1]))
        body += attribute(_REMOTE_PORT, struct.pack("!H", PORT))
        body += attribute(_SOCKET, u32(sock.fileno()))
        on = attribute(_IFINDEX, u32(index))
        generic.ask(generic.family, _PEER_NEW, on + nested(_PEER, body))
        body = nested(_KEYCONF, _key(PEER, here))
        generic.ask(generic.family, _KEY_NEW, on + body)
        yield
