# SPDX-License-Identifier: GPL-2.0-only
"""The expected findings on recorded machines, and on these with changes."""

from __future__ import annotations

from typing import Any

from doctor_machines import (
    NAME,
    Change,
    another_reader,
    asleep,
    blocked,
    both,
    busy,
    calm,
    files,
    guard_is_quiet,
    kernels,
    later,
    live,
    machine,
    modules,
    no_reader,
    nothing_delivered,
    older,
    owner,
    queue,
    short,
    stalled,
    system,
    tap,
    tunnel,
    vhost,
    vhost_nodrop,
    waits,
)

from nodrop.doctor.examine import examine
from nodrop.doctor.finding import Verdict
from nodrop.doctor.sample import Record

NODROP_KERNEL = kernels({"nodrop": True})
NEWER = kernels({}, {"release": "7.3.10"})
FOREIGN = later(f"stats.{NAME}.tx0_drop_foreign", 5)
TAP_DROPS = later("links.0.stats64.rx.dropped", 60)
FULL = later("qdiscs.0.drops", 50)
DOWN = both("links.0.flags", ["POINTOPOINT"])
OFF = both(f"flags.{NAME}.nodrop", False)
INFO = "links.0.linkinfo.info_data"
QUEUES = [both(f"{INFO}.multi_queue", True), both(f"{INFO}.numqueues", 2)]
KEPT = both(f"{INFO}.persist", True)
LEFT = both("flags", {NAME: {"tx-checksumming": True}})
HAS, FRAGMENT = system(in_kernel=["ovpn", "wireguard"]), system(openvpn={"64": ["fragment"]})
TREE = system(tree=True)
RULE = system(kept={"nd*": True})
EMPTY = both(f"stats.{NAME}.tx0_ring", 0)
STALE = modules("bb")
SECOND = [*QUEUES, queue(1, ring=4)]
STALLED = [both(f"stats.{NAME}.tx0_guard_trips", 1), queue(ring=4, taken=9, stalled_ms=12_300)]
EDGE = [owner(edge=[NAME]), nothing_delivered, calm, queue(ring=3)]
BEHIND = [owner(edge=[NAME]), queue(ring=3, taken=80)]
NO_PACE = both(f"stats.{NAME}.tx0_pace_ns", 0)
TRIPS = later(f"stats.{NAME}.tx0_guard_trips", 1)
REOPENED = queue(ring=4, taken=-900, stalled_ms=50)
LOSES = later(f"stats.{NAME}.tx0_drop_guard", 40)


def verdict(data: dict[str, Any], check: str, device: str | None = None) -> Verdict | None:
    findings = examine(Record.from_json(data).look())
    found = [one.verdict for one in findings if (one.id, one.device) == (check, device)]
    assert len(found) <= 1
    return found[0] if found else None


Row = tuple[str, str, list[Change], str | None]
"""A check, a machine, changes to it, and the verdict."""

MACHINE: list[Row] = [
    ("kept-settings", "nodrop", [RULE, OFF], "warn"),
    ("kept-settings", "nodrop", [RULE], "ok"),
    ("kept-settings", "nodrop", [RULE, OFF, both("name", "blue")], "ok"),
    ("kept-settings", "nodrop", [RULE, later(f"flags.{NAME}.nodrop", -1)], "ok"),
    ("kept-settings", "nodrop", [RULE, system(obstacle="udev")], "warn"),
    ("kept-settings", "stock", [RULE], "warn"),
    ("kept-settings", "stock", [system(kept_unread="The file has other lines.")], "skipped"),
    ("driver-stock", "stock", [], "warn"),
    ("driver-stock", "stock", [files(initstate=None)], "warn"),
    ("driver-stock", "stock", [NODROP_KERNEL], None),
    ("driver-stock", "nodrop", [], "ok"),
    ("module-old", "stock", [NODROP_KERNEL, STALE], "warn"),
    ("module-old", "nodrop", [NODROP_KERNEL, STALE], "warn"),
    ("module-old", "nodrop", [NODROP_KERNEL, modules("aa")], "ok"),
    ("module-old", "nodrop", [live, NODROP_KERNEL, STALE], None),
    ("default-off", "nodrop", [files(default="N")], "warn"),
    ("default-off", "nodrop", [], "ok"),
    ("default-off", "stock", [], None),
    ("guard-off", "nodrop", [files(guard_ms="0")], "warn"),
    ("guard-off", "nodrop", [], "ok"),
    ("livepatch-moving", "nodrop", [live, machine(livepatch="moving")], "warn"),
    ("livepatch-moving", "nodrop", [live], "ok"),
    ("livepatch-and-package", "nodrop", [live, NODROP_KERNEL], "warn"),
    ("livepatch-and-package", "nodrop", [live], "ok"),
    ("livepatch-and-package", "nodrop", [NODROP_KERNEL], None),
    ("headers-missing", "stock", [kernels({"headers": False})], "warn"),
    ("headers-missing", "stock", [], "ok"),
    ("headers-missing", "nodrop", [kernels({"headers": False})], None),
    ("not-built", "stock", [TREE], "warn"),
    ("not-built", "stock", [kernels({"why_not": "no gcc"}), TREE], "warn"),
    ("not-built", "nodrop", [kernels({"nodrop": True}, {"release": "7.4.1"}), TREE], "warn"),
    ("not-built", "nodrop", [NODROP_KERNEL, TREE], "ok"),
    ("not-built", "stock", [], None),
    ("kernel-pending", "stock", [NEWER], "warn"),
    ("kernel-pending", "stock", [kernels({}, {"release": "7.3.3"})], "ok"),
    ("default-qdisc", "nodrop", [files(default_qdisc="pfifo_fast")], "warn"),
    ("default-qdisc", "nodrop", [files(default_qdisc=None)], "skipped"),
]

DEVICE: list[Row] = [
    ("ring-drops", "stock", [], "fail"),
    ("ring-drops", "nodrop", [], "ok"),
    ("ring-drops", "noqueue", [], "fail"),
    ("ring-drops", "stuck", [], "fail"),
    ("ring-drops", "stock", [tap(), TAP_DROPS], "fail"),
    ("ring-dropped", "nodrop", [both("links.0.stats64.tx.dropped", 7)], "warn"),
    ("ring-dropped", "nodrop", [], "ok"),
    ("ring-dropped", "stock", [], None),
    ("no-ring", "stock", [both("links.0.txqlen", 0)], "fail"),
    ("no-ring", "stock", [], "ok"),
    ("big-ring", "stock", [both("links.0.txqlen", 1000)], "warn"),
    ("big-ring", "stock", [both("links.0.txqlen", 10000)], "warn"),
    ("big-ring", "stock", [both("links.0.txqlen", 500)], "ok"),
    ("big-ring", "nodrop", [both("links.0.txqlen", 10000)], "ok"),
    ("big-ring", "stock", [tap(), both("links.0.txqlen", 5000)], "ok"),
    ("big-ring", "nodrop", [both("links.0.txqlen", 10000), OFF], "warn"),
    ("vhost-stock", "nodrop", [vhost], "warn"),
    ("vhost-stock", "nodrop", [vhost, FOREIGN], "fail"),
    ("vhost-stock", "nodrop", [vhost_nodrop], "ok"),
    ("vhost-stock", "nodrop", [], None),
    ("vhost-stock", "stock", [tap(), owner(vhost=1)], "ok"),
    ("ring-foreign", "nodrop", [FOREIGN], "fail"),
    ("ring-foreign", "nodrop", [], "ok"),
    ("nodrop-off", "nodrop", [OFF], "warn"),
    ("nodrop-off", "nodrop", [], "ok"),
    ("nodrop-off", "nodrop", [live, OFF], "warn"),
    ("nodrop-off", "stock", [tap(on="N")], "warn"),
    ("noqueue", "noqueue", [], "fail"),
    ("noqueue", "nodrop", [both("qdiscs.0.kind", "noqueue")], "warn"),
    ("noqueue", "nodrop", [], "ok"),
    ("noqueue", "noqueue", [DOWN], None),
    ("noqueue", "stock", [tap()], None),
    ("bufferbloat", "nodrop", [], "warn"),
    ("bufferbloat", "nodrop", [both("qdiscs.0.options.limit", 100)], "ok"),
    ("bufferbloat", "nodrop", [both("qdiscs.0.kind", "fq_codel")], "ok"),
    ("bufferbloat", "stock", [], None),
    ("bufferbloat", "stock", [tap()], None),
    ("qdisc-drops", "nodrop", [FULL], "warn"),
    ("qdisc-drops", "nodrop", [FULL, both("qdiscs.0.kind", "fq_codel")], "ok"),
    ("qdisc-stalled", "stock", [stalled()], "warn"),
    ("qdisc-stalled", "stock", [stalled("hfsc")], "note"),
    ("qdisc-stalled", "stock", [stalled(), later("qdiscs.1.packets", 1)], "ok"),
    ("qdisc-stalled", "nodrop", [stalled(), EMPTY], "warn"),
    ("qdisc-stalled", "nodrop", [stalled()], None),
    ("no-reader", "stock", [no_reader], "warn"),
    ("no-reader", "stock", [], "ok"),
    ("no-reader", "stock", [no_reader, DOWN], None),
    ("reader-stuck", "stuck", [], "fail"),
    ("reader-stuck", "stuck", [guard_is_quiet], "fail"),
    ("reader-stuck", "stuck", [EMPTY], "fail"),
    ("reader-stuck", "stuck", [guard_is_quiet, EMPTY], "ok"),
    ("reader-stuck", "stuck", [older], "fail"),
    ("reader-stuck", "stock", [], "ok"),
    ("reader-stuck", "stock", [nothing_delivered], "fail"),
    ("reader-stuck", "nodrop", [], "ok"),
    ("reader-stuck", "nodrop", SECOND, "warn"),
    ("reader-stuck", "nodrop", [*SECOND, later(f"stats.{NAME}.tx1_ring", 1)], "fail"),
    ("reader-stuck", "nodrop", [*SECOND, blocked], "fail"),
    ("reader-stuck", "nodrop", [*SECOND, blocked, calm], "warn"),
    ("reader-stuck", "nodrop", [*SECOND, older], "ok"),
    ("reader-stuck", "nodrop", [*SECOND, short], "ok"),
    ("reader-stuck", "nodrop", [*QUEUES, queue(1, ring=4, stalled_ms=12_300), short], "warn"),
    ("reader-stuck", "nodrop", [*QUEUES, queue(1, ring=0)], "ok"),
    ("reader-stuck", "nodrop", [*QUEUES, queue(1, ring=4, taken=20)], "ok"),
    ("reader-stuck", "nodrop", [*EDGE, asleep()], "ok"),
    ("reader-stuck", "nodrop", [*EDGE, asleep("T")], "warn"),
    ("reader-edge", "nodrop", [*EDGE, asleep()], "fail"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), older], "fail"),
    ("reader-edge", "nodrop", [*BEHIND, asleep()], "note"),
    ("reader-edge", "nodrop", [*BEHIND, asleep(), queue(ring=0, taken=80)], "ok"),
    ("reader-edge", "nodrop", [*BEHIND], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), queue(ring=3, taken=1)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), later(f"stats.{NAME}.tx0_ring", 1)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), queue(ring=0)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), LOSES], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), TRIPS], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), short], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep("T")], "ok"),
    ("reader-edge", "nodrop", [*EDGE], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), another_reader], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), owner(edge=[])], None),
    ("reader-edge", "nodrop", [*EDGE, asleep(), owner(vhost=1)], None),
    ("delay", "nodrop", [], "note"),
    ("delay", "nodrop", [calm], "ok"),
    ("delay", "nodrop", [calm, queue(ring=400, taken=100)], "note"),
    ("delay", "nodrop", [calm, queue(ring=4)], "note"),
    ("delay", "nodrop", [blocked], "note"),
    ("delay", "nodrop", [later("qdiscs.0.packets", -400)], None),
    ("delay", "stock", [tap()], "note"),
    ("delay", "stock", [], None),
    ("delay", "nodrop", [both("stats", {})], None),
    ("delay", "nodrop", [*SECOND, calm, older], None),
    ("guard-tripped", "stuck", [], "warn"),
    ("guard-tripped", "nodrop", STALLED, "warn"),
    ("guard-tripped", "nodrop", [*STALLED, LOSES], "fail"),
    ("guard-tripped", "nodrop", [*STALLED, LOSES, older], "warn"),
    ("guard-tripped", "nodrop", [*STALLED, LOSES, REOPENED], "warn"),
    ("guard-tripped", "nodrop", [*STALLED, queue(ring=4, stalled_ms=12_300), LOSES], "warn"),
    ("guard-tripped", "nodrop", [], "ok"),
    ("guard-tripped", "stock", [], None),
    ("reader-starved", "starved", [], "fail"),
    ("reader-starved", "nodrop", [], "ok"),
    ("reader-starved", "stock", [waits], "warn"),
    ("reader-starved", "stock", [], "ok"),
    ("reader-saturated", "nodrop", [busy], "warn"),
    ("reader-saturated", "stock", [], "ok"),
    ("several-queues", "stock", QUEUES, "note"),
    ("several-queues", "stock", [*QUEUES, owner(vhost=1)], None),
    ("offloads-left", "stock", [KEPT, LEFT], "warn"),
    ("offloads-left", "stock", [KEPT, LEFT, both(f"{INFO}.vnet_hdr", True)], None),
    ("kernel-instead", "stock", [owner(name="openvpn"), HAS], "note"),
    ("kernel-instead", "stock", [owner(name="openvpn"), HAS, FRAGMENT], "ok"),
    ("kernel-instead", "stock", [owner(name="openvpn"), HAS, both(f"{INFO}.type", "tap")], None),
    ("kernel-instead", "stock", [owner(name="wireguard-go"), HAS], "note"),
    ("tunnel-drops", "stock", [tunnel(), later("links.0.stats64.tx.dropped", 3)], "fail"),
    ("tunnel-drops", "stock", [tunnel(dropped=3)], "warn"),
    ("tunnel-drops", "stock", [tunnel()], "ok"),
    ("tunnel-qdisc-drops", "stock", [tunnel(), FULL], "warn"),
    ("tunnel-qdisc-drops", "stock", [tunnel()], "ok"),
]
