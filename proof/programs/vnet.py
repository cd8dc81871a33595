# SPDX-License-Identifier: GPL-2.0-only
"""TAPs as libvirt creates them, without a qdisc."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from harness import soon

from guestlib.process import ip_batch, tool
from guestlib.tundev import IFF_TAP, TunDevice


def qdisc(name: str, netns: str | None = None) -> tuple[str, str]:
    """Return kind and handle of a device's root qdisc."""
    where = ["-n", netns] if netns else []
    found = json.loads(tool(["tc", *where, "-j", "qdisc", "show", "dev", name, "root"]))
    (root,) = (one for one in found if one.get("root"))
    return root["kind"], root["handle"]


def tc(words: str) -> None:
    tool(["tc", "qdisc", *words.split()])


def noqueue(name: str) -> None:
    """Do what libvirt does after it has created a device, and after udev has handled that."""
    ip_batch([f"link set dev {name} up"])
    tc(f"add dev {name} root handle 0: noqueue")


@contextmanager
def tap(name: str, flags: int = 0) -> Iterator[None]:
    with TunDevice(name, IFF_TAP | flags):
        noqueue(name)
        yield


def becomes(name: str, kind: str) -> None:
    soon(lambda: qdisc(name)[0] == kind, lambda: f"{name} has {qdisc(name)}, not {kind}")
