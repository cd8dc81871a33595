# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m tunnels.meter cycles|instructions``: cost of tunnels' packets, in a guest.

For ``instructions`` the guest has one CPU, and QEMU counts instructions: each takes one nanosecond
and one tick of the TSC. A packet's cost is all that the CPU does for it, from its creation until
the far end has it. WireGuard's worker sends, so its cost is the CPU time of all workers instead,
also of those at the far end.

For ``cycles`` kmeter (kmeter/kmeter.c) switches parts of the series off and on while each given CPU
sends: both variants are measured in one kernel, and compared in groups of four slots.

Prints one row of JSON for each round of each variant: ``tunnel``, ``variant``, ``cost`` (of a
packet), ``packets``. ``measure.py`` boots the guests.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from guestlib import tundev
from guestlib.environment import Environment, GuestError, prepare_system, wait_until
from guestlib.namespaces import inside
from guestlib.process import tool
from tunnels.links import KINDS, Kind
from tunnels.packets import measured
from tunnels.topology import FAR, NAME, share_route, tunnel

DEVICE = "/dev/nodrop-kmeter"
_RUN = struct.Struct("=64s10I2Q")
_SAMPLE = struct.Struct("=4IQ")
_ROOM_AT = 64 + 8 * 4
IOC_RUN = tundev.ioc(tundev.IOC_READ | tundev.IOC_WRITE, 0xE0, _RUN.size)
_SLOT_US, _BATCH = 1600, 64
"""Length of a slot, and packets between two reads of the clock."""

SYMBOL = "tunnel_variant"
PARTS = {"references": 1, "id": 2, "nothing": 0}
"""Parts of the series that can be switched: their bits in SETTING."""
SETTING = Path("/sys/module/ip_tunnel_core/parameters/features")
_ALL = sum(PARTS.values())
VARIANTS = {"none": _ALL, **{part: _ALL - bit for part, bit in PARTS.items() if bit}, "both": 0}
"""Parts of the series that are on -> the value of SETTING, which has the bits of the others."""
MEASURED = (
    *("vxlan", "vxlan6", "geneve", "geneve6", "gretap", "gre", "ipip", "sit"),
    *("ip6tnl", "ip6ip6", "ipip6", "ip6gretap", "bareudp", "bareudp6"),
    *("ovpn", "wireguard", "wireguard6"),
)
SLOTS = {"cycles": 4000, "instructions": 40}
ROUNDS = 3
"""Measurements of each variant's instructions."""
_SHARED_MTU = 1400
"""Bytes; the packets sent are smaller."""
_WARM_SLOTS = 100
_QUIET_S = 0.02
_ATTEMPTS = 3
_WORKERS = ("kworker/", "ksoftirqd/")

Row = dict[str, Any]


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
    """

    def __init__(self, kind: Kind, ifindex: int) -> None:
        super().__init__(DEVICE)
        self._ifindex = ifindex
        self._packet = measured(kind)
        self._network = 14 if kind.ethernet else 0

    def run(self, cpus: Iterable[int], slots: int, symbol: str = "") -> list[SlotSample]:
        """Send as fast as possible; switch the variant from slot to slot.

        Args:
            cpus: those with a sender.
            symbol: the kernel's int that selects the variant; "": both variants are the same.

        Raises:
            OSError: ENOENT: there is no such symbol; ENODEV: no such device or CPU.
        """
        mask = sum(1 << cpu for cpu in cpus)
        room = slots * mask.bit_count()
        samples = ctypes.create_string_buffer(room * _SAMPLE.size)
        data = ctypes.create_string_buffer(self._packet.data, len(self._packet.data))
        run = bytearray(
            _RUN.pack(
                symbol.encode(),
                *(self._ifindex, mask, _BATCH, _SLOT_US, slots),
                *(len(self._packet.data), self._packet.protocol, self._network),
                *(room, 0, ctypes.addressof(data), ctypes.addressof(samples)),
            )
        )
        fcntl.ioctl(self._fd, IOC_RUN, run)
        (written,) = struct.unpack_from("=I", run, _ROOM_AT)
        fields = _SAMPLE.iter_unpack(memoryview(samples)[: written * _SAMPLE.size])
        return [*map(SlotSample._make, fields)]


def pairs(samples: Iterable[SlotSample]) -> Iterator[tuple[float, float]]:
    """Yield both variants' costs, for each complete group A B B A of a sender's slots."""
    costs = {(sample.cpu, sample.slot): sample.cost for sample in samples}
    for cpu, slot in costs:
        group = [costs[cpu, slot + at] for at in range(4) if (cpu, slot + at) in costs]
        if slot % 4 == 0 and len(group) == 4:
            yield (group[0] + group[3]) / 2, (group[1] + group[2]) / 2


def cycles(options: argparse.Namespace) -> Iterator[Row]:
    """Measure each tunnel with parts of the series off, and on.

    Raises:
        GuestError: a packet did not leave, or the host was too busy.
    """
    switched = sum(PARTS[part] for part in options.switch.split(","))
    if switched:
        SETTING.write_text(str(switched), encoding="ascii")
    symbol = SYMBOL if SETTING.exists() else ""
    cpus = [int(cpu) for cpu in options.cpus.split(",")]
    for name in options.tunnel:
        with tunnel(KINDS[name]) as ifindex, KernelMeter(KINDS[name], ifindex) as meter:
            if options.shared:
                share_route(_SHARED_MTU)
            for slots in (_WARM_SLOTS, options.slots):
                samples = meter.run(cpus, slots, symbol)
        if refused := sum(sample.refused for sample in samples):
            raise GuestError(f"{refused} packets did not leave")
        if not (both := list(pairs(samples))):
            raise GuestError("no sender has four consecutive slots; is the host busy?")
        for index, variant in enumerate(("off", "on")):
            yield {
                "tunnel": name,
                "switched": options.switch,
                "route": "shared" if options.shared else "own",
                "variant": variant,
                "cost": round(median(pair[index] for pair in both), 1),
                "ratio": round(median(pair[0] / pair[index] for pair in both), 4),
                "packets": sum(sample.packets for sample in samples),
                "pairs": len(both),
            }


def _packets(netns: str | None) -> int:
    """Return how many packets the near end sent, or the far end received."""
    with inside(netns):
        text = Path("/proc/thread-self/net/dev").read_text(encoding="ascii")
    fields = text.partition(f"{NAME}:")[2].split()
    return int(fields[1 if netns else 9])


def _workers_ns() -> int:
    """Return the CPU time of all kernel workers, ns."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        if (folder / "comm").read_text(errors="replace").startswith(_WORKERS):
            total += int((folder / "schedstat").read_text().split()[0])
    return total


def _delivered(meter: KernelMeter, slots: int) -> tuple[float, float, int]:
    """Send packets and wait for them.

    Returns:
        A packet's cost for its sender, the CPU time of all workers for it, ns, and the number of
        packets.

    Raises:
        GuestError: not all arrive, or too few are measured.
    """
    workers, sent, arrived = _workers_ns(), _packets(None), _packets(FAR)
    samples = meter.run([0], slots)

    def numbers() -> tuple[int, int]:
        return _packets(None) - sent, _packets(FAR) - arrived

    def settled() -> bool:
        before = numbers()
        time.sleep(_QUIET_S)
        return before == numbers() and before[0] == before[1] > 0

    # WireGuard's workers may have sent and delivered what they have, and go on.
    if not wait_until(settled):
        raise GuestError("of {} packets sent, {} arrived".format(*numbers()))
    if len(samples) < slots // 2:
        raise GuestError(f"only {len(samples)} slots were measured")
    packets = numbers()[1]
    cost = median(sample.cost for sample in samples)
    return cost, (_workers_ns() - workers) / packets, packets


def _delivered_once(meter: KernelMeter, slots: int) -> tuple[float, float, int]:
    """Repeat a run that loses packets: WireGuard drops what its workers cannot keep up with."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return _delivered(meter, slots)
        except GuestError:
            continue
    return _delivered(meter, slots)


def _switched_on(unswitched: str) -> Iterator[str]:
    """Switch to each variant of this kernel in turn; yield its name.

    Args:
        unswitched: the variant of a kernel without switches.
    """
    if not SETTING.exists():
        yield unswitched
        return
    for variant, off in VARIANTS.items():
        SETTING.write_text(str(off), encoding="ascii")
        yield variant


def instructions(options: argparse.Namespace) -> Iterator[Row]:
    """Measure each tunnel in several rounds, in which the variants alternate.

    Raises:
        GuestError: it cannot be set up, or loses packets.
    """
    for name in options.tunnel:
        kind = KINDS[name]
        with tunnel(kind) as ifindex, KernelMeter(kind, ifindex) as meter:
            _delivered_once(meter, options.slots)
            for number in range(1, ROUNDS + 1):
                for variant in _switched_on(options.variant):
                    cost, workers_ns, packets = _delivered_once(meter, options.slots)
                    yield {
                        "tunnel": name,
                        "round": number,
                        "variant": variant,
                        "cost": round(workers_ns if kind.link == "wireguard" else cost, 1),
                        "workers": round(workers_ns, 1),
                        "packets": packets,
                    }


def parts(text: str) -> str:
    """Return an argument that names parts of the series, separated by commas."""
    if not set(text.split(",")) <= set(PARTS):
        raise argparse.ArgumentTypeError(f"use of: {', '.join(PARTS)}")
    return text


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tunnels.meter")
    parser.add_argument("kind", choices=tuple(SLOTS))
    parser.add_argument("--tunnel", choices=tuple(KINDS), action="append", metavar="TYPE")
    parser.add_argument("--slots", type=int, metavar="N", help="of 1.6 ms (4000, 40)")
    parser.add_argument("--variant", default="clean", help="that of a kernel without switches")
    parser.add_argument("--switch", type=parts, default="references", metavar="PART,...")
    parser.add_argument("--cpus", default="0,1", metavar="N,...", help="a sender on each (0,1)")
    parser.add_argument("--shared", action="store_true", help="senders share a route")
    options = parser.parse_args(argv)
    options.tunnel = options.tunnel or MEASURED
    options.slots = options.slots or SLOTS[options.kind]
    prepare_system()
    try:
        if not Path(DEVICE).exists():
            tool(["insmod", str(Environment.from_environ().modules / "kmeter.ko")])
        for row in {"cycles": cycles, "instructions": instructions}[options.kind](options):
            print(json.dumps(row), flush=True)
    except (GuestError, OSError) as error:
        print(f"tunnels.meter: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
