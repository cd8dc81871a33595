# SPDX-License-Identifier: GPL-2.0-only
"""Tunnels whose routes are in another network namespace, which ends while packets are sent.

here           ndgone
ndtunnel0 .... ndsink0
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from guestlib.environment import GuestError, wait_until
from guestlib.process import ip_batch
from tunnels.links import HERE4, HERE6, KINDS, LinkKind, ends
from tunnels.topology import NAME, SINK, enable_ipv6

VANISHING = ("vxlan", "vxlan6", "geneve6", "ip6ip6", "ip6gre")
_GONE, _NEXT = "ndgone", "ndnext"
"""The memory of a namespace is freed when the next one ends."""
_TIMES = 3
_FEWEST = 200
"""Packets that are sent before the namespace ends."""
_SETTLE_S = 3.0
_SENT = Path(f"/sys/class/net/{NAME}/statistics/tx_packets")


def vanish(name: str, senders: Callable[[LinkKind], AbstractContextManager[None]]) -> None:
    """Delete the namespace of a tunnel's routes, and with it the tunnel and its cache.

    Args:
        senders: sends without a pause for the block.

    Raises:
        GuestError: too few packets are sent, or the tunnel outlives the namespace.
    """
    kind = KINDS[name]
    for _ in range(_TIMES):
        ip_batch([f"netns add {_GONE}", f"netns add {_NEXT}"])
        ip_batch([f"link add {SINK} type dummy"], netns=_GONE)
        enable_ipv6(SINK, _GONE)
        link = kind.link.format(**ends(here=True))
        lines = [f"address add {HERE4}/24 dev {SINK}", f"address add {HERE6}/64 dev {SINK} nodad"]
        lines += [f"link set {SINK} up", f"link add {NAME} type {link}"]
        ip_batch([*lines, f"link set {NAME} netns {os.getpid()}"], netns=_GONE)
        ip_batch([f"link set {NAME} up"])
        with senders(kind):
            if not wait_until(lambda: int(_SENT.read_text(encoding="ascii")) >= _FEWEST):
                raise GuestError(f"{name}: fewer than {_FEWEST} packets are sent")
            ip_batch([f"netns delete {_GONE}"])
            if not wait_until(lambda: not _SENT.exists()):
                raise GuestError(f"{name}: the device outlives the namespace of its routes")
            ip_batch([f"netns delete {_NEXT}"])
        time.sleep(_SETTLE_S)
