# SPDX-License-Identifier: GPL-2.0-only
"""Macvtap and ipvtap as commands show them; made from a TUN device that was recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from doctor_cases import load
from hosts import device, raw

from nodrop.doctor.finding import Severity, Verdict
from nodrop.doctor.look import Link, Look, Sample
from nodrop.doctor.queueing import bufferbloat, noqueue
from nodrop.doctor.ring import big_ring, nodrop_off, ring_drops, vhost_stock
from nodrop.host.build import build
from nodrop.host.model import Driver, Host
from nodrop.host.system import System

NAME = "ndtest0"
SYSTEM = load("stock")["system"]
OURS = {
    "sys/module/tap/initstate": "live",
    "sys/module/tap/version": "0.3.0",
    "sys/module/tap/parameters/nodrop": "Y",
}


def taps(
    kind: str = "macvtap",
    *,
    ours: bool = True,
    on: bool = True,
    lost: int = 70,
    unheld: int = 70,
    vhost: bool = False,
    txqlen: int = 20,
) -> Host:
    recorded = raw("stock")
    files = {**recorded.machine.files, "sys/module/tap/initstate": "live"}
    if ours:
        files |= OURS | {"sys/module/tap/parameters/nodrop": "Y" if on else "N"}
    space = recorded.namespaces[0]
    link = next(one for one in space.links if one["ifname"] == NAME)
    link["linkinfo"] = {"info_kind": kind, "info_data": {"mode": "bridge"}}
    link.update(qdisc="noqueue", txqlen=txqlen)
    link["stats64"] = {
        "rx": {"packets": 1000, "bytes": 90000, "dropped": lost},
        "tx": {"packets": 3, "bytes": 300, "dropped": 0},
    }
    # The file is another one than that of the TUN device.
    holders = [
        replace(one, tun=[], tap=[link["ifindex"]], vhost=int(vhost))
        for one in recorded.machine.holders
    ]
    stats = {"rx0_drop_unheld": unheld, "rx0_ring": 7, "rx0_limit": 20, "rx0_guard_trips": 2}
    machine = replace(recorded.machine, files=files, holders=holders)
    space = replace(space, stats={NAME: stats} if ours else {}, qdiscs=[])
    return build(replace(recorded, machine=machine, namespaces=[space]))


def look(before: Host, now: Host) -> tuple[Look, Link]:
    made = Look(Sample(before, ()), Sample(now, ()), System.from_json(SYSTEM))
    return made, Link(device(before, NAME), device(now, NAME), 2.0)


@pytest.mark.parametrize("kind", ["macvtap", "ipvtap"])
def test_what_it_received_is_on_its_way_to_the_reader(kind: str) -> None:
    one = device(taps(kind), NAME)
    assert (one.kind, one.direct, one.driver, one.enabled) == (kind, True, Driver.NODROP, True)
    assert (one.tx_packets, one.tx_bytes, one.tx_dropped) == (1000, 90000, 70)
    assert (one.rx_packets, one.rx_bytes, one.rx_dropped) == (3, 300, 0)
    assert one.drops_by_cause == {"unheld": 70}
    assert (one.queue[0].ring_packets, one.queue[0].limit_packets) == (7, 20)
    assert [owner.name for owner in one.owners] == ["python"]


@pytest.mark.parametrize(
    ("check", "before", "now", "severity"),
    [
        (ring_drops, {"lost": 10, "unheld": 10}, {}, Severity.FAIL),
        (noqueue, {}, {}, None),
        (bufferbloat, {}, {}, None),
        (nodrop_off, {"on": False}, {"on": False}, Severity.WARN),
        (vhost_stock, {"vhost": True}, {"vhost": True}, Severity.OK),
        (big_ring, {"txqlen": 5000}, {"txqlen": 5000}, Severity.OK),
    ],
)
def test_what_doctor_finds(
    check: Callable[[Look, Link], Verdict | None],
    before: dict[str, Any],
    now: dict[str, Any],
    severity: Severity | None,
) -> None:
    """No qdisc is asked for, any vhost may read it; what the ring drops is told by cause."""
    found = check(*look(taps(**before), taps(**now)))
    assert (found.severity if found else None) == severity


def test_what_doctor_lets_people_type() -> None:
    off = nodrop_off(*look(taps(on=False), taps(on=False)))
    assert off
    assert off.fix == ("echo Y >/sys/module/tap/parameters/nodrop",)
    made, link = look(taps(ours=False, lost=10), taps(ours=False))
    found = ring_drops(made, link)
    assert found
    assert found.fix[0] == "nodrop install"
    assert "modprobe -r macvtap ipvtap tap" in found.fix
    inside = replace(made, system=System.from_json({**SYSTEM, "container": "docker"}))
    found = ring_drops(inside, link)
    assert found
    assert all(line.startswith("#") for line in found.fix), "nothing of it helps in there"
