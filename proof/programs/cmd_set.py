#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop set``: with each driver, in another namespace, the default, persistent settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from command import as_json, command
from devices import NAME, tun
from harness import Skip, drivers, equal, run, soon

from guestlib.drivers import IFF_BACKPRESSURE
from guestlib.namespaces import namespaces
from guestlib.process import Service, ip_batch, tool
from guestlib.tundev import IFF_TUN, TunDevice, known_flags
from lab.variant import Variant
from nodrop.host import ethtool, netns

CONF = Path("/etc/modprobe.d/zz-nodrop-set.conf")
AWAY = "ndaway"
UDEVD = "/lib/systemd/systemd-udevd"


def nodrop(*words: str, status: int = 0) -> str:
    """Run the command, check its exit status, and return stdout and stderr."""
    ran = command(*words, status=status)
    return ran.stdout + ran.stderr


def flag(name: str = NAME) -> bool:
    return ethtool.private_flags(name)["nodrop"]


def case_off_and_on() -> None:
    with tun(5):
        wanted = f"ethtool --set-priv-flags {NAME} nodrop off\n"
        equal(
            nodrop("set", "--now", "--dry-run", NAME, "backpressure", "off"),
            wanted,
            "output of a dry run",
        )
        nodrop("set", "--now", NAME, "nosuch", "backpressure", "off", status=1)
        equal(flag(), True, "the flag after a command that failed")
        nodrop("set", "--now", NAME, "backpressure", "off")
        equal(flag(), False, "the flag")
        device = {"name": NAME, "was": "off", "now": "on", "switch": True, "persistent": False}
        equal(as_json("set", "--now", NAME, "backpressure", "on")["devices"], [device], "its JSON")
        equal(flag(), True, "the flag")


def case_other_namespace() -> None:
    with namespaces(AWAY), TunDevice(NAME, IFF_TUN):
        ip_batch([f"link set dev {NAME} netns {AWAY}"])
        argv = ["ip", "netns", "exec", AWAY, "sleep", "1000"]
        with Service(argv, announces=False) as inside:
            here = os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116
            soon(
                lambda: os.stat(f"/proc/{inside.pid}/ns/net").st_ino != here,  # noqa: PTH116
                "no process in the namespace",
            )
            nodrop("set", "--now", NAME, "backpressure", "off", status=1)
            for where in (AWAY, str(inside.pid), f"/proc/{inside.pid}/ns/net"):
                for word, wanted in (("off", False), ("on", True)):
                    nodrop("-n", where, "set", "--now", NAME, "backpressure", word)
                    got = netns.run_inside(AWAY, flag)
                    equal(got, wanted, f"the flag after {word} by {where}")


def case_default() -> None:
    equal(CONF.exists(), False, "the file for modprobe")
    with tun(10):
        try:
            nodrop("set", "--default", "backpressure", "off")
            equal((CONF.exists(), flag()), (True, False), "after it was disabled")
            with TunDevice("ndother", IFF_TUN):
                equal(flag("ndother"), False, "the flag of a new device")
                nodrop("set", "--now", "ndother", "backpressure", "on")
                equal(flag("ndother"), True, "the flag of a device set by name")
        finally:
            nodrop("set", "--default", "backpressure", "on")
        equal((CONF.exists(), flag()), (False, True), "after it was enabled")


@contextmanager
def udev() -> Iterator[None]:
    """Run udevd for the block."""
    for folder in ("/etc/udev/rules.d", "/run/udev"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    tool([UDEVD, "--daemon"])
    try:
        yield
    finally:
        tool(["udevadm", "control", "--exit"])


def new_flag(name: str) -> bool:
    """Return the flag of a new device after udev has handled it."""
    with TunDevice(name, IFF_TUN):
        tool(["udevadm", "settle"])
        return flag(name)


def becomes(wanted: tuple[bool, bool], what: str) -> None:
    """Wait until new devices have the flags: udev may read its rules seconds later."""
    names = (NAME, "ndother")
    soon(lambda: (new_flag(names[0]), new_flag(names[1])) == wanted, f"{what}: not {wanted}")


def case_persistent_settings() -> None:
    """A VPN's new device gets its setting again after a restart; others do not."""
    if not Path(UDEVD).exists():
        raise Skip("no udev")
    with udev():
        with TunDevice(NAME, IFF_TUN):
            nodrop("set", NAME, "backpressure", "off")
            tool(["udevadm", "settle"])
            equal(flag(), False, "the flag at once")
        becomes((False, True), "the flags of new devices")
        nodrop("set", "nd*", "backpressure", "off")
        nodrop("set", NAME, "backpressure", "on")
        becomes((True, False), "the last setting counts")
        with TunDevice(NAME, IFF_TUN):
            # Its rule sets the opposite value first.
            tool(["udevadm", "settle"])
            nodrop("set", NAME, "backpressure", "on")
            nodrop("set", "--default", "--now", "backpressure", "off")
            equal(flag(), True, "the unchanged flag of a device set by name")
        equal(new_flag(NAME), True, "a persistent setting against the default")
        nodrop("set", "--default", "--now", "backpressure", "on")
        nodrop("set", NAME, "nd*", "backpressure", "default")
        becomes((True, True), "after the settings are removed")


def case_drivers_without_a_switch() -> None:
    drivers.use(Variant.STOCK)
    with tun(10):
        nodrop("set", "--now", NAME, "backpressure", "on", status=4)
        nodrop("set", "--now", NAME, "backpressure", "off")
        nodrop("set", NAME, "backpressure", "off", status=4)
    drivers.use(Variant.UPSTREAM)
    if known_flags() & IFF_BACKPRESSURE:
        with tun(10, flags=IFF_TUN | IFF_BACKPRESSURE):
            nodrop("set", "--now", NAME, "backpressure", "on", status=4)
            nodrop("set", "--now", NAME, "backpressure", "off", status=4)


run()
