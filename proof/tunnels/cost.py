# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m proof.tunnels.cost NAME``: the instructions that a packet through each tunnel costs.

For a guest with one CPU in which QEMU counts instructions: each takes one nanosecond and one tick
of the TSC. A packet's cost is all that the CPU does for it, from its creation until the far end
has it. WireGuard's worker sends, so its cost is the CPU time of all workers instead, also of those
at the far end. NAME is the variant of a kernel without switches.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from guestlib.environment import Environment
from guestlib.failure import GuestError
from guestlib.namespaces import inside
from guestlib.prepare import prepare_system
from guestlib.process import netns_path, tool
from guestlib.timing import wait_until
from proof.tunnels.compare import FEATURES, SETTING
from proof.tunnels.kmeter import Frame, Meter
from proof.tunnels.links import KINDS
from proof.tunnels.packets import frame
from proof.tunnels.topology import FAR, NAME, tunnel

MEASURED = (
    *("vxlan", "vxlan6", "geneve", "geneve6", "gretap", "gre", "ipip", "sit"),
    *("ip6tnl", "ip6ip6", "ipip6", "ip6gretap", "bareudp", "bareudp6"),
    *("ovpn", "wireguard", "wireguard6"),
)
ROUNDS, SLOTS = 3, 40
"""Measurements of each variant, and slots of 1.6 ms in each."""
_ALL = sum(FEATURES.values())
VARIANTS = {
    "none": _ALL,
    **{part: _ALL - bit for part, bit in FEATURES.items() if bit},
    "both": 0,
}
"""Parts of the series that are on -> the value of SETTING, which has the bits of the others."""
_QUIET_S = 0.02
_ATTEMPTS = 3
_WORKERS = ("kworker/", "ksoftirqd/")


def _packets(netns: str | None) -> int:
    """Return how many packets the near end sent, or the far end received."""
    if netns:
        with inside(netns_path(netns)):
            text = Path("/proc/thread-self/net/dev").read_text(encoding="ascii")
    else:
        text = Path("/proc/net/dev").read_text(encoding="ascii")
    fields = text.partition(f"{NAME}:")[2].split()
    return int(fields[1 if netns else 9])


def _workers_ns() -> int:
    """Return the CPU time of all kernel workers, ns."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        if (folder / "comm").read_text(errors="replace").startswith(_WORKERS):
            total += int((folder / "schedstat").read_text().split()[0])
    return total


def _run(meter: Meter, ifindex: int, packet: Frame) -> tuple[float, int, int]:
    """Send packets and wait for them; return a packet's cost for its sender, and their numbers.

    Raises:
        GuestError: not all arrive, or too few are measured.
    """
    sent, came = _packets(None), _packets(FAR)
    samples = meter.run(ifindex, packet, symbol="", cpus=[0], slots=SLOTS)

    def numbers() -> tuple[int, int]:
        return _packets(None) - sent, _packets(FAR) - came

    def settled() -> bool:
        before = numbers()
        time.sleep(_QUIET_S)
        return before == numbers() and before[0] == before[1] > 0

    # WireGuard's workers may have sent and delivered what they have, and go on.
    if not wait_until(settled):
        raise GuestError("of {} packets sent, {} arrived".format(*numbers()))
    if len(samples) < SLOTS // 2:
        raise GuestError(f"only {len(samples)} slots were measured")
    return median(sample.cost for sample in samples), *numbers()


def _attempts(meter: Meter, ifindex: int, packet: Frame) -> tuple[int, tuple[float, int, int]]:
    """Return the workers' CPU time before a run, ns, and its results.

    WireGuard drops packets that its workers cannot keep up with; such a run does not count.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        before = _workers_ns()
        try:
            return before, _run(meter, ifindex, packet)
        except GuestError:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError


def _variants(only: str) -> Iterator[str]:
    """Switch to each variant of this kernel in turn, for each round; yield its name.

    Args:
        only: the variant of a kernel without switches.
    """
    for _ in range(ROUNDS):
        if not SETTING.exists():
            yield only
            continue
        for variant, off in VARIANTS.items():
            SETTING.write_text(str(off))
            yield variant


def measure(name: str, only: str) -> Iterator[dict[str, object]]:
    """Measure a kind of tunnel; yield a row for each round of each variant.

    Args:
        only: the variant of a kernel without switches.

    Raises:
        GuestError: it cannot be set up, or loses packets.
    """
    kind = KINDS[name]
    packet = frame(kind)
    with tunnel(kind) as ifindex, Meter() as meter:
        _attempts(meter, ifindex, packet)
        for variant in _variants(only):
            before, (cost, sent, came) = _attempts(meter, ifindex, packet)
            workers = (_workers_ns() - before) / came
            cost = workers if kind.link == "wireguard" else cost
            row = {"kind": name, "variant": variant, "instructions": round(cost, 1)}
            yield {**row, "workers": round(workers, 1), "sent": sent, "arrived": came}


def main(only: str) -> int:
    """Measure all kinds; print a row of JSON for each round."""
    prepare_system()
    try:
        tool(["insmod", str(Environment.from_environ().modules / "kmeter.ko")])
        for name in MEASURED:
            for row in measure(name, only):
                print(json.dumps(row), flush=True)
    except (GuestError, OSError) as error:
        print(f"tunnel-cost: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
