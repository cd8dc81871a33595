#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Other vendors' livepatches of the drivers: each driver loads, wholly nodrop's or wholly stock.

LAB_FOREIGN is such a livepatch (tests/kernels/live/foreign). dkms/modprobe.conf is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "proof/programs"))

from devices import tun
from harness import check, each, equal, run, soon
from installed import loaded, place, pushes_back, unload_all
from traffic import Sender

from guestlib.environment import GuestError
from guestlib.process import tool
from guestlib.tundev import DeviceFile
from nodrop.host.modules import REPLACED

FOREIGN = os.environ["LAB_FOREIGN"]
PATCH = Path("/sys/kernel/livepatch/foreign")
CALLS = Path("/sys/module/foreign/parameters/calls")
REFUSED = "refusing to load module"


@contextmanager
def livepatch(module: str, function: str, cumulative: str = "0") -> Iterator[None]:
    """Have another vendor's livepatch loaded in the block.

    Raises:
        GuestError: on entry, if the kernel refuses it.
    """
    words = [f"object={module}", f"function={function}", f"replace={cumulative}"]
    tool(["insmod", FOREIGN, *words])
    try:
        soon(lambda: (PATCH / "transition").read_text() == "0\n", "it is never loaded", 60)
        yield
    finally:
        (PATCH / "enabled").write_text("0")
        soon(lambda: not PATCH.exists(), "it is never unloaded", 60)
        tool(["rmmod", "foreign"])


def drivers() -> dict[str, str]:
    """Return "nodrop" or "stock" for each driver that is loaded."""
    core = Path("/sys/module/nodrop/version")
    ours = core.read_text() if core.exists() else ""
    found = {}
    for name in filter(loaded, REPLACED):
        version = Path("/sys/module", name, "version")
        same = version.exists() and version.read_text() == ours
        found[name] = "nodrop" if same else "stock"
    return found


def use(reader: int) -> list[str]:
    """Send, write and read one packet by a tun file; return the errors."""
    os.set_blocking(reader, False)
    Sender(1).finished(5)
    errors = []
    for name, operation in (
        ("write", lambda: os.write(reader, b"\x45" + bytes(59))),
        ("read", lambda: os.read(reader, 9000)),
    ):
        try:
            operation()
        except OSError as error:
            errors.append(f"{name}: {error.strerror}")
    return errors


@each("tun_get_user", "tun_get_user 1", "tun_net_xmit", "tun_net_xmit 1", "tun_do_read 1")
def case_before_tun(function: str) -> None:
    """A livepatch, also a cumulative one (1), is loaded before tun: it patches the stock driver."""
    unload_all()
    with livepatch("tun", *function.split()):
        tool(["modprobe", "-q", "char-major-10-200"])
        equal(drivers(), {"tun": "stock"}, "drivers")
        with tun(5) as device:
            errors = use(device.fd)
        print(f"# {errors}", flush=True)
        check(int(CALLS.read_text()) > 0, "it does not patch the stock driver")
        unload_all()
    tool(["modprobe", "tun"])
    equal(drivers(), {"tun": "nodrop"}, "drivers")
    pushes_back()


def case_before_tun_without_the_function() -> None:
    """A function that only the stock driver has by that name: the kernel would refuse nodrop's."""
    unload_all()
    with livepatch("tun", "tun_queue_purge"):
        tool(["modprobe", "tun"])
        equal(drivers(), {"tun": "stock"}, "drivers")
        check(REFUSED not in tool(["dmesg"]), "nodrop's tun was loaded first")
        unload_all()


@each("tun tun_net_xmit", "tap tap_do_read", "vhost_net handle_rx")
def case_before_all(patched: str) -> None:
    """Only the driver that is patched is the stock one, also as a dependency of others."""
    unload_all()
    with livepatch(*patched.split()):
        tool(["modprobe", "-a", "macvtap", "vhost_net"])
        expected = dict.fromkeys(REPLACED, "nodrop") | {patched.split()[0]: "stock"}
        equal(drivers(), expected, "drivers")
        unload_all()


@each(
    "tun tun_get_user",
    "tun tun_net_xmit",
    "tun tun_net_xmit 1",
    "tun tun_do_read 1",
    "tun tun_queue_purge",
    "tap tap_do_read",
    "vhost_net handle_rx",
)
def case_after_all(patched: str) -> None:
    """The kernel refuses a livepatch of nodrop's drivers, which continue to work."""
    unload_all()
    tool(["modprobe", "-a", "macvtap", "vhost_net"])
    with DeviceFile("/dev/net/tun"):
        try:
            with livepatch(*patched.split()):
                pass
        except GuestError as error:
            print(f"# {error}", flush=True)
        else:
            raise AssertionError("the kernel replaced a part of one of nodrop's drivers")
        equal(drivers(), dict.fromkeys(REPLACED, "nodrop"), "drivers")
        pushes_back()


def case_nodrop_is_refused() -> None:
    """Whatever the reason for which the kernel refuses nodrop's tun, the stock driver loads."""
    unload_all()
    file = Path(tool(["modinfo", "--field", "filename", "tun"]).strip())
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    try:
        tool(["modprobe", "tun"])
        equal(drivers(), {"tun": "stock"}, "drivers")
    finally:
        file.write_bytes(content)
    unload_all()
    tool(["modprobe", "tun"])
    equal((drivers(), place("tun")), ({"tun": "nodrop"}, "updates"), "drivers")


def case_many_at_once() -> None:
    unload_all()
    with livepatch("tun", "tun_net_xmit"):
        started = [subprocess.Popen(["modprobe", "tun"]) for _ in range(8)]
        equal([one.wait() for one in started], [0] * len(started), "exit statuses of modprobe")
        equal(drivers(), {"tun": "stock"}, "drivers")
        unload_all()


run(tun=None, at_end=unload_all)
