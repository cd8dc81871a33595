# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's trace events: a record of some, or a count of dropped packets."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from guestlib.environment import Unsupported, setting
from guestlib.process import tool
from nodrop.trace.tracefs import reason_names

TRACING = Path("/sys/kernel/tracing")
EVENT = "skb/kfree_skb"
IPV4, IPV6, VLAN = 0x0800, 0x86DD, 0x8100
_LINE = re.compile(
    r"\[(?P<cpu>\d+)\] \S+ +(?P<time>[\d.]+): (?P<name>\w+): (?P<fields>.*)$", re.MULTILINE
)
_REASON = re.compile(r" location=(\S+?)\+.* reason: (\S+)")
_SEEN = re.compile(rb"^(?:overrun|dropped events|entries): (\d+)$", re.MULTILINE)


def _freed_instance(reason: str) -> Path:
    return TRACING / "instances" / f"freed{reason}"


@contextmanager
def freed(reason: str = "", protocols: Sequence[int] = (IPV4,)) -> Iterator[Callable[[], int]]:
    """Count drops (skb:kfree_skb) during the block, in all network namespaces.

    The counters of a device and its qdisc miss some. For example, a sender may wait for the lock of
    a qdisc that is meanwhile deactivated; its packet is then dropped and not counted (in 7.3:
    __dev_xmit_skb(), __QDISC_STATE_DEACTIVATED).

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
    mount_tracefs()
    instance = _freed_instance(reason)
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


def reasons_freed(number: int) -> dict[str, int]:
    """Return the places and reasons of the last drops that freed() counted, within its block."""
    lines = (_freed_instance("") / "trace").read_text().splitlines()
    found = (_REASON.search(line) for line in lines[len(lines) - number :])
    return dict(Counter(f"{match[1]} {match[2]}" for match in found if match))


def mount_tracefs() -> None:
    """Mount tracefs, unless it is mounted."""
    if not (TRACING / "instances").is_dir():
        tool(["mount", "-t", "tracefs", "none", str(TRACING)])


def _format() -> str:
    mount_tracefs()
    return (TRACING / "events" / EVENT / "format").read_text()


def _number(reason: str) -> int:
    names = reason_names(_format())
    for number, name in names.items():
        if name == reason:
            return number
    raise Unsupported(f"this kernel does not have the drop reason {reason}")


@dataclass(frozen=True)
class TraceEvent:
    """An event: where and when (seconds of the kernel's clock) it happened."""

    name: str
    cpu: int
    time: float
    fields: dict[str, str]


def seen() -> list[TraceEvent]:
    return [
        TraceEvent(
            match["name"],
            int(match["cpu"]),
            float(match["time"]),
            dict(word.split("=", 1) for word in match["fields"].split() if "=" in word),
        )
        for match in _LINE.finditer((TRACING / "trace").read_text())
    ]


def events(name: str) -> list[dict[str, str]]:
    """Return the fields of the events of a name so far."""
    return [event.fields for event in seen() if event.name == name]


def forget() -> None:
    """Delete the events so far."""
    (TRACING / "trace").write_text("")


@contextmanager
def tracing(*names: str) -> Iterator[None]:
    """Trace events, such as "nodrop" or "timer/timer_start", during the block."""
    mount_tracefs()
    forget()
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(setting(TRACING / "events" / name / "enable", "1"))
        yield
