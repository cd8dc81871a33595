#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""nodrop_tun beside a tun that is built into the kernel: who gets which driver, and until when."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from devices import DEEP, HERE, NAME, THERE, bridge, dropped, tun
from harness import Skip, check, drivers, each, equal, repeating, run, soon
from traffic import Reader, Sender, all_arrive, client, flood

from guestlib.drivers import modules, tun_built_in
from guestlib.environment import GuestError
from guestlib.namespaces import inside, namespaces
from guestlib.process import ip_batch, tool
from guestlib.tundev import (
    IFF_TAP,
    IFF_TUN,
    IFNAMSIZ,
    MULTI_TUN,
    TUNSETIFF,
    TunDevice,
    configure,
)
from lab.variant import Variant
from nodrop.host import ethtool
from nodrop.host.modules import BESIDE

NODE = "/dev/net/tun"
OTHER = "ndtest1"
ROUNDS = int(os.environ.get("LAB_ROUNDS", "10"))


def needed() -> None:
    """Begin each case with the built-in driver alone."""
    if not tun_built_in():
        raise Skip("tun is a module of this kernel")
    drivers.unload()


def load(vhost: Variant | None = None) -> None:
    drivers.use(Variant.NODROP, vhost=vhost)


def is_ours(name: str) -> bool:
    return "nodrop" in ethtool.private_flags(name)


def opens_ours(path: str = NODE) -> bool:
    """Return whether a device that is created through a node is nodrop's."""
    with TunDevice(OTHER, IFF_TUN, path=path):
        return is_ours(OTHER)


def carries(device: TunDevice) -> None:
    """Fail unless packets that are sent to THERE can be read."""
    with Reader(device.fd) as reader:
        sender = Sender(100)
        check(sender.finished(10) and reader.reaches(sender.sent), "packets are lost or stuck")


def exists(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


def carrier(name: str) -> bool:
    return Path("/sys/class/net", name, "carrier").read_text() == "1\n"


@contextmanager
def persistent(name: str, flags: str = "mode tun") -> Iterator[None]:
    """Have a persistent device, as ip(8) creates it, for the block."""
    tool(["ip", "tuntap", "add", name, *flags.split()])
    try:
        yield
    finally:
        if exists(name):
            ip_batch([f"link delete {name}"])


def case_nodes() -> None:
    """Every node follows at once: used before or not, of /dev or another, and a bind mount."""
    with tempfile.TemporaryDirectory() as folder:
        nodes = [NODE, *(f"{folder}/{name}" for name in ("used", "new", "bound"))]
        for node in nodes[1:3]:
            os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(10, 200))
        Path(nodes[3]).touch()
        tool(["mount", "--bind", NODE, nodes[3]])
        try:
            equal([opens_ours(node) for node in nodes[:2]], [False, False], "ours before the load")
            load()
            equal([opens_ours(node) for node in nodes], [True] * 4, "ours after it")
            check(not Path("/dev", BESIDE).exists(), "there is a node that nothing answers")
            drivers.unload()
            equal([opens_ours(node) for node in nodes], [False] * 4, "ours after the unload")
        finally:
            tool(["umount", nodes[3]])


def case_open_files_stay() -> None:
    """A file of the built-in driver keeps it, whether or not it has a device yet."""
    with tun(500) as device, Path(NODE).open("rb", buffering=0) as early:
        load()
        request = struct.pack(f"{IFNAMSIZ}sH22x", OTHER.encode(), IFF_TUN)
        fcntl.ioctl(early, TUNSETIFF, request)
        equal((is_ours(NAME), is_ours(OTHER)), (False, False), "ours")
        carries(device)
    with tun(500) as device:
        check(is_ours(NAME), "its successor is not ours")
        carries(device)


def case_persistent_device_of_the_other() -> None:
    """Attaching to a persistent device goes on to work, with the driver that it has."""
    with namespaces("elsewhere"), persistent(NAME):
        configure(NAME, txqueuelen=500, qdisc=DEEP, address=f"{HERE} peer {THERE}/32")
        load()
        for _ in range(2):
            with TunDevice(NAME, IFF_TUN) as device:
                check(not is_ours(NAME), "it is ours")
                soon(lambda: carrier(NAME), "the device does not come up")
                carries(device)
        with inside("elsewhere"):
            check(opens_ours(), "another namespace's devices are not ours")
        ip_batch([f"link delete {NAME}"])
        check(opens_ours(), "devices are not ours although it is gone")


def case_second_queue_of_the_other() -> None:
    with TunDevice(NAME, MULTI_TUN):
        load()
        with TunDevice(NAME, MULTI_TUN):
            equal(is_ours(NAME), False, "ours")
            equal(len(list(Path("/sys/class/net", NAME, "queues").glob("tx-*"))), 2, "queues")
    check(opens_ours(), "devices are not ours although it is gone")


def case_kind() -> None:
    """Programs see a tun, and delete it as one."""
    load()
    with TunDevice(NAME, IFF_TAP):
        link = json.loads(tool(["ip", "-d", "-j", "link", "show", NAME]))[0]
        info = link["linkinfo"]
        equal((info["info_kind"], info["info_data"]["type"]), ("tun", "tap"), "kind")
        equal(ethtool.driver(NAME), "tun", "the driver's name")
        ip_batch([f"link delete {NAME}"])
        check(not exists(NAME), "it was not deleted")
    with persistent(NAME, "mode tap"):
        check(is_ours(NAME), "what 'ip tuntap add' makes is not ours")
        tool(["ip", "tuntap", "del", NAME, "mode", "tap"])
        check(not exists(NAME), "'ip tuntap del' left it")


def refused() -> None:
    """Fail unless the module cannot be unloaded now."""
    try:
        tool(["rmmod", BESIDE])
    except GuestError:
        return
    raise AssertionError("the module was unloaded")


def case_unload_refused_with_a_persistent_device() -> None:
    """As with the kernel's own tun; also if the device is in another namespace."""
    load()
    with namespaces("elsewhere"):
        with inside("elsewhere"):
            tool(["ip", "tuntap", "add", NAME, "mode", "tap"])
        refused()
    drivers.unload()
    check(not opens_ours(), "nodrop is still there")


def case_unload_while_a_namespace_ends() -> None:
    for _ in range(ROUNDS):
        load()
        with namespaces("elsewhere"), inside("elsewhere"):
            tool(["ip", "tuntap", "add", NAME, "mode", "tun"])
        drivers.unload()


def case_unload_refused_while_open() -> None:
    load()
    with tun(5) as device, Reader(device.fd) as reader:
        sender = Sender(10**6)
        refused()
        before = reader.packets
        check(reader.reaches(before + 100), "the device stands still")
        check(sender.stop(), "the sender hangs")
        equal(dropped(), 0, "packets dropped")


def case_bridge_of_both() -> None:
    """A frame that is written to a TAP of one driver can be read from the other's."""
    frame = b"\xff" * 6 + b"\x02\0\0\0\0\x07" + b"\x88\xb5" + b"nodrop" * 10
    with TunDevice(NAME, IFF_TAP) as theirs:
        load()
        with TunDevice(OTHER, IFF_TAP) as ours:
            equal((is_ours(NAME), is_ours(OTHER)), (False, True), "ours")
            with bridge(NAME, OTHER, behind={}):
                for sender, receiver in ((theirs, ours), (ours, theirs)):
                    os.set_blocking(receiver.fd, False)

                    def comes(sender: TunDevice = sender, fd: int = receiver.fd) -> bool:
                        os.write(sender.fd, frame)
                        with suppress(BlockingIOError):
                            while True:
                                if os.read(fd, 2048) == frame:
                                    return True
                        return False

                    soon(comes, "the bridge passes nothing on")


def case_vhost_of_both() -> None:
    """nodrop's vhost_net reads the built-in driver's device, which drops, and nodrop's."""
    with tun(5, flags=IFF_TAP) as device:
        load(vhost=Variant.NODROP)
        with client(device) as reader, flood(2, direct=False):
            soon(lambda: reader.packets > 1000, "the built-in driver's device stands still")
            soon(lambda: dropped() > 0, "the built-in driver drops nothing")
        check(not is_ours(NAME), "it is ours")
    with tun(5, flags=IFF_TAP) as device, client(device) as reader:
        check(is_ours(NAME), "it is not ours")
        with flood(2, direct=False) as sent:
            soon(lambda: reader.packets > 1000, "nodrop's device stands still")
        all_arrive(reader, sent.offered)


@each("before", "after")
def case_vhost_of_the_kernel(loaded: str) -> None:
    """The kernel's own vhost_net would refuse nodrop's files: until it is gone, none is made."""
    ours = ["nodrop/nodrop.ko", "nodrop/tun.ko"]
    theirs = modules(Variant.STOCK, Variant.STOCK)
    drivers.load([*theirs, *ours] if loaded == "before" else [*ours, *theirs])
    check(not opens_ours(), "a device is ours")
    with tun(5, flags=IFF_TAP) as device, client(device) as reader, flood(1, direct=False):
        soon(lambda: reader.packets > 100, "vhost_net reads nothing")
    load(vhost=Variant.NODROP)
    check(opens_ours(), "a device is not ours although it is gone")


def case_opens_while_it_comes_and_goes() -> None:
    """Devices are created all the while, each by one of both drivers, and work."""
    drivers_seen: set[bool] = set()

    def create() -> None:
        with tun(500) as device:
            drivers_seen.add(is_ours(NAME))
            carries(device)
        time.sleep(0.05)

    with repeating(create):
        for _ in range(ROUNDS):
            load()
            drivers.unload()
    equal(drivers_seen, {False, True}, "drivers that served a device")


run(load=needed)
