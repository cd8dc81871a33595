# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of scenario that measure what a tunnel's packet costs (tunnels/scenarios.toml).

::

    kmeter, on each CPU --> tunnel --> a device that drops all packets

kmeter (kmeter/kmeter.c) sends as fast as it can, and reads the cycle counter around each batch. A
packet's cost is all that the sender's CPU does for it meanwhile.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from bench.guest.base import Kind, Metrics
from bench.guest.instructions import of_rounds
from guestlib import tundev
from guestlib.environment import GuestError, wait_until
from guestlib.namespaces import inside
from guestlib.process import in_netns, ip_batch, tool
from lab.variant import Variant
from tunnels import faults, links
from tunnels.packets import measured
from tunnels.topology import FAR, NAME, SINK, share_route, sink, tunnel

DEVICE = "/dev/nodrop-kmeter"
_RUN = struct.Struct("=12I2Q")
_SAMPLE = struct.Struct("=4IQ")
_ROOM_AT = 8 * 4
IOC_RUN = tundev.ioc(tundev.IOC_READ | tundev.IOC_WRITE, 0xE0, _RUN.size)
_SLOT_US, _BATCH = 1600, 64
"""Length of a slot, and packets between two reads of the clock."""

_SHARED_MTU = 1400
"""Bytes; the packets sent are smaller."""
_WARM_SLOTS = 100
_COUNTED_SLOTS, _ROUNDS = 40, 3
_QUIET_S = 0.02
_ATTEMPTS = 3
_WORKERS = ("kworker/", "ksoftirqd/")
_LOST = "of {} packets sent, {} arrived"
_AS_STOCK = {"references": "held", "references-and-hashes": "stock"}
"""What a kernel with the series does as stock -> the fault that lets it."""


class SlotSample(NamedTuple):
    """One sender's work in one slot, ``struct kmeter_sample``."""

    slot: int
    cpu: int
    packets: int
    refused: int
    cycles: int

    @property
    def cost(self) -> float:
        """Cycles per packet."""
        return self.cycles / self.packets


class KernelMeter(tundev.DeviceFile):
    """kmeter's device file; a context manager.

    Args:
        ifindex: of the tunnel's device, in this network namespace.
        payload_bytes: of a packet.
    """

    def __init__(self, kind: links.LinkKind, ifindex: int, payload_bytes: int = 64) -> None:
        super().__init__(DEVICE)
        self._ifindex = ifindex
        self._packet = measured(kind, payload_bytes)
        self._mark = kind.mark
        self._network = 14 if kind.ethernet else 0

    def run(self, cpus: Iterable[int], slots: int, other: str = "none") -> list[SlotSample]:
        """Send as fast as possible from each of the CPUs.

        Args:
            other: a fault (faults.py) that the kernel makes in slots 1 and 2 of each four.

        Raises:
            OSError: ENODEV: no such device or CPU; EOPNOTSUPP: a kernel without faults.
        """
        mask = sum(1 << cpu for cpu in cpus)
        room = slots * mask.bit_count()
        samples = ctypes.create_string_buffer(room * _SAMPLE.size)
        data = ctypes.create_string_buffer(self._packet.data, len(self._packet.data))
        run = bytearray(
            _RUN.pack(
                *(self._ifindex, mask, _BATCH, _SLOT_US, slots),
                *(len(self._packet.data), self._packet.protocol, self._network),
                *(room, self._mark, faults.FAULTS.index(other), 0),
                *(ctypes.addressof(data), ctypes.addressof(samples)),
            )
        )
        fcntl.ioctl(self._fd, IOC_RUN, run)
        (written,) = struct.unpack_from("=I", run, _ROOM_AT)
        fields = _SAMPLE.iter_unpack(memoryview(samples)[: written * _SAMPLE.size])
        return [*map(SlotSample._make, fields)]


class _Tunnel(Kind):
    """A tunnel of a type in links.KINDS, in a kernel of its own."""

    @classmethod
    def modules(cls, variant: Variant) -> list[str]:
        del variant
        return ["kmeter.ko"]

    def meter(self, stack: ExitStack, payload_bytes: int = 64) -> KernelMeter:
        """Create the tunnel; the stack removes it."""
        kind = links.KINDS[self.case.tunnel]
        ifindex = stack.enter_context(tunnel(kind))
        return stack.enter_context(KernelMeter(kind, ifindex, payload_bytes))


class Cycles(_Tunnel):
    """Cycles per packet while each CPU sends, in half of the slots as stock does.

    Only slots in which all CPUs sent count. The ratio is that of four slots in a row (A B B A), in
    the median: the layout of memory, which is random, is the same in all of them.
    """

    parameters = "tunnel route as_stock"

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        del variant
        meter = self.meter(stack)
        stack.enter_context(sink())
        if self.choice("route", "own", "shared") == "shared":
            share_route(_SHARED_MTU)
        return self.compare(meter, range(os.cpu_count() or 1), seconds)

    def compare(
        self, meter: KernelMeter, cpus: Sequence[int], seconds: float, *end: str
    ) -> Metrics:
        """Send from all of the CPUs, as stock in half of the slots.

        Args:
            end: the device where the packets end, and its namespace; none: the sink.
        """
        meter.run(cpus, _WARM_SLOTS)
        numbers = _counted(*end)
        slots = round(seconds * 1e6 / _SLOT_US)
        samples = meter.run(cpus, slots, _AS_STOCK[self.choice("as_stock", *_AS_STOCK)])
        if not wait_until(lambda: len({*numbers()}) == 1):
            raise GuestError(_LOST.format(*numbers()))
        sent, _ = numbers()
        if refused := sum(sample.refused for sample in samples):
            raise GuestError(f"{refused} packets did not leave")
        costs: dict[int, list[float]] = {}
        for sample in samples:
            costs.setdefault(sample.slot, []).append(sample.cost)
        together = {slot: fmean(each) for slot, each in costs.items() if len(each) == len(cpus)}
        fours = [
            [together[at + number] for number in range(4)]
            for at in range(0, slots, 4)
            if together.keys() >= {*range(at, at + 4)}
        ]
        if len(fours) < slots // 8:
            raise GuestError(
                f"all CPUs sent in {len(together)} of {slots} slots; is the host busy?"
            )
        return {
            "cycles_per_packet": median(a + d for a, _, _, d in fours) / 2,
            "as_stock_cycles_per_packet": median(b + c for _, b, c, _ in fours) / 2,
            "cycles_ratio": median((a + d) / (b + c) for a, b, c, d in fours),
            "sent": sent,
            "slots": len(together),
        }


class Throughput(Cycles):
    """The same for one CPU that sends over a veth pair and does the far end's work, too.

    The far end drops all packets behind its tunnel device. The other CPU is idle.
    """

    parameters = "tunnel as_stock payload_bytes"

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        del variant
        meter = self.meter(stack, self.case.payload_bytes)
        for command in (
            f"tc qdisc add dev {NAME} clsact",
            f"tc filter add dev {NAME} ingress matchall action drop",
        ):
            tool(in_netns(FAR, command.split()))
        found = self.compare(meter, [0], seconds, NAME, FAR)
        rate = found["sent"] * self.case.payload_bytes * 8 / 1e6 / seconds
        return found | {"received_mbit_per_s": rate}


def _packets(device: str = NAME, netns: str | None = None) -> int:
    """Return how many packets a device sent, or received if it is the far end's."""
    with inside(netns):
        text = Path("/proc/thread-self/net/dev").read_text(encoding="ascii")
    fields = text.partition(f"{device}:")[2].split()
    return int(fields[1 if netns else 9])


def _counted(end: str = SINK, netns: str | None = None) -> Callable[[], tuple[int, int]]:
    """Return a function for how many packets were sent from now on, and arrived."""
    sent, arrived = _packets(), _packets(end, netns)
    return lambda: (_packets() - sent, _packets(end, netns) - arrived)


def workers_ns(proc: Path = Path("/proc")) -> int:
    """Return the CPU time of all kernel workers, ns."""
    total = 0
    for folder in proc.glob("[0-9]*"):
        # A worker may end meanwhile.
        with suppress(OSError):
            if (folder / "comm").read_text(errors="replace").startswith(_WORKERS):
                total += int((folder / "schedstat").read_text().split()[0])
    return total


class RouteChurn(Kind):
    """Instructions to add a route, look it up and delete it, on one CPU that counts them."""

    parameters = "routes"

    @classmethod
    def modules(cls, variant: Variant) -> list[str]:
        del variant
        return []

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        del variant, seconds
        ip_batch([f"link add {SINK} type dummy", f"link set {SINK} up"])
        stack.callback(ip_batch, [f"link delete {SINK}"])
        routes = int(self.case.routes)
        lines = []
        for number in range(routes):
            to = f"198.51.{100 + number // 256}.{number % 256}"
            lines += [f"route add {to} dev {SINK}", f"route get {to}", f"route del {to}"]

        def cost() -> float:
            begin = time.perf_counter_ns()
            ip_batch(lines)
            return (time.perf_counter_ns() - begin) / routes

        cost()
        costs = of_rounds([cost() for _ in range(_ROUNDS)])
        return {
            "instructions_per_route": costs["instructions_per_packet"],
            "spread_percent": costs["spread_percent"],
        }


class TunnelInstructions(_Tunnel):
    """Instructions per packet, from its creation until the device below drops it.

    QEMU counts them: each takes one nanosecond and one tick of the TSC. WireGuard's workers encrypt
    and send, so there it is the CPU time of all workers instead.
    """

    parameters = "tunnel"

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        del variant, seconds
        meter = self.meter(stack)
        if links.KINDS[self.case.tunnel].sealed:
            # A handshake needs the far end.
            self._sent(meter, NAME, FAR)
        stack.enter_context(sink())
        self._sent(meter)
        rounds = [self._sent(meter) for _ in range(_ROUNDS)]
        return of_rounds([cost for cost, _ in rounds]) | {
            "sent": sum(packets for _, packets in rounds)
        }

    def _sent(self, meter: KernelMeter, *end: str) -> tuple[float, int]:
        """Send packets and wait for them; repeat it if WireGuard's workers cannot keep up.

        Args:
            end: the device where the packets end, and its namespace; none: the sink.

        Returns:
            A packet's cost, and the number of packets.

        Raises:
            GuestError: not all arrive, or too few are measured.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._sent_once(meter, *end)
            except GuestError:
                continue
        return self._sent_once(meter, *end)

    def _sent_once(self, meter: KernelMeter, *end: str) -> tuple[float, int]:
        workers, numbers = workers_ns(), _counted(*end)
        samples = meter.run([0], _COUNTED_SLOTS)

        def settled() -> bool:
            before = numbers()
            time.sleep(_QUIET_S)
            return before == numbers() and before[0] == before[1] > 0

        # WireGuard's workers may have sent what they have, and go on.
        if not wait_until(settled):
            raise GuestError(_LOST.format(*numbers()))
        if len(samples) < _COUNTED_SLOTS // 2:
            raise GuestError(f"only {len(samples)} slots were measured")
        packets = numbers()[1]
        if links.KINDS[self.case.tunnel].link == "wireguard":
            return (workers_ns() - workers) / packets, packets
        return median(sample.cost for sample in samples), packets
