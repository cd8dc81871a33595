# SPDX-License-Identifier: GPL-2.0-only
"""What the test programs share: cases, drivers, a device, senders, readers, accounts of packets.

A program runs as root in a guest that it shares with other programs. LAB_MODULES and LAB_BIN are
set. Its arguments are the names of cases; none: all. It prints KTAP and ends with kselftest's exit
status. proof/selftests.py finds the names of the cases in the source.
"""

from __future__ import annotations

import errno
import itertools
import os
import select
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from guestlib.drivers import Drivers, tun_module
from guestlib.environment import (
    Environment,
    GuestError,
    Unsupported,
    prepare_system,
    scaled,
    setting,
    time_limit,
    wait_until,
)
from guestlib.netstats import driver_counters, link_counters, qdisc_counters, sum_of_queues
from guestlib.pktgen import Pktgen
from guestlib.process import ip_batch, tool
from guestlib.tundev import IFF_TAP, IFF_TUN, MULTI_TUN, TunDevice, configure
from guestlib.vhost_client import VhostClient
from lab.variant import Variant
from nodrop.host import ethtool
from nodrop.host.counters import by_queue

NAME = "ndtest0"
HERE, THERE = "198.18.0.1", "198.18.0.2"
SEND_TIMEOUT = struct.pack("ll", 0, 250_000)
"""Interval at which a blocked sender checks whether to stop, as a struct timeval."""
DEEP = "pfifo limit 20000"
"""A qdisc that never drops in a test; fq_codel's AQM would."""
PARAMETERS = {
    "nodrop": tun_module() / "parameters/nodrop",
    "guard_ms": Path("/sys/module/nodrop/parameters/guard_ms"),
    "target_us": Path("/sys/module/nodrop/parameters/target_us"),
}

drivers = Drivers(Path(os.environ["LAB_MODULES"]), late_guard=True)


Case = Callable[..., None]


class Skip(Exception):
    """This kernel or machine cannot run the case; the text is the reason."""


def check(condition: bool, text: str) -> None:
    """Fail the case with a text unless the condition holds."""
    if not condition:
        raise AssertionError(text)


def equal(got: object, wanted: object, what: str) -> None:
    """Fail the case unless both values are equal."""
    check(got == wanted, f"{what}: got {got}, wanted {wanted}")


def each(*values: object) -> Callable[[Case], Case]:
    """Make a function a case for each of the values, its argument; "a_b 1" is named a_b_1."""

    def mark(case: Case) -> Case:
        vars(case)["values"] = values
        return case

    return mark


def by_name(cases: Iterable[Case]) -> dict[str, Callable[[], None]]:
    """Return cases by their names, one for each value of each()."""
    found: dict[str, Callable[[], None]] = {}
    for case in cases:
        name = case.__name__.removeprefix("case_")
        if "values" not in vars(case):
            found[name] = case
        for value in vars(case).get("values", ()):
            found[f"{name}_{value}".replace(" ", "_")] = partial(case, value)
    return found


def run(
    *cases: Case,
    vhost: Variant | None = None,
    tun: Variant | None = Variant.NODROP,
    load: Callable[[], None] | None = None,
    at_end: Callable[[], None] = drivers.unload,
) -> None:
    """Run the chosen cases, each with nodrop's driver loaded; print KTAP and exit.

    Args:
        cases: by default all of the program, in the order of their definitions.
        vhost: the variant of vhost_net to load, too; None: none.
        tun: the variant of tun; None: the cases load modules themselves.
        load: loads the modules instead.
        at_end: unloads the modules, for the programs that follow.
    """
    defined = vars(sys.modules["__main__"]).items()
    chosen = by_name(cases or [case for name, case in defined if name.startswith("case_")])
    if names := sys.argv[1:]:
        chosen = {name: chosen[name] for name in names}
    prepare_system()
    print("KTAP version 1", f"1..{len(chosen)}", sep="\n", flush=True)
    failed = 0
    for number, (name, case) in enumerate(chosen.items(), start=1):
        try:
            if load:
                load()
            elif tun:
                drivers.use(tun, vhost=vhost)
            case()
            print(f"ok {number} {name}", flush=True)
        except (Skip, Unsupported) as reason:
            print(f"ok {number} {name} # SKIP {reason}", flush=True)
        except Exception as error:
            failed += 1
            for line in traceback.format_exc().splitlines():
                print(f"# {line}")
            print(f"not ok {number} {name} # {error}", flush=True)
    try:
        at_end()
    except GuestError as error:
        failed += 1
        print(f"# {error}", flush=True)
    sys.exit(1 if failed else 0)


def parameter(name: str, value: str) -> AbstractContextManager[None]:
    """Set a parameter of nodrop's modules for the block."""
    return setting(PARAMETERS[name], value)


@contextmanager
def tun(ring: int, *, flags: int = IFF_TUN, qdisc: str = DEEP) -> Iterator[TunDevice]:
    """Create a TUN or TAP device for the block: up, with an address and a route to THERE."""
    with TunDevice(NAME, flags) as device:
        configure(NAME, txqueuelen=ring, qdisc=qdisc, address=f"{HERE} peer {THERE}/32")
        if flags & IFF_TAP:
            ip_batch([f"neigh replace {THERE} lladdr 02:00:00:00:00:02 dev {NAME}"])
        yield device


@contextmanager
def backpressure_off() -> Iterator[None]:
    """Fill rings up to txqueuelen in the block, whatever their limit."""
    ethtool.set_private_flag(NAME, "nodrop", False)
    try:
        yield
    finally:
        ethtool.set_private_flag(NAME, "nodrop", True)


def counters(queue: int = 0, *, device: str = NAME) -> dict[str, int]:
    """Return the driver's counters of one queue."""
    return by_queue(driver_counters(device)).get(queue, {})


def dropped() -> int:
    return link_counters(NAME).tx_dropped


def soon(
    condition: Callable[[], bool], text: str | Callable[[], str], timeout: float = 10.0
) -> None:
    """Fail the case unless the condition holds within time_limit(timeout)."""
    if not wait_until(condition, timeout, step_s=0.005):
        raise AssertionError(text if isinstance(text, str) else text())


def until_stopped() -> None:
    """Fail the case unless the first txq is stopped at least once."""
    soon(lambda: counters()["stops"] > 0, "the txq was not stopped")


def udp() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@contextmanager
def bridge(*ports: str, behind: Mapping[str, str]) -> Iterator[None]:
    """Create a bridge for the block; ``behind`` are MAC addresses by the port that leads there."""
    try:
        ip_batch(["link add ndbridge type bridge mcast_snooping 0", "link set dev ndbridge up"])
    except GuestError as error:
        raise Skip(f"no bridge here: {error}") from None
    try:
        ip_batch([f"link set dev {port} master ndbridge up" for port in ports])
        known = [f"fdb replace {behind[p]} dev {p} master static" for p in ports if p in behind]
        tool(["bridge", "-batch", "-"], text="\n".join(known) + "\n")
        soon(
            lambda: tool(["bridge", "link"]).count("state forwarding") == len(ports),
            "the bridge does not forward",
        )
        yield
    finally:
        ip_batch(["link delete dev ndbridge"])


@contextmanager
def veth(up: str) -> Iterator[None]:
    """Create a veth pair, ndveth0 and ndveth1, one of which is up."""
    ip_batch(["link add ndveth0 type veth peer name ndveth1", f"link set dev {up} up"])
    try:
        yield
    finally:
        ip_batch(["link delete dev ndveth0"])


@contextmanager
def multi_queue(count: int, ring: int = 500, **options: Any) -> Iterator[list[TunDevice]]:
    """Create a TUN device with several queues for the block; options as for tun()."""
    with ExitStack() as stack:
        devices = [stack.enter_context(tun(ring, flags=MULTI_TUN, **options))]
        devices += [stack.enter_context(TunDevice(NAME, MULTI_TUN)) for _ in range(count - 1)]
        yield devices


def resize(ring: int) -> None:
    ip_batch([f"link set dev {NAME} txqueuelen {ring}"])


@contextmanager
def repeating(action: Callable[[], None]) -> Iterator[None]:
    """Repeat an action in a thread during the block; fail the case if it fails or hangs."""
    end = threading.Event()
    errors: list[Exception] = []

    def repeat() -> None:
        try:
            while not end.is_set():
                action()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(time_limit(60))
    check(not thread.is_alive(), "a thread hangs")
    if errors:
        raise errors[0]


class Sender:
    """Send numbered datagrams from a blocking socket, in a thread.

    Args:
        packets: how many to send.
        port: the destination port.
        patient: count network errors, and continue.
    """

    def __init__(self, packets: int, *, port: int = 9, patient: bool = False) -> None:
        self.sent = 0
        self.errors = 0
        self.port = port
        self._packets = packets
        self._patient = patient
        self._stop = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._send()
        except Exception as error:
            self._failed = True
            text = f"# the sender to port {self.port} ended after {self.sent} packets: {error!r}\n"
            print(text, end="", flush=True)

    def _send(self) -> None:
        with udp() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND_TIMEOUT)
            while self.sent < self._packets and not self._stop.is_set():
                try:
                    sock.sendto(self.sent.to_bytes(4, "big") * 16, (THERE, self.port))
                except BlockingIOError:
                    continue
                except OSError:
                    if not self._patient:
                        raise
                    self.errors += 1
                    time.sleep(0.001)
                    continue
                self.sent += 1

    def finished(self, timeout: float) -> bool:
        """Return whether it has ended, without an error, within time_limit(timeout)."""
        self._thread.join(time_limit(timeout))
        return not self._thread.is_alive() and not self._failed

    def blocked(self, seconds: float) -> bool:
        """Return whether it is still sending after a time, seconds on a fast guest."""
        self._thread.join(scaled(seconds))
        return self._thread.is_alive()

    def stop(self) -> bool:
        """Stop sending; return whether the sender ended, without an error."""
        self._stop.set()
        return self.finished(5)


def start_senders(count: int, packets: int = 10**6) -> list[Sender]:
    """Start senders to the ports from 1000 on."""
    return [Sender(packets, port=1000 + number) for number in range(count)]


def stop_all(senders: Iterable[Sender]) -> None:
    """Stop senders; fail unless each ends."""
    for sender in senders:
        check(sender.stop(), f"the sender to port {sender.port} hangs")


def packets(fd: int) -> Iterator[bytes]:
    """Read and yield all queued packets; the file becomes non-blocking."""
    os.set_blocking(fd, False)
    with suppress(BlockingIOError):
        while True:
            yield os.read(fd, 65536)


class Reader:
    """Read a tun file in a thread; a context manager.

    It polls without a timeout, so that a notification that the driver omits shows.

    Args:
        fd: the file; it becomes non-blocking.
        account: where to record the packets; several readers may share one.
        pause_s: sleep after each packet, s.
    """

    def __init__(self, fd: int, account: Account | None = None, *, pause_s: float = 0.0) -> None:
        os.set_blocking(fd, False)
        self.packets = 0
        self._fd = fd
        self._account = account
        self._pause_s = pause_s
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.eventfd_write(self._stop, 1)
        self._thread.join(time_limit(5))
        os.close(self._stop)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        while self._stop not in dict(poll.poll()):
            try:
                packet = os.read(self._fd, 65536)
            except BlockingIOError:
                continue
            except OSError as error:
                # The queue is detached, or its device deleted.
                if error.errno != errno.EBADFD:
                    raise
                time.sleep(0.001)
                continue
            if self._account:
                self._account.add(packet)
            self.packets += 1
            if self._pause_s:
                time.sleep(self._pause_s)

    def reaches(self, packets: int, timeout: float = 10.0) -> bool:
        """Return whether it has read ``packets`` packets within time_limit(timeout)."""
        return wait_until(lambda: self.packets >= packets, timeout, step_s=0.005)


class EdgeReader(Reader):
    """Read at most ``budget`` packets for each event."""

    def __init__(self, fd: int, budget: int) -> None:
        super().__init__(fd)
        self._budget = budget

    def _run(self) -> None:
        with select.epoll() as epoll:
            epoll.register(self._fd, select.EPOLLIN | select.EPOLLET)
            epoll.register(self._stop, select.EPOLLIN)
            while self._stop not in dict(epoll.poll()):
                self.packets += sum(1 for _ in itertools.islice(packets(self._fd), self._budget))


IPV4_UDP = b"\x45"
PORT, SEQUENCE = slice(22, 24), slice(28, 32)
"""Offsets of a Sender's destination port and packet number, from the IPv4 header on."""


def read_number(device: TunDevice) -> int:
    """Read a TAP's next packet, and return its number."""
    check(bool(select.select([device.fd], [], [], time_limit(5))[0]), "no packet to read")
    return int.from_bytes(os.read(device.fd, 2048)[14:][SEQUENCE], "big")


STILL_S = time_limit(2.0)
"""If no packet arrives for so long, none will. Seconds."""


class Account:
    """The packet numbers received from each sender, by its port.

    Args:
        skip: bytes before the IPv4 header, 14 for a TAP.
    """

    def __init__(self, *, skip: int = 0) -> None:
        self.came: dict[int, list[int]] = {}
        self.others = 0
        self._skip = skip

    def add(self, packet: bytes) -> None:
        """Record one packet; only count it if no Sender sent it."""
        packet = packet[self._skip :]
        if packet[:1] != IPV4_UDP or packet[9] != 17:
            self.others += 1
            return
        port = int.from_bytes(packet[PORT], "big")
        self.came.setdefault(port, []).append(int.from_bytes(packet[SEQUENCE], "big"))

    def of(self, sender: Sender) -> list[int]:
        """Return a copy of the numbers received from a sender; readers may add more meanwhile."""
        return list(self.came.get(sender.port, []))

    def count(self) -> int:
        return sum(map(len, self.came.values()))

    def missing(self, senders: Iterable[Sender]) -> int:
        """Return how many packets of the senders are missing; fail if one arrived twice."""
        missing = 0
        for sender in senders:
            numbers = self.of(sender)
            equal(len(set(numbers)), len(numbers), f"port {sender.port}: packets without copies")
            missing += sender.sent - len(numbers)
        return missing

    def in_order(self, senders: Iterable[Sender]) -> None:
        """Fail unless each sender's packets arrived in order."""
        for sender in senders:
            numbers = self.of(sender)
            late = sum(b < a for a, b in itertools.pairwise(numbers))
            equal(late, 0, f"port {sender.port}: packets out of order")


def mq(queues: int) -> None:
    """Give the device the qdisc mq, with a pfifo for each queue."""
    tool(["tc", "qdisc", "replace", "dev", NAME, "root", "handle", "1:", "mq"])
    for number in range(1, queues + 1):
        parent = f"1:{number:x}"
        tool(["tc", "qdisc", "replace", "dev", NAME, "parent", parent, *DEEP.split()])


def in_rings() -> int:
    """Return the packets in all rings of the device."""
    return sum_of_queues(NAME).get("ring", 0)


def drops() -> dict[str, int]:
    """Return the driver's nonzero drop counters, summed over the queues."""
    found = sum_of_queues(NAME).items()
    return {cause: value for cause, value in found if value and cause.startswith("drop_")}


def all_finish(senders: Iterable[Sender]) -> None:
    """Fail unless each sender finishes within 15 s."""
    for sender in senders:
        check(sender.finished(15), f"the sender to port {sender.port} hangs")


def all_drops(since: dict[str, int] | None = None) -> dict[str, int]:
    """Return the device's counted drops by cause, without zeros.

    The driver's causes have their names. "stack" is the rest of the device's drops: noop_qdisc
    while the core replaces the qdisc, or a filter. "qdisc" is the qdisc's own drops.

    Args:
        since: an earlier result, which is subtracted.
    """
    found = drops()
    found["stack"] = dropped() - sum(found.values())
    found["qdisc"] = qdisc_counters(NAME).drops
    for cause, count in (since or {}).items():
        found[cause] = found.get(cause, 0) - count
    return {cause: count for cause, count in found.items() if count}


def settled(
    senders: Sequence[Sender],
    account: Account,
    *,
    allowed: str = "",
    order: bool = True,
    since: dict[str, int] | None = None,
) -> int:
    """Fail unless every packet is accounted for and none is queued any more.

    The senders have ended; the readers still read.

    Args:
        allowed: the causes of drops, as all_drops() names them, that are no failure.
        order: whether each sender's packets must be in order.
        since: all_drops() before the senders began.

    Returns:
        The packets dropped by allowed causes.
    """

    def rest() -> int:
        return account.missing(senders) - sum(all_drops(since).values())

    came, moved = -1, time.monotonic()
    while rest() > 0 or qdisc_counters(NAME).queued:
        if account.count() != came:
            came, moved = account.count(), time.monotonic()
        check(
            time.monotonic() - moved < STILL_S,
            f"{rest()} packets neither arrived nor were counted as drops, "
            f"{qdisc_counters(NAME).queued} are in the qdisc, {in_rings()} in rings; "
            f"drops: {all_drops(since)}",
        )
        time.sleep(0.02)
    lost = all_drops(since)
    equal(set(lost) - set(allowed.split()), set(), f"causes of drops {lost}")
    equal(rest(), 0, "packets counted as drops that arrived")
    if order:
        account.in_order(senders)
    soon(lambda: in_rings() == 0, lambda: f"{in_rings()} packets stay in rings", 2)
    return sum(lost.values())


def check_delivery(account: Account, *, first_port: int = 2000) -> None:
    """Fail unless new packets of several senders all arrive: no txq is left stopped."""
    before = all_drops()
    senders = [Sender(100, port=first_port + number) for number in range(4)]
    all_finish(senders)
    settled(senders, account, since=before)


def fill(sock: socket.socket) -> None:
    """Make the socket non-blocking, and send until its send buffer is full."""
    sock.setblocking(False)
    for _ in range(20_000):
        try:
            sock.sendto(bytes(1000), (THERE, 9))
        except BlockingIOError:
            return
    raise AssertionError("no backpressure: the socket's send buffer does not fill")


@contextmanager
def one_cpu(cpu: int = 0) -> Iterator[None]:
    """Pin this thread and those that it starts, and so what they send, to a CPU for the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


SLOW_NS = 100_000
"""Work per packet that makes a client slower than any sender, even on debug kernels."""


def client(device: TunDevice, *, slots: int = 256, work_ns: int = 0) -> VhostClient:
    """Return a vhost-net client for a device."""
    return VhostClient(Environment.from_environ(), device.fd, slots=slots, work_ns=work_ns)


@dataclass
class PktgenFlood:
    """Packets offered to the device or its qdisc; known at the flood's end."""

    offered: int = 0


@contextmanager
def flood(senders: int, *, direct: bool) -> Iterator[PktgenFlood]:
    """Send as fast as possible for the block, past the qdisc (``direct``) or through it."""
    found = PktgenFlood()
    with Pktgen(NAME, senders=senders, packet_bytes=60, direct=direct) as pktgen:
        with pktgen.sending():
            yield found
        found.offered = sum(sender.offered for sender in pktgen.results())


def all_arrive(reader: VhostClient, offered: int) -> None:
    """Fail unless each packet arrives or was dropped by the qdisc at its limit."""

    def missing() -> int:
        return offered - qdisc_counters(NAME).drops - reader.packets

    check(offered > 0, "no packet was sent")
    soon(lambda: missing() <= 0, "packets are lost or stuck")
    equal(missing(), 0, "packets missing")
    equal(dropped(), 0, "packets dropped")


def taken_and_put_back(
    device: TunDevice, reader: VhostClient, slots: int, fill: Callable[[], object]
) -> None:
    """Let vhost-net take a batch for few buffers, and leave: the rest comes back in order.

    Args:
        reader: a client with so many slots.
        fill: waits until the device's ring is full.
    """
    count = 400
    reader.order("pause")
    reader.detach()
    sender = Sender(count)
    fill()
    reader.attach()
    soon(lambda: link_counters(NAME).tx_packets == slots, "the guest got nothing")
    reader.detach()
    numbers = [read_number(device) for _ in range(count - slots)]
    equal(numbers, list(range(slots, count)), "packets after vhost-net detached")
    check(sender.finished(5), "the sender hangs")
    equal(dropped(), 0, "packets dropped")
