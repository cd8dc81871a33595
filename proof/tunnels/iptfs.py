# SPDX-License-Identifier: GPL-2.0-only
"""A TCP packet that waits in an IPTFS state's queue (linux/xfrm.h).

Debian 12's ``ip`` does not know the mode, so state and policy are created by netlink.
"""

from __future__ import annotations

import re
import socket
import struct
from contextlib import suppress

from guestlib.failure import GuestError
from guestlib.process import tool
from guestlib.timing import wait_until
from proof.netlink import CREATE, Requester, attribute, u32
from proof.tunnels.links import HERE4, THERE4
from proof.tunnels.topology import below

_NETLINK_XFRM = 6
_NEWSA, _NEWPOLICY = 0x10, 0x13
_TMPL, _AEAD, _SA_DIR, _INIT_DELAY = 5, 18, 33, 39
_IPTFS, _OUT = 5, (2, 1)
"""The mode; the direction of a state and of a policy."""
_SELECTOR = struct.Struct("=16s16s8xHBBB3x8x")
_ID = struct.Struct("=16s4sB3x")
_LIFETIMES = bytes([255]) * 4 * 8 + bytes(8 * 8)
"""No limit, nothing used yet."""
_STATE = struct.Struct("=12xIIHBBB7x")
_POLICY = struct.Struct("=8xBBBB4x")
_TEMPLATE = struct.Struct("=H2x16sIBBBxIII")
_KEY = struct.pack("=64sII", b"rfc4106(gcm(aes))", 160, 128) + bytes(20)
_REQID = 1
_DELAY_US = 3_000_000
"""How long packets wait."""
_PORT = 9


def _protect() -> None:
    """Send what goes to the far end through an IPTFS state.

    Raises:
        OSError: the kernel refused it.
    """
    here, there = (socket.inet_aton(text) + bytes(12) for text in (HERE4, THERE4))
    number = _ID.pack(there, b"\0\0\0\x99", socket.IPPROTO_ESP)
    state = _SELECTOR.pack(bytes(16), bytes(16), 0, 0, 0, 0) + number + here + _LIFETIMES
    state += _STATE.pack(0, _REQID, socket.AF_INET, _IPTFS, 0, 0)
    state += attribute(_AEAD, _KEY) + attribute(_SA_DIR, bytes([_OUT[0]]))
    policy = _SELECTOR.pack(there, here, socket.AF_INET, 32, 32, 0) + _LIFETIMES
    policy += _POLICY.pack(_OUT[1], 0, 0, 0)
    every = 2**32 - 1
    template = _TEMPLATE.pack(socket.AF_INET, here, _REQID, _IPTFS, 0, 0, every, every, every)
    with Requester(_NETLINK_XFRM) as sock:
        sock.request(_NEWSA, state + attribute(_INIT_DELAY, u32(_DELAY_US)), CREATE)
        sock.request(_NEWPOLICY, policy + attribute(_TMPL, number + template), CREATE)


def _sent() -> bool:
    """Return whether the state has sent a packet."""
    (used,) = re.findall(r"(\d+)\(packets\)", tool(["ip", "-s", "xfrm", "state"]))
    return int(used) > 0


def lose_dst() -> None:
    """Let a TCP packet wait until its socket has dropped the dst of both.

    Raises:
        GuestError: the packet did not wait, or did not leave.
    """
    with below(), socket.socket() as sock:
        _protect()
        try:
            sock.setblocking(False)
            with suppress(BlockingIOError):
                sock.connect((THERE4, _PORT))
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 4)
            if _sent():
                raise GuestError("the packet did not wait")
            if not wait_until(_sent):
                raise GuestError("the packet did not leave")
        finally:
            tool(["ip", "xfrm", "policy", "flush"])
            tool(["ip", "xfrm", "state", "flush"])
