#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Fail each allocation and user copy of an operation in turn: it fails, and traffic continues.

Only those of the calling thread fail. Needs a kernel with fault injection, such as the flavour
kasan.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

from devices import (
    DEEP,
    HERE,
    NAME,
    THERE,
    backpressure_off,
    counters,
    dropped,
    drops,
    in_rings,
    multi_queue,
    tun,
)
from harness import Skip, check, drivers, equal, run, soon
from traffic import (
    Account,
    Reader,
    Sender,
    check_delivery,
    client,
    packets,
    start_senders,
    stop_all,
    udp,
)

from guestlib.drivers import unload_all
from guestlib.environment import time_limit
from guestlib.netstats import link_counters
from guestlib.process import tool
from guestlib.tracing import freed
from guestlib.tundev import (
    IFF_NO_PI,
    IFF_TAP,
    IFF_TUN,
    IFNAMSIZ,
    MULTI_TUN,
    TUNSETIFF,
    attach_queue,
    configure,
)
from guestlib.vhost_client import RX, TX, EmptyVhost
from lab.variant import Variant

KNOB = Path("/proc/thread-self/fail-nth")
DEBUGFS = Path("/sys/kernel/debug")
SETTINGS = {
    # By default allocations that may sleep and single pages do not fail.
    "failslab/ignore-gfp-wait": "N",
    "fail_page_alloc/ignore-gfp-wait": "N",
    "fail_page_alloc/ignore-gfp-highmem": "N",
    "fail_page_alloc/min-order": "0",
    # No stack trace for each.
    "failslab/verbose": "0",
    "fail_page_alloc/verbose": "0",
    "fail_usercopy/verbose": "0",
}
MEMORY = {errno.ENOMEM, errno.ENOBUFS}
MOST = 5000
"""More faults than an operation has places for."""
NOTHING, BROKEN = 254, 255
"""Exit statuses of a child: no fault was injected; the child crashed. Others are an errno."""


DEVICE = Path("/sys/class/net", NAME)
USERS = Path("/sys/module/tun/refcnt")
"""Counts each open file of tun.ko, also leaked ones."""
FOLDER = Path(os.environ["LAB_MODULES"], "nodrop")
BELOW = [FOLDER / "nodrop.ko"]
BELOW += [FOLDER.parent / f"stock/{name}.ko" for name in ("tap", "vhost_iotlb", "vhost")]
SYS_INIT_MODULE = 175
"""On x86-64."""
RING, SLOTS = 50, 64
CYCLES, PACKETS = 12, 300
"""Of vhost-net whose client has bad buffers."""

libc = ctypes.CDLL(None, use_errno=True)


def needed() -> None:
    """Skip the case unless the kernel injects faults."""
    if not KNOB.exists():
        raise Skip("this kernel injects no faults")


def _report(errors: Counter[int], *, memory: bool) -> None:
    """Print the faults; fail the case if there was none, or none for lack of memory."""
    names = {errno.errorcode.get(number, "done"): count for number, count in errors.items()}
    print(f"# {errors.total()} faults: {names}", flush=True)
    check(errors.total() > 0, "no fault was injected")
    check(bool(MEMORY & set(errors)) or not memory, "no call failed for lack of memory")


def failures(
    operation: Callable[[], object], *, in_child: bool = False, memory: bool = True
) -> Iterator[int]:
    """Run an operation repeatedly; inject a fault at the next place each time.

    Args:
        operation: the function to run.
        in_child: run it in a child process. In this process the fault may hit the futex by which
            other Python threads take turns, which would end the program.
        memory: fail the case unless a call failed for lack of memory.

    Yields:
        The operation's errno; 0: it succeeded despite the fault. The last run, without a fault,
        must succeed and yields nothing.
    """
    needed()
    for name, value in SETTINGS.items():
        (DEBUGFS / name).write_text(value)
    run = _run_in_child if in_child else _run
    errors = Counter[int]()
    for number in range(1, MOST):
        error = run(number, operation)
        if error is None:
            _report(errors, memory=memory)
            return
        errors[error] += 1
        yield error
    raise AssertionError(f"more than {MOST} places for faults")


def _run_in_child(number: int, operation: Callable[[], object]) -> int | None:
    """Run the operation in a child; as _run()."""
    child = os.fork()
    if not child:
        status = BROKEN
        try:
            error = _run(number, operation)
            status = NOTHING if error is None else error
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    check(0 <= status < BROKEN, f"the child ended with {status}")
    return None if status == NOTHING else status


def _run(number: int, operation: Callable[[], object]) -> int | None:
    """Inject a fault at a place; return the operation's errno, or None: there is no such place."""
    error, knob = 0, os.open(KNOB, os.O_RDWR)
    os.pwrite(knob, b"%d" % number, 0)
    try:
        operation()
    except OSError as raised:
        error = raised.errno or 0
    failed = _disarm(knob)
    os.close(knob)
    if failed:
        return error
    check(not error, f"error {error} without a fault")
    return None


def _disarm(knob: int) -> bool:
    """Disable fault injection; return whether a fault was injected before this call."""
    try:
        failed = int(os.pread(knob, 16, 0)) == 0
    except OSError:
        failed = False
    with suppress(OSError):
        os.pwrite(knob, b"0", 0)
    os.pwrite(knob, b"0", 0)
    return failed


def request(flags: int) -> bytes:
    return struct.pack(f"{IFNAMSIZ}sH22x", NAME.encode(), flags | IFF_NO_PI)


class Opened:
    """Queues that an operation opens and attaches, one at a time."""

    def __init__(self, flags: int) -> None:
        self._request = request(flags)
        self.fds: list[int] = []

    def attach(self) -> None:
        self.fds.append(os.open("/dev/net/tun", os.O_RDWR))
        fcntl.ioctl(self.fds[-1], TUNSETIFF, self._request)

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.pop())


def send_beyond_the_limit(packets: int) -> None:
    """Send numbered packets to port 1000; they fill the ring up to txqueuelen."""
    with backpressure_off(), udp() as sock:
        for number in range(packets):
            sock.sendto(number.to_bytes(4, "big") * 16, (THERE, 1000))


def passes(fd: int) -> None:
    """Fail unless the next packet arrives."""
    with udp() as sock, select.epoll() as poll:
        poll.register(fd, select.EPOLLIN)
        sock.sendto(bytes(100), (THERE, 9))
        check(bool(poll.poll(time_limit(2))), "a packet does not arrive")
        equal(len(os.read(fd, 2000)), 128, "bytes of the packet")


def flows(fd: int) -> None:
    """Fail unless packets of several senders arrive."""
    with Reader(fd, account := Account()):
        check_delivery(account)


def case_open_and_attach() -> None:
    opened, users = Opened(IFF_TUN), USERS.read_text()
    for error in failures(opened.attach):
        # After EFAULT the device exists: only its name could not be copied back.
        if error != errno.EFAULT:
            equal(DEVICE.exists(), not error, f"whether there is a device after error {error}")
        opened.close()
        check(not DEVICE.exists(), "the device is not deleted")
    # The last run succeeded.
    configure(NAME, txqueuelen=5, qdisc=DEEP, address=f"{HERE} peer {THERE}/32")
    flows(opened.fds[-1])
    opened.close()
    soon(lambda: USERS.read_text() == users, lambda: f"tun has users: {USERS.read_text()}", 5)


def case_attach_another_queue() -> None:
    with tun(5, flags=MULTI_TUN) as device:
        opened = Opened(MULTI_TUN)
        for _ in failures(opened.attach):
            opened.close()
            passes(device.fd)
        opened.close()
        flows(device.fd)
        equal(in_rings(), 0, "packets in rings")


def case_resize_full_rings() -> None:
    """Two queues: whatever fails, the packets in their rings stay, and stay in order."""
    packets = 20
    with multi_queue(2, ring=50) as (first, second):
        account = Account()
        send_beyond_the_limit(packets)
        queue = int(counters(0)["ring"] == 0)
        equal(counters(queue)["ring"], packets, "packets in the ring")
        knob = os.open(DEVICE / "tx_queue_len", os.O_WRONLY)
        for size, before in ((b"5", b"50"), (b"500", b"5"), (b"50", b"500")):
            for error in failures(lambda size=size: os.pwrite(knob, size, 0)):
                equal(counters(queue)["ring"], packets, f"packets in the ring after error {error}")
                if not error:
                    os.pwrite(knob, before, 0)
            equal((DEVICE / "tx_queue_len").read_text().strip(), size.decode(), "txqueuelen")
        os.close(knob)
        with Reader(first.fd, account), Reader(second.fd, account):
            check_delivery(account)
        equal(account.came[1000], list(range(packets)), "packets from the ring")
        equal(in_rings(), 0, "packets in rings")


def case_resize_under_load() -> None:
    """Whatever fails, packets keep arriving, and only the network core drops some."""
    account, ring = Account(), 2
    with (
        multi_queue(2, ring=ring) as (first, second),
        freed() as lost,
        ExitStack() as readers,
    ):
        senders = start_senders(4, 10**7)
        # The flows' hash may give all of them to one queue.
        soon(lambda: any(counters(queue)["stops"] for queue in (0, 1)), "no txq was stopped")
        for queue in (first, second):
            readers.enter_context(Reader(queue.fd, account))
        knob = os.open(DEVICE / "tx_queue_len", os.O_WRONLY)
        for size in (5, 50, 2) * 3:
            resize = partial(os.pwrite, knob, b"%d" % size, 0)
            for error in failures(resize, in_child=True):
                os.pwrite(knob, b"%d" % ring, 0)
                came = account.count()
                soon(lambda came=came: account.count() > came, f"no packet after error {error}")
            ring = size
        os.close(knob)
        stop_all(senders)
        soon(
            lambda: account.missing(senders) == lost(),
            lambda: f"{account.missing(senders)} packets are missing, the core dropped {lost()}",
        )
        equal(drops(), {}, "packets that the driver dropped")
        check_delivery(account)


def case_detach_and_attach() -> None:
    with multi_queue(2, ring=5) as (first, second):
        for attach in (False, True):
            for error in failures(partial(attach_queue, second.fd, attach), memory=False):
                if not error:
                    attach_queue(second.fd, not attach)
        account = Account()
        with Reader(first.fd, account), Reader(second.fd, account):
            check_delivery(account)
        equal(in_rings(), 0, "packets in rings")


def case_send() -> None:
    """A failed send() returns an error; a packet of a successful one arrives."""
    with tun(500) as device, udp() as sock:
        for error in failures(lambda: sock.sendto(bytes(100), (THERE, 9))):
            came = len(list(packets(device.fd)))
            equal(came, 0 if error else 1, f"packets after error {error}")
        equal([len(packet) for packet in packets(device.fd)], [128], "bytes of the last one")
        equal(dropped(), 0, "packets dropped")
        flows(device.fd)
        equal(in_rings(), 0, "packets in rings")


def loads(name: str) -> None:
    """Load a nodrop module repeatedly with each operation failing in turn, until none fails."""
    code = (FOLDER / f"{name}.ko").read_bytes()
    place = Path("/sys/module", name)
    lacking = 0

    def load() -> None:
        if libc.syscall(SYS_INIT_MODULE, code, ctypes.c_ulong(len(code)), b""):
            raise OSError(ctypes.get_errno(), name)

    for error in failures(load):
        lacking += error == errno.ENOMEM
        equal(place.exists(), not error, f"whether {name} is loaded after error {error}")
        if not error:
            tool(["rmmod", name])
    check(lacking > 5, f"only {lacking} failures for lack of memory")
    check(place.exists(), f"{name} is not loaded")


def case_load() -> None:
    """tun and vhost_net. nodrop.ko only registers tracepoints, where the kernel itself warns."""
    needed()
    drivers.unload()
    for path in filter(Path.exists, BELOW):
        tool(["insmod", str(path)])
    try:
        loads("tun")
        loads("vhost_net")
        account = Account()
        with tun(5) as device, Reader(device.fd, account):
            check_delivery(account)
    finally:
        unload_all()
    # And they still load normally.
    drivers.use(Variant.NODROP)


def use_vhost() -> None:
    needed()
    drivers.use(Variant.NODROP, vhost=Variant.NODROP)


def backends(vhost: EmptyVhost, fd: int) -> None:
    """Set the backend of both rings; raise OSError if that fails."""
    for index in (RX, TX):
        if error := vhost.backend(index, fd):
            raise OSError(error, os.strerror(error))


def case_open_vhost() -> None:
    use_vhost()
    for _ in failures(lambda: EmptyVhost().close()):
        pass


def case_attach_and_detach_vhost() -> None:
    """Whatever fails, all packets of the ring are read afterwards, and in order."""
    use_vhost()
    packets = RING // 2
    with tun(RING, flags=IFF_TAP) as device, closing(EmptyVhost()) as vhost:
        account = Account(skip=14)
        send_beyond_the_limit(packets)
        equal(counters()["ring"], packets, "packets in the ring")
        for fd in (device.fd, -1):
            for _ in failures(partial(backends, vhost, fd), memory=False):
                # Restore the state for the next attempt: detached before attaching, and vice versa.
                backends(vhost, -1 if fd >= 0 else device.fd)
        with Reader(device.fd, account):
            check_delivery(account)
        equal(account.came[1000], list(range(packets)), "packets from the ring")
        equal(in_rings(), 0, "packets in rings")


def case_bad_buffers_of_vhost() -> None:
    """A packet whose header cannot be written is lost, with its buffer, as with stock."""
    use_vhost()
    # vhost-net then stops until its client kicks.
    with tun(RING, flags=IFF_TAP) as device, client(device, slots=SLOTS) as reader:
        for cycle in range(1, CYCLES + 1):
            errors = reader.order("hide").errors
            stops = counters()["stops"]
            sender = Sender(PACKETS)
            soon(lambda stops=stops: counters()["stops"] > stops, "the txq was not stopped")
            soon(lambda errors=errors: reader.counts().errors > errors, "no packet was lost")
            reader.order("show")
            check(sender.finished(15), "the sender hangs")
            taken = cycle * PACKETS
            soon(
                lambda taken=taken: link_counters(NAME).tx_packets == taken,
                lambda: f"vhost-net took {link_counters(NAME).tx_packets} packets",
            )
            # One packet a cycle, and another if vhost-net handles a kick for earlier buffers late.
            lost = reader.counts().errors
            soon(
                lambda came=taken - lost: reader.packets == came,
                lambda: f"{reader.packets} packets arrived, {lost} were lost",  # noqa: B023
            )
        equal(dropped(), 0, "packets dropped by the driver")
        equal(counters()["guard_trips"], 0, "guard trips")
        equal(in_rings(), 0, "packets in rings")


run()
