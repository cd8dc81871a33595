#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The system calls that programs use to set up TUN and TAP give the same results as with stock.

Each case makes the same calls with both drivers and compares the results one by one.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import json
import os
import select
import struct
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "proof/programs"))

from devices import NAME
from harness import drivers, equal, run

from guestlib.drivers import IFF_BACKPRESSURE
from guestlib.process import ip_batch, tool
from guestlib.tundev import (
    IFF_ATTACH_QUEUE,
    IFF_DETACH_QUEUE,
    IFF_MULTI_QUEUE,
    IFF_NO_PI,
    IFF_TAP,
    IFF_TUN,
    IFF_VNET_HDR,
    IFNAMSIZ,
    TUNGETIFF,
    TUNSETGROUP,
    TUNSETIFF,
    TUNSETLINK,
    TUNSETOFFLOAD,
    TUNSETOWNER,
    TUNSETPERSIST,
    TUNSETQUEUE,
    TUNSETSNDBUF,
    TUNSETSTEERINGEBPF,
    TUNSETTXFILTER,
    known_flags,
)
from lab.variant import Variant

IFF_ONE_QUEUE, IFF_TUN_EXCL = 0x2000, 0x8000
TUNGETSNDBUF = 0x800454D3
TUNGETVNETHDRSZ, TUNSETVNETHDRSZ = 0x800454D7, 0x400454D8
TUNSETVNETLE, TUNGETVNETLE, TUNSETVNETBE = 0x400454DC, 0x800454DD, 0x400454DE
TUNSETCARRIER, UNKNOWN = 0x400454E2, 0x400454FF
CSUM, TSO4, TSO6, TSO_ECN, UFO, USO4, USO6 = (1 << bit for bit in range(7))
HDR, HDR_MRG = 10, 12
QUEUES = 4

Results = list[tuple[str, object]]


class Calls:
    """Calls and their results, and the files that they opened."""

    def __init__(self) -> None:
        self.results: Results = []
        self._fds: list[int] = []

    def __enter__(self) -> Calls:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)

    def note(self, what: str, action: Callable[[], object]) -> None:
        try:
            result = action()
        except OSError as error:
            result = errno.errorcode.get(error.errno or 0, str(error.errno))
        self.results.append((what, result))

    def open(self) -> int:
        self._fds.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
        return self._fds[-1]

    def ioctl(self, fd: int, what: str, number: int, value: int | bytes = 0) -> None:
        """Make an ioctl with a number, or with a structure, which it may change."""
        self.note(what, lambda: _plain(fcntl.ioctl(fd, number, value)))

    def number(self, fd: int, what: str, number: int, value: int = 0) -> None:
        self.ioctl(fd, f"{what} {value}", number, struct.pack("i", value))

    def setiff(self, fd: int, flags: int, name: str = NAME) -> None:
        self.ioctl(fd, f"TUNSETIFF {name} {flags:#x}", TUNSETIFF, ifreq(flags, name))
        self.ioctl(fd, "TUNGETIFF", TUNGETIFF, bytes(40))

    def queue(self, fd: int, flag: int) -> None:
        self.ioctl(fd, f"TUNSETQUEUE {flag:#x}", TUNSETQUEUE, ifreq(flag, ""))


def _plain(answer: int | bytes) -> object:
    return answer.hex() if isinstance(answer, bytes) else answer


def ifreq(flags: int, name: str) -> bytes:
    return struct.pack(f"{IFNAMSIZ}sH22x", name.encode(), flags)


def record_device(calls: Calls) -> None:
    """Record the device's state as ip, sysfs and ethtool show it."""
    link = json.loads(tool(["ip", "-j", "-d", "link", "show", "dev", NAME]))[0]
    for key in ("flags", "mtu", "qdisc", "txqlen", "link_type", "num_tx_queues"):
        calls.results.append((f"link: {key}", link.get(key)))
    calls.results.append(("link: info", link.get("linkinfo", {}).get("info_data")))
    for name in ("tun_flags", "owner", "group", "carrier", "tx_queue_len"):
        file = Path("/sys/class/net", NAME, name)
        calls.note(f"sysfs: {name}", lambda file=file: file.read_text().strip())
    for line in tool(["ethtool", "-k", NAME]).splitlines()[1:]:
        feature, _, state = line.strip().partition(": ")
        calls.results.append((f"feature: {feature}", state))
    about = tool(["ethtool", "-i", NAME]).splitlines()
    calls.results += [(line, "") for line in about if line.startswith(("driver:", "bus-info:"))]


def alike(case: Callable[[Calls], None]) -> Callable[[], None]:
    """Make a case that fails unless the calls give the same results with both drivers."""

    @functools.wraps(case, updated=())
    def compare() -> None:
        found: dict[Variant, Results] = {}
        for variant in (Variant.STOCK, Variant.NODROP):
            drivers.use(variant)
            with Calls() as calls:
                case(calls)
            found[variant] = calls.results
        stock, ours = found.values()
        for expected, (what, result) in zip(stock, ours, strict=False):
            equal((what, result), expected, "result with nodrop and with stock")
        equal(len(ours), len(stock), "calls")
        print(f"# {len(ours)} results are the same", flush=True)

    return compare


def case_features() -> None:
    """As LTP's ioctl03: the known flags; and that each of them can be set."""
    drivers.use(Variant.STOCK)
    stock = known_flags()
    drivers.use(Variant.NODROP)
    equal(known_flags(), stock | IFF_BACKPRESSURE, "TUNGETFEATURES")

    @alike
    def each(calls: Calls) -> None:
        for bit in (1 << number for number in range(16)):
            for kind in (IFF_TUN, IFF_TAP):
                # The stock driver ignores unknown flags.
                if bit & stock or bit != IFF_BACKPRESSURE:
                    with Calls() as one:
                        one.setiff(one.open(), kind | bit)
                    calls.results += one.results

    each()


def qemu(calls: Calls, queues: int) -> None:
    """QEMU's net/tap-linux.c, -netdev tap,queues=N: probe, open, choose, detach, attach."""
    fds = []
    for _ in range(queues):
        fd = calls.open()
        fds.append(fd)
        flags = IFF_TAP | IFF_NO_PI | IFF_ONE_QUEUE | IFF_VNET_HDR
        calls.number(fd, "TUNSETVNETHDRSZ", TUNSETVNETHDRSZ, HDR)
        calls.setiff(fd, flags | (IFF_MULTI_QUEUE if queues > 1 else 0))
        calls.number(fd, "TUNSETSNDBUF", TUNSETSNDBUF, 2**31 - 1)
        calls.number(fd, "TUNGETSNDBUF", TUNGETSNDBUF)
        for offloads in (CSUM | UFO, CSUM | USO4 | USO6, CSUM | TSO4 | TSO6 | TSO_ECN, 0):
            calls.ioctl(fd, f"TUNSETOFFLOAD {offloads:#x}", TUNSETOFFLOAD, offloads)
        calls.number(fd, "TUNGETVNETHDRSZ", TUNGETVNETHDRSZ)
        for size in (HDR_MRG, 20, HDR):
            calls.number(fd, "TUNSETVNETHDRSZ", TUNSETVNETHDRSZ, size)
        calls.number(fd, "TUNSETVNETLE", TUNSETVNETLE, 1)
        calls.number(fd, "TUNGETVNETLE", TUNGETVNETLE)
        calls.number(fd, "TUNSETVNETBE", TUNSETVNETBE, 0)
        calls.number(fd, "TUNSETSTEERINGEBPF", TUNSETSTEERINGEBPF, -1)
    record_device(calls)
    # A virtual machine starts with one queue, attaches the others, and detaches them.
    for up in (False, True):
        ip_batch([f"link set dev {NAME} {'up' if up else 'down'}"])
        for flag in (IFF_DETACH_QUEUE, IFF_DETACH_QUEUE, IFF_ATTACH_QUEUE, IFF_ATTACH_QUEUE):
            for fd in fds[1:]:
                calls.queue(fd, flag)
                calls.ioctl(fd, "TUNGETIFF", TUNGETIFF, bytes(40))
                calls.note("read", lambda fd=fd: os.read(fd, 100))
        record_device(calls)


@alike
def case_qemu(calls: Calls) -> None:
    qemu(calls, QUEUES)


@alike
def case_qemu_with_one_queue(calls: Calls) -> None:
    qemu(calls, 1)


@alike
def case_libvirt_persistent(calls: Calls) -> None:
    """libvirt's virnetdevtap.c."""
    with Calls() as first:
        fd = first.open()
        first.setiff(fd, IFF_TAP | IFF_NO_PI)
        first.ioctl(fd, "TUNSETPERSIST 1", TUNSETPERSIST, 1)
    calls.results += first.results
    record_device(calls)
    fd = calls.open()
    calls.setiff(fd, IFF_TUN | IFF_NO_PI)
    calls.setiff(fd, IFF_TAP | IFF_NO_PI | IFF_TUN_EXCL)
    calls.setiff(fd, IFF_TAP | IFF_NO_PI)
    record_device(calls)
    calls.ioctl(fd, "TUNSETPERSIST 0", TUNSETPERSIST, 0)


@alike
def case_openvpn(calls: Calls) -> None:
    fd = calls.open()
    calls.setiff(fd, IFF_TUN | IFF_NO_PI | IFF_ONE_QUEUE)
    calls.ioctl(fd, "TUNSETOWNER", TUNSETOWNER, 65534)
    calls.ioctl(fd, "TUNSETGROUP", TUNSETGROUP, 65534)
    calls.ioctl(fd, "TUNSETPERSIST 1", TUNSETPERSIST, 1)
    record_device(calls)
    calls.ioctl(fd, "TUNSETPERSIST 0", TUNSETPERSIST, 0)
    ip_batch([f"link set dev {NAME} txqueuelen 100 mtu 1500 up"])
    record_device(calls)


@alike
def case_wireguard_go(calls: Calls) -> None:
    fd = calls.open()
    calls.setiff(fd, IFF_TUN | IFF_NO_PI | IFF_VNET_HDR)
    calls.ioctl(fd, "TUNSETOFFLOAD tcp", TUNSETOFFLOAD, CSUM | TSO4 | TSO6)
    calls.ioctl(fd, "TUNSETOFFLOAD udp", TUNSETOFFLOAD, CSUM | TSO4 | TSO6 | USO4 | USO6)
    record_device(calls)


@alike
def case_mistakes(calls: Calls) -> None:
    fd, other = calls.open(), calls.open()
    calls.ioctl(fd, "TUNGETIFF", TUNGETIFF, bytes(40))
    calls.number(fd, "TUNSETSNDBUF", TUNSETSNDBUF, 1)
    calls.note("read", lambda: os.read(fd, 100))
    calls.note("write", lambda: os.write(fd, bytes(100)))
    calls.setiff(fd, 0)
    calls.setiff(fd, IFF_TUN, name="a/b")
    calls.setiff(fd, IFF_TUN, name="lo")
    calls.setiff(fd, IFF_TUN | IFF_TAP)
    calls.setiff(fd, IFF_TUN)
    calls.setiff(other, IFF_TUN)
    calls.setiff(other, IFF_TAP)
    calls.setiff(other, IFF_TUN | IFF_MULTI_QUEUE)
    calls.queue(fd, IFF_DETACH_QUEUE)
    calls.queue(fd, IFF_ATTACH_QUEUE)
    calls.queue(other, IFF_ATTACH_QUEUE)
    calls.ioctl(fd, "TUNSETOFFLOAD unknown", TUNSETOFFLOAD, 1 << 20)
    calls.ioctl(fd, "TUNSETOFFLOAD without checksums", TUNSETOFFLOAD, TSO4)
    calls.number(fd, "TUNSETVNETHDRSZ", TUNSETVNETHDRSZ, 1)
    calls.number(fd, "TUNSETSNDBUF", TUNSETSNDBUF, 0)
    calls.number(fd, "TUNSETSNDBUF", TUNSETSNDBUF, -1)
    calls.ioctl(fd, "TUNSETTXFILTER", TUNSETTXFILTER, bytes(8))
    calls.number(fd, "TUNSETSTEERINGEBPF", TUNSETSTEERINGEBPF, 1000)
    calls.number(fd, "TUNSETCARRIER", TUNSETCARRIER, 0)
    calls.ioctl(fd, "unknown", UNKNOWN)
    ip_batch([f"link set dev {NAME} up"])
    calls.ioctl(fd, "TUNSETLINK while up", TUNSETLINK, 1)
    calls.note("short write", lambda: os.write(fd, b"x"))
    calls.note("empty read", lambda: os.read(fd, 100))
    calls.note("pwrite", lambda: os.pwrite(fd, bytes(50), 0))
    calls.note("lseek", lambda: os.lseek(fd, 0, os.SEEK_SET))
    poll = select.poll()
    for file in (fd, other):
        poll.register(file)
    calls.note("poll", lambda: [events for _, events in sorted(poll.poll(0))])
    ip_batch([f"link delete dev {NAME}"])
    calls.note("poll of a deleted device", lambda: [e for _, e in sorted(poll.poll(0))])
    calls.note("read of a deleted device", lambda: os.read(fd, 100))


run(tun=None)
