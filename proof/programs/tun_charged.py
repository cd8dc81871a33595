#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""A reader that reads nothing blocks the sockets that send to it, and no other guest.

ndguest   a guest (TAP) that sends to the next two in turn
ndtest0   a guest that reads nothing     } ports of ndbridge, or routed to
ndfast    a guest that reads everything  }
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from devices import DEEP, HERE, NAME, THERE, bridge, counters, tun, veth
from harness import check, drivers, equal, run, soon
from traffic import Reader, fill, udp

from guestlib.drivers import module_file
from guestlib.environment import Environment, setting, time_limit
from guestlib.netstats import qdisc_counters
from guestlib.packets import ethernet, ip4, summed
from guestlib.process import ip_batch, tool
from guestlib.sockets import MSG_ZEROCOPY, RESET_ON_CLOSE, SO_ZEROCOPY, charged, completed
from guestlib.tundev import IFF_TAP, TSO_OFFLOADS, TUNSETSNDBUF, TunDevice, configure
from guestlib.vhost_client import VhostClient
from lab.variant import Variant

GUEST, FAST, FAR = "ndguest", "ndfast", "ndfar"
MACS = {GUEST: "02:00:00:00:00:0a", NAME: "02:00:00:00:00:0b", FAST: "02:00:00:00:00:0c"}
FRAMES = 500
"""Several times more than SNDBUF takes."""
SNDBUF = 100_000
SO_MEMINFO, WMEM_ALLOC = 55, 2
TCP, PORT = 6, 5000
SYN, ACK = 2, 16


def mac(name: str) -> bytes:
    return bytes.fromhex(MACS[name].replace(":", ""))


def frame(to: str) -> bytes:
    return ethernet(mac(to), mac(GUEST)) + bytes(1000)


@contextmanager
def guest(name: str, *, flags: int = IFF_TAP) -> Iterator[TunDevice]:
    """Create a guest's device."""
    with TunDevice(name, flags) as made:
        configure(name, txqueuelen=500, qdisc=DEEP)
        yield made


def limit_buffer(made: TunDevice) -> None:
    """Give a guest a send buffer for the frames that it sends."""
    fcntl.ioctl(made.fd, TUNSETSNDBUF, struct.pack("i", SNDBUF))


def all_sent(made: TunDevice, to: tuple[str, ...], packet: Callable[[str], bytes] = frame) -> None:
    """Send to guests in turn; fail if the guest would have to wait."""
    os.set_blocking(made.fd, False)
    for number in range(FRAMES):
        for name in to:
            try:
                os.write(made.fd, packet(name))
            except BlockingIOError:
                raise AssertionError(f"packet {number + 1} to {name} would block") from None


def holds_packets() -> None:
    """Fail unless the device pushes back."""
    check(counters()["stops"] > 0, "the txq was not stopped")
    check(qdisc_counters(NAME).queued > 0, "no packet waits in the qdisc")


def case_bridged_guest() -> None:
    with (
        tun(5, flags=IFF_TAP),
        guest(FAST) as fast,
        guest(GUEST) as sender,
        bridge(GUEST, NAME, FAST, behind=MACS),
        Reader(fast.fd) as reader,
    ):
        limit_buffer(sender)
        all_sent(sender, (NAME, FAST))
        check(reader.reaches(FRAMES), f"{reader.packets} of {FRAMES} reach the fast guest")
        holds_packets()


def case_routed_guest() -> None:
    with ExitStack() as stack:
        stack.enter_context(tun(5))
        fast = stack.enter_context(guest(FAST, flags=1))
        sender = stack.enter_context(guest(GUEST, flags=1))
        addresses = {NAME: THERE, FAST: "198.18.2.2"}
        ip_batch(
            [
                f"address add 198.18.2.1 peer 198.18.2.2 dev {FAST}",
                f"address add 198.18.3.1 peer 198.18.3.2 dev {GUEST}",
            ]
        )
        stack.enter_context(setting(Path("/proc/sys/net/ipv4/ip_forward"), "1"))
        reader = stack.enter_context(Reader(fast.fd))
        limit_buffer(sender)

        def packet(to: str) -> bytes:
            body = struct.pack("!HHHH", 9, 9, 1008, 0) + bytes(1000)
            return ip4(body, at=("198.18.3.2", addresses[to]))

        all_sent(sender, (NAME, FAST), packet)
        check(reader.reaches(FRAMES), f"{reader.packets} of {FRAMES} reach the fast guest")
        holds_packets()


def case_a_write_that_waits_is_woken() -> None:
    """TUNSETSNDBUF blocks a guest that sends to a slow link, and only until there is space."""
    slow = "tbf rate 8mbit burst 10000 limit 10000000"
    with veth("ndveth1"), guest(GUEST) as sender, bridge(GUEST, "ndveth0", behind=MACS):
        tool(["tc", "qdisc", "replace", "dev", "ndveth0", "root", *slow.split()])
        limit_buffer(sender)
        done: list[int] = []

        def write() -> None:
            done.extend(os.write(sender.fd, frame(FAST)) for _ in range(FRAMES))

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        thread.join(time_limit(20))
        equal(len(done), FRAMES, "frames written")


def pages_come_back(to: str) -> None:
    """Send with MSG_ZEROCOPY, and fail unless the kernel gives all pages back."""
    count = 10
    with udp() as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        sock.setblocking(False)
        for _ in range(count):
            sock.sendto(bytes(1000), MSG_ZEROCOPY, (to, 9))
        back = 0

        def all_back() -> bool:
            nonlocal back
            back += completed(sock)
            return back == count

        soon(all_back, lambda: f"the pages of {back} of {count} packets came back")
        check(charged(sock) > 0, "the socket does not wait")


def case_zero_copy() -> None:
    with tun(5):
        pages_come_back(THERE)
        holds_packets()


def case_zero_copy_over_a_bridge() -> None:
    with veth("ndveth0"), tun(5, flags=IFF_TAP), bridge(NAME, "ndveth1", behind=MACS):
        ip_batch(
            [
                f"address flush dev {NAME}",
                "address add 198.18.2.1/24 dev ndveth0",
                f"neigh replace 198.18.2.2 lladdr {MACS[NAME]} dev ndveth0",
            ]
        )
        pages_come_back("198.18.2.2")
        holds_packets()


@contextmanager
def zero_copy_vhost() -> Iterator[None]:
    """Load vhost_net with zero-copy transmission for the block."""
    drivers.use(Variant.NODROP, vhost=Variant.NODROP)
    environment = Environment.from_environ()
    path = module_file(environment.modules, "nodrop/vhost_net.ko")
    tool(["rmmod", "vhost_net"])
    tool(["insmod", str(path), "experimental_zcopytx=1"])
    try:
        yield
    finally:
        drivers.unload()


def case_zero_copy_of_vhost() -> None:
    """A guest behind vhost-net can be stopped: vhost-net waits for the pages of its packets."""
    environment = Environment.from_environ()
    with (
        zero_copy_vhost(),
        tun(5, flags=IFF_TAP),
        TunDevice(GUEST, IFF_TAP, offloads=TSO_OFFLOADS) as sender,
        TunDevice(FAR, IFF_TAP, offloads=TSO_OFFLOADS) as far,
    ):
        configure(GUEST, txqueuelen=500, qdisc=DEEP)
        configure(FAR, txqueuelen=1000, qdisc=DEEP, address="198.18.2.1/24")
        ip_batch([f"neigh replace 198.18.2.2 lladdr {MACS[NAME]} dev {FAR}"])
        with (
            bridge(GUEST, NAME, behind=MACS),
            VhostClient(environment, sender.fd, far_fd=far.fd) as machine,
            udp() as sock,
        ):
            for _ in range(FRAMES):
                sock.sendto(bytes(1000), ("198.18.2.2", 9))
            soon(
                lambda: counters()["ring"] + qdisc_counters(NAME).queued >= FRAMES,
                "the machine's packets do not reach the other guest",
            )
            holds_packets()
            machine.detach()


def segment(packet: bytes, flags: int) -> bytes:
    """Return the reply to a TCP packet that the kernel sent."""
    ports = packet[22:24] + packet[20:22]
    sequence = int.from_bytes(packet[24:28], "big") + 1
    head = ports + struct.pack("!IIBBHHH", 100, sequence, 5 << 4, flags, 65535, 0, 0)
    return summed(ip4(head, TCP, at=(THERE, HERE)), TCP)


def establish(device: TunDevice) -> None:
    """Accept the connection that the kernel makes through the device."""
    for answered in (False, True):
        ready, _, _ = select.select([device.fd], [], [], time_limit(10))
        check(bool(ready), "the kernel does not connect")
        packet = os.read(device.fd, 2048)
        check(packet[9] == TCP, "a packet that is not TCP's")
        if not answered:
            os.write(device.fd, segment(packet, SYN | ACK))


def case_tcp_of_a_program_waits() -> None:
    with (
        tun(5) as device,
        udp() as other,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock,
    ):
        sock.setblocking(False)
        # A reset at the end: nothing is sent again through devices of later tests.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        sock.connect_ex((THERE, PORT))
        establish(device)
        fill(other)
        equal(sock.send(bytes(5000)), 5000, "bytes sent")
        memory = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 64)
        bytes_charged = struct.unpack_from("=I", memory, 4 * WMEM_ALLOC)[0]
        check(bytes_charged > 1000, f"only {bytes_charged} bytes are charged")
        check(charged(other) > 10_000, f"only {charged(other)} bytes of UDP are charged")


def case_tcp_of_the_kernel_waits() -> None:
    """A TCP socket of the kernel, as NFS has one, is not one that others need."""
    module = Environment.from_environ().modules / "ktcp.ko"
    address = int.from_bytes(socket.inet_aton(THERE), "big")
    with tun(5) as device, udp() as other:
        tool(["insmod", str(module), f"address={address}", f"port={PORT}"])
        try:
            establish(device)
            fill(other)
            parameters = Path("/sys/module/ktcp/parameters")
            (parameters / "send").write_text("5000")
            bytes_charged = int((parameters / "charged").read_text())
            check(bytes_charged > 1000, f"only {bytes_charged} bytes are charged")
        finally:
            tool(["rmmod", "ktcp"])


run()
