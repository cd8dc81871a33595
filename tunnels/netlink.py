# SPDX-License-Identifier: GPL-2.0-only
"""Devices, peers and states that Debian 12's iproute2 cannot set up, by netlink."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from guestlib.namespaces import inside
from guestlib.netlink import CREATE, GenericFamily, Requester, attribute, nested, text, u32

_NETLINK_XFRM = 6
_REQID = 1


# linux/gtp.h


def add_gtp_context(device: str, station: str, peer: str) -> None:
    """Send packets for an inner address, the station's, through a GTP device to a peer."""
    new_pdp, gtp1, tei = 0, 1, u32(7)
    link, version, peer_address, ms_address, in_tei, out_tei = 1, 2, 4, 5, 8, 9
    body = attribute(link, u32(socket.if_nametoindex(device))) + attribute(version, u32(gtp1))
    body += attribute(peer_address, socket.inet_aton(peer))
    body += attribute(ms_address, socket.inet_aton(station))
    body += attribute(in_tei, tei) + attribute(out_tei, tei)
    with GenericFamily("gtp") as family:
        family.command(new_pdp, body, version=0)


# linux/ovpn.h

OVPN_PORT = 1194
_PEER = 1
_PEER_NEW, _KEY_NEW = 1, 6
_OVPN_IFINDEX, _OVPN_PEER, _OVPN_KEYCONF = 1, 2, 3
_PEER_ID, _REMOTE4, _REMOTE6, _REMOTE_PORT, _SOCKET, _TX_ID = 1, 2, 3, 5, 6, 24
_KEY_PEER, _SLOT, _KEY_ID, _ALGORITHM, _ENCRYPT, _DECRYPT = 1, 2, 3, 4, 5, 6
_CIPHER_KEY, _NONCE_TAIL = 1, 2
_AES_GCM = 1


def _ovpn_key(near: bool) -> bytes:
    keys = [attribute(_CIPHER_KEY, bytes([n]) * 32) for n in ((1, 2) if near else (2, 1))]
    encrypt, decrypt = (key + attribute(_NONCE_TAIL, bytes(8)) for key in keys)
    body = attribute(_KEY_PEER, u32(_PEER)) + attribute(_SLOT, u32(0))
    body += attribute(_KEY_ID, u32(0)) + attribute(_ALGORITHM, u32(_AES_GCM))
    return body + nested(_ENCRYPT, encrypt) + nested(_DECRYPT, decrypt)


@contextmanager
def ovpn_peer(
    device: str, family: int, addresses: tuple[str, str], *, netns: str | None
) -> Iterator[None]:
    """Add a peer to a point-to-point device for the block, with a UDP socket to carry it.

    Args:
        family: AF_INET or AF_INET6.
        addresses: the local one and the peer's.
        netns: the device's namespace; None: this one, the near end.
    """
    with inside(netns):
        carrier = socket.socket(family, socket.SOCK_DGRAM)
        generic = GenericFamily("ovpn")
        index = attribute(_OVPN_IFINDEX, u32(socket.if_nametoindex(device)))
    with carrier, generic:
        carrier.bind((addresses[0], OVPN_PORT))
        remote = _REMOTE4 if family == socket.AF_INET else _REMOTE6
        body = attribute(_PEER_ID, u32(_PEER)) + attribute(_TX_ID, u32(_PEER))
        body += attribute(remote, socket.inet_pton(family, addresses[1]))
        body += attribute(_REMOTE_PORT, struct.pack("!H", OVPN_PORT))
        body += attribute(_SOCKET, u32(carrier.fileno()))
        generic.command(_PEER_NEW, index + nested(_OVPN_PEER, body))
        key = _ovpn_key(near=netns is None)
        generic.command(_KEY_NEW, index + nested(_OVPN_KEYCONF, key))
        yield


# linux/xfrm.h

_NEWSA, _NEWPOLICY = 0x10, 0x13
_TMPL, _AEAD, _SA_DIR, _INIT_DELAY = 5, 18, 33, 39
_IPTFS = 5
_SA_DIR_OUT, _POLICY_OUT = 2, 1
_SELECTOR = struct.Struct("=16s16s8xHBBB3x8x")
_ID = struct.Struct("=16s4sB3x")
_LIFETIMES = bytes([255]) * 4 * 8 + bytes(8 * 8)
"""No limit, nothing used yet."""
_STATE = struct.Struct("=12xIIHBBB7x")
_POLICY = struct.Struct("=8xBBBB4x")
_TEMPLATE = struct.Struct("=H2x16sIBBBxIII")
_KEY = struct.pack("=64sII", b"rfc4106(gcm(aes))", 160, 128) + bytes(20)


def add_iptfs(local: str, remote: str, delay_us: int) -> None:
    """Send what goes to an address through an IPTFS state, in which packets wait.

    Args:
        delay_us: how long they wait.
    """
    here, there = (socket.inet_aton(address) + bytes(12) for address in (local, remote))
    number = _ID.pack(there, b"\0\0\0\x99", socket.IPPROTO_ESP)
    state = _SELECTOR.pack(bytes(16), bytes(16), 0, 0, 0, 0) + number + here + _LIFETIMES
    state += _STATE.pack(0, _REQID, socket.AF_INET, _IPTFS, 0, 0)
    state += attribute(_AEAD, _KEY) + attribute(_SA_DIR, bytes([_SA_DIR_OUT]))
    policy = _SELECTOR.pack(there, here, socket.AF_INET, 32, 32, 0) + _LIFETIMES
    policy += _POLICY.pack(_POLICY_OUT, 0, 0, 0)
    every = 2**32 - 1
    template = _TEMPLATE.pack(socket.AF_INET, here, _REQID, _IPTFS, 0, 0, every, every, every)
    with Requester(_NETLINK_XFRM) as sock:
        sock.request(_NEWSA, state + attribute(_INIT_DELAY, u32(delay_us)), CREATE)
        sock.request(_NEWPOLICY, policy + attribute(_TMPL, number + template), CREATE)


# linux/if_link.h


def add_vxlan_mcroute(name: str, group: str, lower: str) -> None:
    """Create a VXLAN device whose packets need a multicast route; ``ip`` can since 6.17."""
    newlink, ifname, linkinfo, info_kind, info_data = 16, 3, 18, 1, 2
    vni, vxlan_group, link, port, mc_route = 1, 2, 3, 15, 34
    data = attribute(vni, u32(7)) + attribute(vxlan_group, socket.inet_aton(group))
    data += attribute(link, u32(socket.if_nametoindex(lower)))
    data += attribute(port, struct.pack(">H", 4789)) + attribute(mc_route, b"\1")
    info = nested(linkinfo, text(info_kind, "vxlan"), nested(info_data, data))
    with Requester(socket.NETLINK_ROUTE) as sock:
        sock.request(newlink, bytes(16) + text(ifname, name) + info, CREATE)
