#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Unprivileged users, root in namespaces of their own, block at most sockets that send to them.

A slow device: this namespace                the user's
               ndveth0 198.18.2.1  ------  ndveth1 198.18.2.2, routed or bridged to ndtest0,
               senders                     whose reader takes a packet now and then

vhost-net: backends that are no TAPs; one TAP as two backends.

The program starts itself again as ``PROGRAM --part PART``, as user nobody. A part reports in lines
of JSON on stdout, and waits for a line on stdin where the program has to resume it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from devices import NAME, THERE, counters, drops, tun
from harness import Skip, check, equal, run, soon
from traffic import Sender, client, fill, udp

from guestlib.environment import NO_IPV6, GuestError, set_sysctls, time_limit
from guestlib.netstats import qdisc_counters
from guestlib.process import Service, ip_batch, tool
from guestlib.sockets import charged
from guestlib.tundev import IFF_TAP
from guestlib.vhost_client import RX, TX, EmptyVhost
from lab.variant import Variant

NOBODY = 65534
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
WORLD_WRITABLE = ("/dev/net/tun", "/dev/vhost-net")
REST_S = 0.5
"""Interval of the reads, far below guard_ms (LATE_MS): the guard does not trip."""
OURS, THEIRS, BRIDGE = "198.18.2.1", "198.18.2.2", "198.18.0.3"
BEHIND = "02:00:00:00:00:02"
RING, SLOTS = 200, 32
BATCH = 64
"""Packets that vhost-net takes at a time."""
PACKETS = 3000
REFUSED = {errno.EBADF, errno.ENOTSOCK, errno.ESOCKTNOSUPPORT, errno.EINVAL}


@contextmanager
def unprivileged(part: Callable[[], None]) -> Iterator[Service]:
    """Run a part, one of PARTS, as user nobody; its pid also names its namespaces."""
    try:
        with Service([*UNSHARE, "true"], announces=False, user=NOBODY) as trial:
            trial.wait(time_limit(10))
    except GuestError as error:
        raise Skip(f"unprivileged user namespaces are disabled here: {error}") from error
    for name in WORLD_WRITABLE:
        # As with Debian's udev rules, except that vhost-net's group is kvm there.
        if Path(name).exists():
            Path(name).chmod(0o666)
    argv = [*UNSHARE, sys.executable, __file__, "--part", part.__name__]
    with Service(argv, announces=False, user=NOBODY) as user:
        yield user


def report(**found: object) -> None:
    """Send a report from a part to the program."""
    print(json.dumps(found), flush=True)


def wait_for_resume() -> None:
    """Block a part until the program sends a line; exit if the program has ended."""
    if not sys.stdin.readline():
        sys.exit(0)


def open_programs() -> None:
    """Copy the traffic programs to a folder that all users can read."""
    copy = Path("/run/nodrop-programs")
    if not copy.exists():
        shutil.copytree(os.environ["LAB_BIN"], copy)
        copy.chmod(0o755)
    os.environ["LAB_BIN"] = str(copy)


def read(fd: int) -> None:
    """Read until the program kills this process; report the queued packets at each read."""
    while True:
        report(stops=counters()["stops"], queued=qdisc_counters(NAME).queued)
        time.sleep(REST_S)
        os.read(fd, 65536)


def route() -> None:
    set_sysctls(NO_IPV6)
    report()
    wait_for_resume()
    with tun(5) as device:
        ip_batch([f"address add {THEIRS}/24 dev ndveth1", "link set dev ndveth1 up"])
        set_sysctls({"net/ipv4/ip_forward": "1"})
        report()
        wait_for_resume()
        read(device.fd)


def forwards(port: str) -> bool:
    """Return whether a bridge port forwards; a link-up takes effect late."""
    return '"state":"forwarding"' in tool(["ip", "-d", "-j", "link", "show", "dev", port])


def bridge() -> None:
    set_sysctls(NO_IPV6)
    try:
        ip_batch(["link add ndbridge type bridge"])
    except GuestError as error:
        report(skip=str(error))
        return
    report()
    wait_for_resume()
    with tun(5, flags=IFF_TAP) as device:
        ip_batch(
            [
                f"address flush dev {NAME}",
                *(f"link set dev {port} master ndbridge up" for port in (NAME, "ndveth1")),
                f"address add {BRIDGE}/24 dev ndbridge",
                "link set dev ndbridge up",
            ]
        )
        soon(lambda: forwards(NAME) and forwards("ndveth1"), "the bridge does not forward")
        report()
        wait_for_resume()
        read(device.fd)


@contextmanager
def slow_reader(part: Callable[[], None]) -> Iterator[Service]:
    """Start an unprivileged user that forwards to a device, and hardly reads it."""
    with unprivileged(part) as user:
        found = user.receive()
        if "skip" in found:
            raise Skip(f"no bridge here: {found['skip']}")
        ip_batch([f"link add ndveth0 type veth peer name ndveth1 netns {user.pid}"])
        try:
            if part is route:
                ip_batch([f"address add {OURS}/24 dev ndveth0", "link set dev ndveth0 up"])
            else:
                ip_batch(["address add 198.18.0.1/24 dev ndveth0", "link set dev ndveth0 up"])
                ip_batch([f"neigh replace {THERE} lladdr {BEHIND} dev ndveth0"])
            user.send()
            user.receive()
            if part is route:
                ip_batch([f"route add {THERE}/32 via {THEIRS} dev ndveth0"])
            user.send()
            yield user
        finally:
            # The other end's deletion may have deleted it.
            with suppress(GuestError):
                ip_batch(["link delete dev ndveth0"])


def never_waits(sock: socket.socket, address: str) -> None:
    """Fail if one of 200 sends would block."""
    sock.setblocking(False)
    for number in range(200):
        try:
            sock.sendto(b"hello", (address, 9))
        except BlockingIOError:
            raise AssertionError(f"send {number + 1} of 200 would block") from None
        time.sleep(0.002)


def pushes_back(user: Service) -> None:
    """Fail unless the user's device exerts backpressure."""
    while True:
        found = user.receive()
        if found["stops"] and found["queued"]:
            return


def case_forwarded_packets_block_no_sender() -> None:
    """The user's IP layer orphans forwarded packets: our sockets are not charged for them."""
    with slow_reader(route) as user, udp() as sock:
        sender = Sender(1000)
        check(sender.finished(5), "a sender into another namespace hangs")
        pushes_back(user)
        never_waits(sock, THERE)
        soon(lambda: charged(sock) == 0, lambda: f"{charged(sock)} bytes stay charged", 2)
        pushes_back(user)


def case_bridged_packets_block_only_their_socket() -> None:
    """A slow reader blocks a socket that sends to it, as a slow link does; others continue."""
    with slow_reader(bridge) as user, udp() as sock, udp() as other:
        fill(sock)
        pushes_back(user)
        check(charged(sock) > 10_000, f"only {charged(sock)} bytes are charged")
        never_waits(other, BRIDGE)
        equal(charged(other), 0, "bytes charged to the other socket")
        user.kill()
        soon(lambda: charged(sock) == 0, lambda: f"{charged(sock)} bytes stay charged", 10)


def wrong_backends() -> None:
    set_sysctls(NO_IPV6)
    errnos: dict[str, int] = {}
    with ExitStack() as stack:
        vhost = EmptyVhost()
        stack.callback(os.close, vhost.fd)
        read_end, write_end = os.pipe()
        files = {
            "a file that is closed": 1000,
            "a pipe": read_end,
            "the other end": write_end,
            "/dev/null": os.open("/dev/null", os.O_RDWR),
            "vhost-net itself": vhost.fd,
            "an UDP socket": stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)).fileno(),
        }
        for what, fd in files.items():
            for index in (RX, TX):
                errnos[f"{what}, ring {index}"] = vhost.backend(index, fd)
        unattached = os.open("/dev/net/tun", os.O_RDWR)
        with tun(5, flags=IFF_TAP) as device:
            for fd in (unattached, device.fd, unattached, -1, unattached, device.fd):
                wanted = errno.EINVAL if fd == unattached else 0
                for index in (RX, TX):
                    equal(vhost.backend(index, fd), wanted, "errno with a TAP, or none")
            os.close(unattached)
            # The device's file is closed first, and then the backend is removed.
        for index in (RX, TX):
            equal(vhost.backend(index, -1), 0, "errno without one")
    report(errnos=errnos)


def share_a_tap() -> None:
    set_sysctls(NO_IPV6)
    most = 0
    with (
        tun(RING, flags=IFF_TAP) as device,
        client(device, slots=SLOTS, work_ns=20_000) as one,
        client(device, slots=SLOTS, work_ns=20_000) as two,
    ):
        sender = Sender(PACKETS)
        while sender.blocked(0):
            for reader in (one, two):
                reader.detach()
                most = max(most, counters()["ring"])
                reader.attach()
        soon(
            lambda: one.packets + two.packets >= PACKETS,
            lambda: f"{one.packets} and {two.packets} of {PACKETS} arrived",
        )
        packets = (one.packets, two.packets)
        lost = drops()
    # Only after the clients have ended: the report's reader kills this process, and not them.
    report(most=most, packets=packets, drops=lost)


PARTS = (route, bridge, wrong_backends, share_a_tap)


def case_files_that_are_no_taps() -> None:
    with unprivileged(wrong_backends) as user:
        for what, code in user.receive()["errnos"].items():
            name = errno.errorcode.get(code, str(code))
            check(code in REFUSED, f"{what}: {name}")


def case_two_on_one_tap() -> None:
    with unprivileged(share_a_tap) as user:
        found = user.receive(time_limit(60))
    equal(sum(found["packets"]), PACKETS, "packets that arrived")
    equal(found["drops"], {}, "packets dropped")
    check(found["most"] <= RING + 2 * BATCH, f"a queue had {found['most']} packets")


if sys.argv[1:2] == ["--part"]:
    {part.__name__: part for part in PARTS}[sys.argv[2]]()
else:
    open_programs()
    run(vhost=Variant.NODROP)
