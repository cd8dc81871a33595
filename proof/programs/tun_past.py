#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Senders past the qdisc and XDP frames use the ring as with stock; their drops are counted.

The sweep tests frames redirected from another device (sender=xdp).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devices import HERE, NAME, THERE, counters, dropped, drops, tun
from harness import Skip, check, equal, run, soon
from traffic import Account, Reader, Sender, all_finish, fill, settled, udp

from guestlib.environment import GuestError
from guestlib.process import tool
from guestlib.sockets import PACKET_QDISC_BYPASS, SOL_PACKET, UDP_SEGMENT
from guestlib.tundev import IFF_TAP
from proof import bpf

FRAME = bytes.fromhex("020000000002 020000000003 88b5") + bytes(64)
"""To an unused address, with an ethertype for experiments."""
SLACK = 32
"""XDP frames that the ring takes beyond txqueuelen."""
TARGETS = Path("/sys/kernel/config/netconsole")


def send_past(frames: int) -> int:
    """Send frames past the qdisc; return how many the kernel refuses."""
    refused = 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((NAME, 0))
        sock.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
        for _ in range(frames):
            try:
                sock.send(FRAME)
            except OSError:
                refused += 1
    return refused


def limit() -> int:
    """Return the limit, which is below txqueuelen."""
    found = counters()["limit"]
    check(found < 300, f"the limit is {found}")
    return found


def ring_is_full() -> None:
    equal(counters()["ring"], 500, "frames in the ring")
    equal(drops(), {"drop_bypass": 20}, "drops")


def case_all_of_the_ring() -> None:
    with tun(500, flags=IFF_TAP):
        limit()
        equal(send_past(520), 20, "frames refused")
        ring_is_full()
        equal(dropped(), 20, "drops of the device")


def case_a_list_is_cut_once() -> None:
    """Segments behind the one that stops the txq wait: the slack is for one packet."""
    with tun(100) as device, udp() as sock:
        sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 500)
        try:
            sock.sendto(bytes(20_000), (THERE, 9))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise Skip("this kernel segments no UDP without checksum offload") from None
        equal(counters()["ring"], limit(), "packets in the ring")
        with Reader(device.fd, pause_s=0.0002) as reader:
            for _ in range(49):
                sock.sendto(bytes(20_000), (THERE, 9))
            check(reader.reaches(2000), f"{reader.packets} of 2000 arrive")
        equal(drops(), {}, "drops")


@contextmanager
def netconsole() -> Iterator[None]:
    """Log to a host behind the device."""
    try:
        if not TARGETS.parent.is_mount():
            tool(["mount", "-t", "configfs", "none", str(TARGETS.parent)])
        if not TARGETS.exists():
            tool(["modprobe", "netconsole"])
    except GuestError as error:
        raise Skip(f"no netconsole: {error}") from None
    target = TARGETS / "ndtest"
    target.mkdir()
    try:
        values = {
            "dev_name": NAME,
            "local_ip": HERE,
            "remote_ip": THERE,
            "remote_mac": "02:00:00:00:00:02",
            "enabled": "1",
        }
        for name, value in values.items():
            (target / name).write_text(value)
        yield
    finally:
        if (target / "enabled").read_text().strip() == "1":
            (target / "enabled").write_text("0")
        target.rmdir()


def case_netconsole() -> None:
    """The kernel logs through a stopped device without waiting for it."""
    with tun(60, flags=IFF_TAP), udp() as sock, netconsole():
        fill(sock)
        before = counters()["ring"]
        for number in range(100):
            Path("/dev/kmsg").write_text(f"<1>ndtest {number}\n")
        soon(
            lambda: counters()["ring"] - before + counters()["drop_bypass"] >= 100,
            lambda: f"{counters()['ring'] - before} sent, {counters()['drop_bypass']} dropped",
        )
        # Each line may admit a packet of the qdisc, which is not dropped.
        ring = counters()["ring"]
        check(60 <= ring <= 160, f"{ring} packets in the ring")
        equal(set(drops()), {"drop_bypass"}, "causes of drops")


def case_beyond_a_full_ring() -> None:
    """XDP frames may use the slack of a full ring, and no more."""
    account = Account(skip=14)
    with tun(5, flags=IFF_TAP) as device:
        # The driver runs XDP itself only for non-blocking writes.
        os.set_blocking(device.fd, False)
        with bpf.xdp(NAME, bpf.returns(bpf.XDP_TX)):
            senders = [Sender(4)]
            all_finish(senders)
            equal(counters()["stops"], 1, "stops")
            for _ in range(1 + SLACK + 3):
                os.write(device.fd, FRAME)
        equal(drops(), {"drop_xdp": 3}, "packets dropped")
        with Reader(device.fd, account):
            settled(senders, account, since=drops())
        equal(account.others, 1 + SLACK, "frames that arrived")


run()
