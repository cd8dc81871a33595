#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Real VPNs under a flood, and the command's output: stock drops, nodrop does not.

::

                      this namespace    netns ndfar
    senders --> ndtest0 --> program ---> program --> ndfar0
                            ndveth0 === ndveth1
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "proof/programs"))

from command import FINE
from devices import DEEP, NAME, counters, dropped
from harness import check, drivers, equal, run, soon
from query import Bursts, device, query

from guestlib.netstats import qdisc_counters
from guestlib.tundev import configure
from guestlib.vpns import FAR, PACKAGED, VETH, Vpn, tunnel
from lab.variant import Variant

RING = 20


@contextmanager
def vpn(name: str, variant: Variant) -> Iterator[Vpn]:
    """Run a tunnel for the block; fail if it is down at the end, or leaves anything behind."""
    drivers.use(variant)
    with tunnel(name) as found:
        configure(NAME, txqueuelen=RING, qdisc=DEEP)
        yield found
        soon(found.passes, f"{name}: pings are no longer answered")
        equal(found.lost(), [], f"{name}: the session")
    soon(lambda: not left(found), lambda: f"{name}: left behind: {left(found)}")


def left(vpn: Vpn) -> list[str]:
    """Return what remains of a tunnel: programs, devices, its namespace, files."""
    found = [name for name in comms() if name.startswith(vpn.name)]
    found += [name for name in (NAME, *VETH) if Path("/sys/class/net", name).exists()]
    files = (Path("/run/netns", str(FAR.netns)), vpn.folder)
    return found + [str(path) for path in files if path.exists()]


def comms() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            yield path.read_text(errors="replace").strip()


def status(vpn: Vpn, variant: Variant) -> None:
    with Bursts():
        if variant is Variant.STOCK:
            soon(lambda: dropped() > 100, "the VPN is too fast", 60)
        else:
            soon(lambda: counters()["stops"] > 0, "the VPN is too fast", 60)
        before = dropped()
        output = query("status", "--all-namespaces")
        after = dropped()
    near = device(output, NAME)
    equal(
        [(one["pid"], one["name"]) for one in near["owners"]], [(vpn.near.pid, vpn.name)], "owner"
    )
    equal((near["kind"], near["up"], near["carrier"]), ("tun", True, True), "kind, up, carrier")
    equal(near["driver"], str(variant), "driver")
    equal(near["backpressure"], variant is Variant.NODROP, "backpressure")
    lost = near["tx_dropped_packets"]
    check(before <= lost <= after, f"{lost} dropped; ip: {before} to {after}")
    far = device(output, FAR.device, FAR.netns)
    equal([one["name"] for one in far["owners"]], [vpn.name], "the far end's owner")
    equal(far["owners"][0]["pid"], vpn.far.pid, "the far end's owner's process")


def doctor(variant: Variant) -> None:
    """Fail unless doctor finds the stock driver's drops and a fix, and with nodrop none."""
    with Bursts():
        output = query("doctor", NAME, status=3 if variant is Variant.STOCK else FINE)
    ring = {one["id"]: one for one in output["checks"] if one["id"].startswith("ring-drop")}
    if variant is Variant.STOCK:
        drops = ring["ring-drops"]
        equal((drops["severity"], drops["device"]), ("fail", NAME), "ring-drops")
        check(bool(drops["fix"]), "no fix")
    else:
        bad = [one for one in ring.values() if one["severity"] != "ok"]
        equal(bad, [], "false findings of drops")


def quiet(variant: Variant) -> None:
    """Compare status's counters with other tools' while no packets flow."""
    soon(lambda: qdisc_counters(NAME).queued == 0, "packets stay in the qdisc")
    (found,) = query("status", NAME)["devices"]
    qdisc = qdisc_counters(NAME)
    equal(found["tx_dropped_packets"], dropped(), "packets dropped")
    equal(found["txqueuelen_packets"], RING, "txqueuelen")
    equal(found["qdisc"]["kind"], "pfifo", "qdisc")
    equal(found["qdisc"]["limit_packets"], 20000, "the qdisc's limit")
    equal(found["qdisc"]["dropped_packets"], qdisc.drops, "the qdisc's drops")
    equal(found["qdisc"]["requeued_packets"], qdisc.requeues, "the qdisc's requeues")
    equal(found["queues"], 1, "queues")
    if variant is Variant.STOCK:
        check(found["tx_dropped_packets"] > 100, "hardly any drops")
        equal((found["stops"], found["wakes"]), (None, None), "counters that stock lacks")
    else:
        own = counters()
        equal(found["tx_dropped_packets"], 0, "packets dropped")
        equal((found["stops"], found["wakes"]), (own["stops"], own["wakes"]), "stops, wakes")
        limit = found["queue"][0]["limit_packets"]
        check(0 < limit <= RING, f"a limit of {limit} packets in a ring of {RING}")


def case(name: str, variant: Variant) -> Callable[[], None]:

    def looked_at() -> None:
        with vpn(name, variant) as found:
            status(found, variant)
            doctor(variant)
            quiet(variant)

    looked_at.__name__ = f"case_{name.replace('-', '_')}_{variant}"
    return looked_at


run(
    *(case(name, variant) for variant in (Variant.STOCK, Variant.NODROP) for name in PACKAGED),
    tun=None,
)
