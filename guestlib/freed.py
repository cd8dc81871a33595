# SPDX-License-Identifier: GPL-2.0-only
"""Counts the packets that any part of the kernel drops, whether or not it counts them itself.

The counters of a device and its qdisc miss some drops. For example, a sender may wait for the lock
of a qdisc that is meanwhile deactivated; its packet is then dropped and not counted (in 7.3:
__dev_xmit_skb(), __QDISC_STATE_DEACTIVATED).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from guestlib.failure import Unsupported
from guestlib.process import tool
from nodrop.trace.tracefs import reason_names

TRACING = Path("/sys/kernel/tracing")
EVENT = "skb/kfree_skb"
IPV4, IPV6, VLAN = 0x0800, 0x86DD, 0x8100
_SEEN = re.compile(rb"^(?:overrun|dropped events|entries): (\d+)$", re.MULTILINE)


@contextmanager
def freed(reason: str = "", protocols: Sequence[int] = (IPV4,)) -> Iterator[Callable[[], int]]:
    """Count drops (skb:kfree_skb) during the block, in all network namespaces.

    Args:
        reason: the kernel's drop reason, such as "FULL_RING"; "": any.
        protocols: ethertypes of the packets to count.

    Yields:
        A function that returns the number so far.

    Raises:
        Unsupported: this kernel does not have the drop reason.
    """
    wanted = "(" + " || ".join(f"protocol == {number}" for number in protocols) + ")"
    if reason:
        wanted += f" && reason == {_number(reason)}"
    # rx_sk is the socket that received the packet and rejected it: no drop on the way out.
    if "rx_sk" in _format():
        wanted += " && rx_sk == 0"
    _mount()
    instance = TRACING / "instances" / f"freed{reason}"
    instance.mkdir()
    files = instance / "events" / EVENT
    with ExitStack() as stack:
        stack.callback(instance.rmdir)
        stack.callback((files / "enable").write_text, "0")
        (files / "filter").write_text(wanted)
        (files / "enable").write_text("1")
        stats = [os.open(path, os.O_RDONLY) for path in instance.glob("per_cpu/cpu*/stats")]
        for fd in stats:
            stack.callback(os.close, fd)
        # Each read at offset 0 generates the file anew.
        yield lambda: sum(int(n) for fd in stats for n in _SEEN.findall(os.pread(fd, 4096, 0)))


def _mount() -> None:
    if not (TRACING / "instances").is_dir():
        tool(["mount", "-t", "tracefs", "none", str(TRACING)])


def _format() -> str:
    _mount()
    return (TRACING / "events" / EVENT / "format").read_text()


def _number(reason: str) -> int:
    names = reason_names(_format())
    for number, name in names.items():
        if name == reason:
            return number
    raise Unsupported(f"this kernel does not have the drop reason {reason}")
