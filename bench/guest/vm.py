# SPDX-License-Identifier: GPL-2.0-only
"""Load into a virtual machine in QEMU (guestlib.vm), and transactions beside it.

::

    (CPU 0)                         (CPU 1)
    load ---------+
                  +--> qdisc --> TAP --> QEMU or vhost-net --> virtio-net: discard, echo
    transactions -+
"""

from __future__ import annotations

import multiprocessing
import os
import selectors
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path

from bench.guest.base import DeviceCounts, Kind, Metrics, driver_metrics
from guestlib.drivers import device_flags
from guestlib.environment import GuestError, wait_until
from guestlib.process import ip_batch
from guestlib.tundev import IFF_TAP, TSO_OFFLOADS, TunDevice
from guestlib.vm import ADDRESS, DISCARD_PORT, ECHO_PORT, HOST_ADDRESS, Vm
from lab.variant import Variant

DEVICE = "vnet0"
WARM_UP_S = 1.0
REPLY_S = 10.0
"""Within which the idle machine replies, seconds."""
START_S = 20.0
"""Within which connections are made, seconds; the machine starts a program for each."""
LOAD_GRACE_S = 30.0
_BLOCK = bytes(1 << 16)


class VmLoad(Kind):
    """Transactions of one byte beside TCP flows or a UDP flood into a virtual machine.

    The machine is emulated, so its rates are not those of a real one.
    """

    parameters = "flows qdisc traffic_cpu txqueuelen udp_bytes vhost vm_cpu"
    uses_vhost = True

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        flags = IFF_TAP | device_flags(variant)
        device = stack.enter_context(TunDevice(DEVICE, flags, offloads=TSO_OFFLOADS))
        ip_batch([f"link set dev {DEVICE} addrgenmode none"])
        self.configure(DEVICE, address=HOST_ADDRESS)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nodrop-vm-"))
        files, log = Path(os.environ["LAB_VM"]), Path(folder, "console")
        vm = Vm(files, device.fd, log, vhost=self.case.vhost, cpu=self.case.vm_cpu)
        stack.enter_context(vm)
        if not wait_until(_replies, REPLY_S):
            raise GuestError(f"the virtual machine does not reply: {vm.log_text()[-1000:]}")
        self.keep_cpus_awake(stack)
        echo = stack.enter_context(socket.create_connection((ADDRESS, ECHO_PORT), REPLY_S))
        with self._load(WARM_UP_S + seconds + LOAD_GRACE_S):
            time.sleep(WARM_UP_S)
            first = DeviceCounts.of(DEVICE)
            times = sorted(_transactions(echo, self.case.traffic_cpu, seconds))
            last = DeviceCounts.of(DEVICE)
        packets = last.link.tx_packets - first.link.tx_packets
        taken = last.link.tx_bytes - first.link.tx_bytes
        return driver_metrics(DEVICE) | {
            "transactions_per_s": len(times) / sum(times),
            "latency_p50_ms": 1e3 * times[len(times) // 2],
            "latency_p99_ms": 1e3 * times[len(times) * 99 // 100],
            "transactions": len(times),
            "received_mbit_per_s": 8 * taken / sum(times) / 1e6,
            "delivered": packets,
            "bytes_per_packet": taken / max(packets, 1),
            "lost": last.link.tx_dropped,
            "qdisc_drops": last.qdisc.drops,
            "requeues": last.qdisc.requeues,
        }

    @contextmanager
    def _load(self, seconds: float) -> Iterator[None]:
        """Send from another process for the block, at most for some seconds."""
        context = multiprocessing.get_context("fork")
        started = context.Event()
        process = context.Process(target=self._send, args=(seconds, started), daemon=True)
        process.start()
        try:
            if not started.wait(START_S):
                raise GuestError("the load does not start")
            yield
        finally:
            process.kill()
            process.join()

    def _send(self, seconds: float, started: Event) -> None:
        os.sched_setaffinity(0, {self.case.traffic_cpu})
        with selectors.DefaultSelector() as selector:
            if size := self.case.udp_bytes:
                flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                flood.connect((ADDRESS, DISCARD_PORT))
                selector.register(flood, selectors.EVENT_WRITE, _BLOCK[:size])
            for _ in range(self.case.flows):
                flow = socket.create_connection((ADDRESS, DISCARD_PORT), START_S)
                selector.register(flow, selectors.EVENT_WRITE, _BLOCK)
            for key in selector.get_map().values():
                os.set_blocking(key.fd, False)
            started.set()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for key, _ in selector.select(seconds):
                    # EAGAIN; or nobody listens: an ICMP error of an earlier datagram.
                    with suppress(BlockingIOError, ConnectionRefusedError):
                        os.write(key.fd, key.data)


def _replies() -> bool:
    try:
        socket.create_connection((ADDRESS, ECHO_PORT), 1.0).close()
    except OSError:
        return False
    return True


def _transactions(echo: socket.socket, cpu: int, seconds: float) -> list[float]:
    """Return how long each of the transactions of a window took, or was given, seconds."""
    times = []
    echo.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    echo.settimeout(seconds)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        end = time.monotonic() + seconds
        while (start := time.monotonic()) < end:
            echo.send(b".")
            with suppress(TimeoutError):
                if not echo.recv(1):
                    raise GuestError("the virtual machine closed the connection")
            times.append(time.monotonic() - start)
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, before)
    return times
