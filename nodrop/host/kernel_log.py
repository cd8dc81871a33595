# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's messages about nodrop's modules and those that they replace."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nodrop.host.modules import MODULES

LIVEPATCH = "nodrop_live"
"""The module of nodrop's livepatch."""
_MOST = 500
"""Lines that are returned, the last ones."""
_READ_S = 5.0
"""Time limit, seconds: the log may grow as fast as it is read."""
_OURS = rf"(?:{'|'.join(MODULES)}|{LIVEPATCH})"
_FRAME = re.compile(rf"\b[\w.]+\+0x[0-9a-f]+/0x[0-9a-f]+ \[{_OURS}(?: [0-9a-f]+)?\]")
"""A frame of a backtrace in the code of one of the modules."""
_HEAD = re.compile(r"(?:WARNING|BUG|RIP|Oops)(?=:)")
_ANY = re.compile(rf"{_OURS}: |livepatch: .*\b{LIVEPATCH}\b|.*\[{_OURS}[ \]]")
_NAMELESS = re.compile(
    rf"""(?:{_OURS}:\ (?:
        loading\ out-of-tree\ module\ taints\ kernel\.
        |module\ verification\ failed:\ [\w/\ -]*\ tainting\ kernel
        |tainting\ kernel\ with\ TAINT_LIVEPATCH
        |version\ magic\ '[\w.+~\ -]*'\ should\ be\ '[\w.+~\ -]*'
        |disagrees\ about\ version\ of\ symbol\ \w+
        |Unknown\ symbol\ \w+\ \(err\ -?\d+\)
        |no\ symbol\ version\ for\ \w+
        |exports\ duplicate\ symbol\ \w+\ \(owned\ by\ \w+\)
        |Universal\ TUN/TAP\ device\ driver,\ [\d.]+
        |the\ kernel's\ own\ \w+\ is\ loaded\ instead
        |this\ kernel\ has\ no\ netfilter\ egress\ hook\ \(CONFIG_NETFILTER_EGRESS\)[\w:'\ ]*
        |the\ \w+\.ko\ that\ is\ loaded\ is\ not\ the\ one\ that\ this\ was\ built\ for[\w:',\ ]*
        |no\ flow\ control:\ error\ -?\d+
    )|livepatch:\ (?:
        '{LIVEPATCH}':\ [a-z]+(?:\ [a-z]+){{0,4}}
        |enabling\ patch\ '{LIVEPATCH}'
        |(?:applying|reverting)\ patch\ '{LIVEPATCH}'\ (?:to|on)\ (?:un)?loading\ module\ '{_OURS}'
    ))""",
    re.VERBOSE,
)
"""All of a message that has no names. A device that is named "tun" has the kernel log "tun: renamed
from vnet-alice", as if it were the module's."""


def lines(*, names: bool, path: Path = Path("/dev/kmsg")) -> list[str]:
    """Return the lines about the modules, with the time since the boot in seconds, as dmesg.

    Args:
        names: return whole lines; otherwise messages that are known to have no names, and of
            others the frames in the modules' code.

    Raises:
        OSError: the log is missing, or this process may not read it.
    """
    lines = []
    for line in _records(path):
        prefix, _, text = line.partition(";")
        with suppress(ValueError, IndexError):
            shown = _shown(text, names=names)
            if shown:
                lines.append(f"[{int(prefix.split(',')[2]) / 1e6:12.6f}] {shown}")
    return lines[-_MOST:]


def _records(path: Path) -> Iterator[str]:
    """Yield ``level,number,microseconds,flags;text`` of each message."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        end = time.monotonic() + _READ_S
        while time.monotonic() < end:
            try:
                data = os.read(fd, 1 << 16)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # overwritten before it was read
            if not data:
                return
            # Lines with a space are a message's properties.
            yield from (
                line for line in data.decode(errors="replace").split("\n") if line[:1].isdigit()
            )
    finally:
        os.close(fd)


def _shown(text: str, *, names: bool) -> str:
    if names:
        return text if _ANY.match(text) else ""
    if _NAMELESS.fullmatch(text):
        return text
    frames, head = _FRAME.findall(text), _HEAD.match(text)
    return ": ".join([*([head[0]] if frames and head else []), *frames])
