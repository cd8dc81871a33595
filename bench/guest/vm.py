# SPDX-License-Identifier: GPL-2.0-only
"""TCP into a virtual machine in QEMU (guestlib.vm): flows, and transactions beside them.

::

    (CPU 0)                         (CPU 1)
    flows --------+
                  +--> qdisc --> TAP --> QEMU or vhost-net --> virtio-net: discard, echo
    transactions -+
"""

from __future__ import annotations

import multiprocessing
import os
import selectors
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from bench.guest.base import END_GRACE_S, DeviceCounts, Kind, Metrics, driver_metrics
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
TRANSACTION_S = 5.0
"""Time limit of a transaction, seconds."""
_BLOCK = bytes(1 << 16)
_TCP_INFO_BYTES = 128
_RETRANSMITS, _ACKNOWLEDGED = struct.Struct("=100xI"), struct.Struct("=120xQ")
"""tcpi_total_retrans and tcpi_bytes_acked in struct tcp_info."""


class VmTcp(Kind):
    """Transactions of one byte beside TCP flows into a virtual machine.

    The machine is emulated, so its rates are not those of a real one.
    """

    parameters = "flows qdisc traffic_cpu txqueuelen vhost vm_cpu"
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
        with _flows(self.case.flows, self.case.traffic_cpu, seconds) as flows:
            times = _transactions(self.case.traffic_cpu, seconds)
            metrics = _received(flows)
        counts = DeviceCounts.of(DEVICE)
        cuts = statistics.quantiles(times, n=100, method="inclusive")
        return (
            metrics
            | driver_metrics(DEVICE)
            | {
                "transactions_per_s": len(times) / sum(times),
                "latency_p50_ms": 1e3 * cuts[49],
                "latency_p99_ms": 1e3 * cuts[98],
                "transactions": len(times),
                "delivered": counts.link.tx_packets,
                "bytes_per_packet": counts.link.tx_bytes / counts.link.tx_packets,
                "lost": counts.link.tx_dropped,
                "qdisc_drops": counts.qdisc.drops,
                "requeues": counts.qdisc.requeues,
            }
        )


def _replies() -> bool:
    try:
        socket.create_connection((ADDRESS, ECHO_PORT), 1.0).close()
    except OSError:
        return False
    return True


def _transactions(cpu: int, seconds: float) -> list[float]:
    """Return how long each of the transactions took that were made in a window, seconds."""
    times = []
    before = os.sched_getaffinity(0)
    with socket.create_connection((ADDRESS, ECHO_PORT), TRANSACTION_S) as echo:
        echo.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        os.sched_setaffinity(0, {cpu})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        try:
            time.sleep(WARM_UP_S)
            end = time.monotonic() + seconds
            while (start := time.monotonic()) < end:
                echo.send(b".")
                if not echo.recv(1):
                    raise GuestError("the virtual machine closed the connection")
                times.append(time.monotonic() - start)
        finally:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            os.sched_setaffinity(0, before)
    if len(times) < 2:
        raise GuestError(f"only {len(times)} transactions")
    return times


@contextmanager
def _flows(count: int, cpu: int, seconds: float) -> Iterator[Connection]:
    """Send flows for the block, from another process; yield the connection for its results."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_send, args=(count, cpu, seconds, theirs), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def _received(flows: Connection) -> Metrics:
    if not flows.poll(END_GRACE_S):
        raise GuestError("the flows do not end")
    seconds, acknowledged, retransmits = flows.recv()
    return {
        "goodput_mbit_per_s": 8 * acknowledged / seconds / 1e6,
        "retransmits": retransmits,
        "window_s": seconds,
    }


def _send(count: int, cpu: int, seconds: float, results: Connection) -> None:
    """Send flows, and report time, acknowledged bytes and retransmits of the window."""
    os.sched_setaffinity(0, {cpu})
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        flows = []
        for _ in range(count):
            flow = socket.create_connection((ADDRESS, DISCARD_PORT), TRANSACTION_S)
            flows.append(stack.enter_context(flow))
            flow.setblocking(False)
            selector.register(flow, selectors.EVENT_WRITE)

        def send_for(some_s: float) -> None:
            end = time.monotonic() + some_s
            while (now := time.monotonic()) < end:
                for key, _ in selector.select(end - now):
                    with suppress(BlockingIOError):
                        key.fileobj.send(_BLOCK)  # type: ignore[union-attr]

        send_for(WARM_UP_S)
        before, started = _counts(flows), time.monotonic()
        send_for(seconds)
        after, ended = _counts(flows), time.monotonic()
        results.send((ended - started, after[0] - before[0], after[1] - before[1]))


def _counts(flows: Sequence[socket.socket]) -> tuple[int, int]:
    """Return acknowledged bytes and retransmitted segments of all flows so far."""
    infos = [
        flow.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES) for flow in flows
    ]
    return (
        sum(_ACKNOWLEDGED.unpack_from(info)[0] for info in infos),
        sum(_RETRANSMITS.unpack_from(info)[0] for info in infos),
    )
