#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Senders past the qdisc and XDP frames use the ring as with stock; their drops are counted.

The sweep tests frames redirected from another device (sender=xdp).
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import (
    HERE,
    NAME,
    THERE,
    Account,
    Reader,
    Sender,
    Skip,
    all_finish,
    check,
    check_delivery,
    counters,
    dropped,
    drops,
    equal,
    fill,
    parameter,
    run,
    settled,
    soon,
    start_senders,
    stop_all,
    tun,
    udp,
    until_stopped,
)

from guestlib.environment import LEAST_S, GuestError
from guestlib.netstats import qdisc_counters
from guestlib.process import tool
from guestlib.sockets import PACKET_QDISC_BYPASS, SOL_PACKET, UDP_SEGMENT, charged
from guestlib.tundev import IFF_TAP
from proof import bpf

FRAME = bytes.fromhex("020000000002 020000000003 88b5") + bytes(64)
"""To an unused address, with an ethertype for experiments."""
FRAMES = 400
PACKETS = 100
"""Those of the senders that must arrive while XDP frames keep the ring full."""
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


def case_beside_a_qdisc_with_packets() -> None:
    """A stopped qdisc's packets come first."""
    with tun(500, flags=IFF_TAP), udp() as sock:
        fill(sock)
        check(qdisc_counters(NAME).queued > 0, "no packet waits in the qdisc")
        before = counters()["ring"]
        check(before <= limit(), "more packets than the limit allows")
        equal(send_past(20), 20, "frames refused")
        equal(counters()["ring"], before, "packets in the ring")
        equal(drops(), {"drop_bypass": 20}, "drops")


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


def case_generic_xdp() -> None:
    with tun(500, flags=IFF_TAP) as device, bpf.xdp(NAME, bpf.returns(bpf.XDP_TX)):
        limit()
        # The driver itself runs XDP for non-blocking writes alone.
        for _ in range(520):
            os.write(device.fd, FRAME)
        ring_is_full()


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


def case_netconsole_and_the_stall_guard() -> None:
    """Lines that come more often than guard_ms do not keep a reader that is gone from stalling."""
    with tun(20, flags=IFF_TAP), udp() as sock, netconsole():
        fill(sock)
        with parameter("guard_ms", "1000"):

            def free() -> bool:
                Path("/dev/kmsg").write_text("<1>ndtest\n")
                time.sleep(0.3)
                return charged(sock) == 0

            # The guard's time begins with a stop.
            soon(free, "the reader takes nothing, and the sender stays blocked")
        check(counters()["guard_trips"] > 0, "the guard did not trip")


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


def case_sent_back_beside_senders() -> None:
    """Two senders with a qdisc, and XDP frames past it, fill one ring with a slow reader."""
    account = Account(skip=14)
    with tun(5, flags=IFF_TAP) as device, Reader(device.fd, account, pause_s=0.0003):
        with bpf.xdp(NAME, bpf.returns(bpf.XDP_TX)):
            senders = start_senders(2)
            until_stopped()
            end, frames = time.monotonic() + LEAST_S, 0
            wanted = account.count() + PACKETS
            while time.monotonic() < end and (
                frames < FRAMES or not drops() or account.count() < wanted
            ):
                for _ in range(16):
                    os.write(device.fd, FRAME)
                frames += 16
                time.sleep(0.002)
            check(account.count() >= wanted, "the frames keep the senders' packets out")
            stop_all(senders)
        lost = drops().get("drop_xdp", 0)
        settled(senders, account, since={"drop_xdp": lost})
        check(account.others > 0, "no frame arrived")
        check(lost > 0, "no frame was dropped: the ring was never full")
        equal(account.others + lost, frames, "frames that arrived or were counted as dropped")
        check_delivery(account)


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
