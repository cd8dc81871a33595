# SPDX-License-Identifier: GPL-2.0-only
"""Every check of doctor with and without a finding, and the command's options.

Most cases change one thing in a recorded machine (hosts.py).
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hosts import (
    NAME,
    RECORDS,
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
    load,
    machine,
    modules,
    no_reader,
    nothing_delivered,
    older,
    owner,
    queue,
    short,
    spaces,
    stalled,
    system,
    tap,
    tunnel,
    vhost,
    vhost_nodrop,
    waits,
)
from schema import answer

from nodrop import cli, screen
from nodrop.commands import doctor as doctor_command
from nodrop.doctor import findings
from nodrop.doctor.findings import Severity, Verdict
from nodrop.doctor.observation import Record
from nodrop.host.model import Driver

Capture = pytest.CaptureFixture[str]
BAD = ("note", "warn", "fail")


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
ONE_EDGE = owner(edge=[NAME])
NO_PACE = both(f"stats.{NAME}.tx0_pace_ns", 0)


def was_empty(data: dict[str, Any]) -> None:
    """The ring was empty in the first sample."""
    spaces(data)[0]["stats"][NAME]["tx0_ring"] = 0


TRIPS = later(f"stats.{NAME}.tx0_guard_trips", 1)
REOPENED = queue(ring=4, taken=-900, stalled_ms=50)
LOSES = later(f"stats.{NAME}.tx0_drop_guard", 40)


TRICKLE = [queue(ring=4, taken=8)]
SAME_STOPS = both(f"stats.{NAME}.tx0_stops", 54)
SMALLEST = both(f"stats.{NAME}.tx0_limit", 4)
QUICK = later("qdiscs.0.bytes", 100_000)

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
    ("reader-stuck", "nodrop", [*EDGE, asleep(), another_reader], "ok"),
    ("reader-stuck", "nodrop", [*EDGE, asleep(run=0.115)], "warn"),
    ("reader-stuck", "nodrop", [*SECOND, calm, asleep(), another_reader, ONE_EDGE], "warn"),
    ("reader-edge", "nodrop", [*EDGE, asleep()], "fail"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), older], "fail"),
    ("reader-edge", "nodrop", [*BEHIND, asleep()], "note"),
    ("reader-edge", "nodrop", [*BEHIND, asleep(), queue(ring=0, taken=80)], "ok"),
    ("reader-edge", "nodrop", [*BEHIND], "note"),
    ("reader-edge", "nodrop", [*BEHIND, asleep(run=0.115)], "note"),
    ("reader-edge", "nodrop", [*BEHIND, asleep(), another_reader], "note"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), queue(ring=3, taken=1)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), later(f"stats.{NAME}.tx0_ring", 1)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), queue(ring=0)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), LOSES], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), TRIPS], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), short], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep("T")], "ok"),
    ("reader-edge", "nodrop", [*EDGE], "fail"),
    ("reader-edge", "nodrop", [*EDGE, asleep(run=0.115)], "note"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), another_reader], "fail"),
    ("reader-edge", "nodrop", [*EDGE, asleep("T"), another_reader], "ok"),
    ("reader-edge", "nodrop", [*SECOND, calm, asleep(), another_reader, ONE_EDGE], "note"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), owner(edge=[])], None),
    ("reader-edge", "nodrop", [*EDGE, asleep(), owner(vhost=1)], None),
    ("delay", "nodrop", [], "warn"),
    ("delay", "nodrop", TRICKLE, "warn"),
    ("delay", "nodrop", [*TRICKLE, SAME_STOPS], "note"),
    ("delay", "nodrop", [*TRICKLE, SAME_STOPS, SMALLEST], "warn"),
    ("delay", "nodrop", [*TRICKLE, both("qdiscs.0.kind", "fq_codel")], "warn"),
    ("delay", "nodrop", [*TRICKLE, was_empty], "note"),
    ("delay", "nodrop", [queue(ring=4, taken=100), QUICK], "note"),
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


def verdict(data: dict[str, Any], check: str, device: str | None = None) -> Verdict | None:
    verdicts = [
        finding.verdict
        for finding in doctor_command.examine(Record.from_json(data).observation())
        if (finding.id, finding.device) == (check, device)
    ]
    assert len(verdicts) <= 1
    return verdicts[0] if verdicts else None


def changed(name: str, *changes: Change) -> dict[str, Any]:
    data = load(name)
    for change in changes:
        change(data)
    return data


def verdict_of(row: Row) -> Verdict | None:
    check, name, changes, _ = row
    return verdict(changed(name, *changes), check, NAME if row in DEVICE else None)


@pytest.mark.parametrize(
    "check", sorted({*findings.MACHINE, *findings.RING, *findings.TUNNEL} - {"namespaces"})
)
def test_check(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a clone, which has no nodrop in PATH."""
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    rows = [row for row in [*MACHINE, *DEVICE] if row[0] == check]
    for row in rows:
        result = verdict_of(row)
        assert (str(result.severity) if result else None) == row[3], row
        assert bool(result and result.cost) is (row[3] in BAD), row
    assert {row[3] in BAD for row in rows} == {True, False}
    first = verdict_of(next(row for row in rows if row[3] in BAD))
    assert first
    assert first.fix
    for line in first.commands:
        program, *words = shlex.split(line)
        assert program != "nodrop"
        if words[:2] == ["-m", "nodrop"]:
            cli.parser().parse_args(words[2:])


@pytest.mark.parametrize("path", ["/usr/bin/nodrop", None])
def test_fix_runs_here_and_the_livepatch_is_last(
    monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: path)
    start = "nodrop" if path else "python3 -m nodrop"
    for changes, check, line in (
        ([], "driver-stock", f"{start} install"),
        ([STALE], "module-old", "rmmod vhost_net tun nodrop"),
    ):
        release = "6.12.90+deb13.1-amd64"
        installed = kernels({"nodrop": bool(changes), "release": release})
        patched = system(livepatch=True, release=release)
        result = verdict(changed("stock", *changes, installed, patched), check)
        assert result
        assert result.commands[0] == line
        assert result.fix[-1].startswith("#")
        assert result.fix[-1].endswith(f"{start} livepatch load")


def test_checks_that_need_root_are_skipped() -> None:
    data = changed("stock", machine(holders=[], hidden=7, root=False))
    for when in ("before", "after"):
        data[when]["unread"] = {"blue": "no right"}
    for check, device in (("reader-starved", NAME), ("reader-saturated", NAME), ("namespaces", "")):
        result = verdict(data, check, device or None)
        assert result
        assert result.severity is Severity.SKIPPED


@pytest.mark.parametrize(
    ("where", "prefix"),
    [("blue", "ip netns exec blue"), ("4711", "nsenter --net=/proc/4711/ns/net")],
)
def test_fix_is_for_the_namespace(where: str, prefix: str) -> None:
    data = load("noqueue")
    for one in spaces(data):
        one["name"] = where
    result = verdict(data, "noqueue", f"{where}/{NAME}")
    assert result
    assert result.fix == (f"{prefix} tc qdisc replace dev {NAME} root fq_codel",)


def test_each_queue_gets_a_qdisc() -> None:
    result = verdict(changed("noqueue", *QUEUES), "noqueue", NAME)
    assert result
    assert result.fix == (f"tc qdisc replace dev {NAME} root mq",)


@pytest.mark.parametrize("kind", ["macvtap", "ipvtap"])
def test_macvtap_counts_received_packets_as_sent(kind: str) -> None:
    (link,) = Record.from_json(changed("stock", tap(kind))).observation(frozenset([NAME])).links
    one = link.now
    assert (one.kind, one.direct, one.driver, one.enabled) == (kind, True, Driver.NODROP, True)
    assert (one.tx_packets, one.tx_bytes, one.tx_dropped) == (1000, 90000, 70)
    assert (one.rx_packets, one.rx_bytes, one.rx_dropped) == (3, 300, 0)
    assert one.drops_by_cause == {"unheld": 70}
    assert (one.queue[0].ring_packets, one.queue[0].limit_packets) == (7, 20)
    assert [owner.name for owner in one.owners] == ["python3"]


def test_fix_of_a_macvtap() -> None:
    for change, check, line in (
        (tap(on="N"), "nodrop-off", "echo Y >/sys/module/tap/parameters/nodrop"),
        (tap(on=None), "ring-drops", "modprobe -r macvtap ipvtap tap"),
    ):
        result = verdict(changed("stock", change, TAP_DROPS), check, NAME)
        assert result
        assert line in result.fix
    late = [tap(), files(tap_guard_ms="2000"), both(f"stats.{NAME}.rx0_guard_trips", 1)]
    result = verdict(changed("nodrop", *late), "guard-tripped", NAME)
    assert result
    assert result.commands == ("echo 10000 >/sys/module/tap/parameters/guard_ms",)
    inside = changed("stock", tap(on=None), TAP_DROPS, system(container="docker"))
    result = verdict(inside, "ring-drops", NAME)
    assert result
    assert result.commands == (), "a container has no command that helps"


@pytest.mark.parametrize(
    ("changes", "who"),
    [
        ([], "python3(64)"),
        ([another_reader], "one of python3(64), python3(226)"),
        ([another_reader, queue(0, ring=4)], "python3(64), python3(226)"),
        ([owner(tun=[NAME, NAME]), another_reader], "python3(64), python3(226)"),
    ],
)
def test_only_who_has_the_unread_queue_is_named(changes: list[Change], who: str) -> None:
    """Each has one queue of two, and nothing shows which."""
    result = verdict(changed("nodrop", *SECOND, *changes), "reader-stuck", NAME)
    assert result
    assert result.seen.startswith(f"{who} d")


def test_watched_for_edges_by_a_thread_that_may_work() -> None:
    """Neither says that no packet waits, nor names a process that is not watched for edges."""
    for share in (0.115, 0.9):
        changes = [*BEHIND, asleep(run=share), another_reader]
        result = verdict(changed("nodrop", *changes), "reader-edge", NAME)
        assert result
        assert result.seen.startswith("3 packets wait in the ring for python3(64), which")
        assert f" uses {share:.0%} of a CPU" in result.cost
        assert result.numbers["queue0_taken_packets_per_s"] > 40


def numbers(check: str, *changes: Change) -> dict[str, float]:
    result = verdict(changed("nodrop", *changes), check, NAME)
    assert result
    return result.numbers


def test_unread_queue_has_its_number_and_since_when() -> None:
    seconds = 49.63498112 - 47.79906304
    result = numbers("reader-stuck", *SECOND)
    assert (result["unread_queues"], result["ring_packets"]) == (1, 4)
    assert result["queue1_unread_s"] == pytest.approx(seconds)
    result = numbers("reader-stuck", *SECOND, queue(0, ring=6, stalled_ms=12_300))
    assert (result["unread_queues"], result["ring_packets"]) == (2, 10)
    times = [result["queue0_unread_s"], result["queue1_unread_s"]]
    assert times == pytest.approx([seconds, seconds])
    # It may have read some packets since the guard tripped.
    assert result["queue0_stalled_s"] == 12.3
    assert "queue1_stalled_s" not in result
    edge = numbers("reader-edge", *EDGE, asleep())
    assert edge == {"ring_packets": 3, "queue0_unread_s": pytest.approx(seconds)}


def test_stalled_reader_has_its_rate_and_since_when() -> None:
    result = numbers("guard-tripped", *STALLED)
    assert result.pop("queue0_taken_packets_per_s") == pytest.approx(9 / 1.836, rel=0.01)
    assert result == {"guard_trips": 1, "queue0_stalled_s": 12.3}


def test_what_the_reader_took_is_modulo_2_32() -> None:
    wraps = [queue(ring=4), both(f"stats.{NAME}.tx0_taken", (1 << 32) - 3)]
    then = both(f"stats.{NAME}.tx0_taken", 6, first=1)
    stalled = [*STALLED, *wraps, both(f"stats.{NAME}.tx0_stalled_ms", 50), then]
    assert numbers("guard-tripped", *stalled)["queue0_taken_packets_per_s"] == pytest.approx(
        9 / 1.836, rel=0.01
    )


def test_stopped_reader_is_continued() -> None:
    for state, command in (("T", "kill -CONT 64"), ("S", "cat /proc/64/status /proc/64/wchan")):
        result = verdict(changed("stuck", asleep(state)), "reader-stuck", NAME)
        assert result
        assert result.commands == (command,)


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        # A pace of 100 us in a ring that was empty; 22,632 bytes, of which 20,240 left in 1.84 s.
        ([was_empty], {"ring_wait_ms": 0.2, "qdisc_wait_ms": 2053}),
        ([calm, queue(ring=400, taken=100), was_empty], {"ring_wait_ms": 40, "qdisc_wait_ms": 0}),
        # 100 packets in 1.84 s of a ring that was not, as with a reader that pauses.
        ([calm, queue(ring=400, taken=100)], {"ring_wait_ms": 7344, "qdisc_wait_ms": 0}),
        # 100,000 packets.
        ([calm, queue(ring=400, taken=10**5)], {"ring_wait_ms": 40, "qdisc_wait_ms": 0}),
        # Without a sample of its pace.
        ([calm, queue(ring=4, taken=100), NO_PACE], {"ring_wait_ms": 73.4, "qdisc_wait_ms": 0}),
        ([calm, queue(ring=4)], {"qdisc_wait_ms": 0}),
        ([blocked, queue(ring=4)], {}),
        # The second queue of two.
        ([*SECOND, calm], {"qdisc_wait_ms": 0}),
    ],
)
def test_delay_of_ring_and_qdisc(changes: list[Change], waits: dict[str, float]) -> None:
    result = numbers("delay", *changes)
    assert {key: of for key, of in result.items() if key.endswith("_ms")} == pytest.approx(
        waits, rel=0.01
    )
    assert result["queue"] == (1 if SECOND[-1] in changes else 0)


def test_reader_that_sets_the_pace_is_named() -> None:
    result = verdict(changed("nodrop", *TRICKLE), "delay", NAME)
    assert result
    assert result.cost.startswith("python3(64) takes 4.4 packets/s")
    assert result.numbers["taken_packets_per_s"] == pytest.approx(8 / 1.836, rel=0.01)
    shaped = verdict(changed("nodrop", *TRICKLE, SAME_STOPS), "delay", NAME)
    assert shaped
    assert "python3" not in shaped.cost, "the queue was not stopped"


def test_shaper_is_not_replaced() -> None:
    for kind, commands in (("pfifo", 1), ("htb", 0), ("fq_codel", 0)):
        result = verdict(changed("nodrop", both("qdiscs.0.kind", kind)), "delay", NAME)
        assert result
        assert len(result.commands) == commands


def doctor(monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]) -> None:
    """Replace the machine that the command reads."""
    recorded = Record.from_json(data)

    def record(*_args: object, check: Callable[[object], None], **_words: object) -> Record:
        check(recorded.before)
        return recorded

    monkeypatch.setattr("nodrop.commands.doctor.record", record)


@pytest.mark.parametrize("name", RECORDS)
def test_json_matches_the_schema(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    data = changed(name, files(default_qdisc="pfifo_fast"))
    recorded = Record.from_json(data)
    assert Record.from_json(json.loads(json.dumps(asdict(recorded)))) == recorded
    doctor(monkeypatch, data)
    shown = answer(capsys, "doctor", status=3)
    (rates,) = (one["numbers"] for one in shown["checks"] if one["id"] == "ring-drops")
    first, second = (space["links"][0]["stats64"]["tx"]["dropped"] for space in spaces(data))
    lost = pytest.approx(second - first, rel=0.01)
    assert rates["dropped_packets_per_s"] * shown["interval_s"] == lost
    assert shown["counts"]["warn"] == sum(one["severity"] == "warn" for one in shown["checks"]) > 0


@pytest.mark.parametrize(
    ("name", "change", "status"),
    [("nodrop", [], 0), ("nodrop", [FULL], 1), ("stock", [], 2)],
)
def test_line_for_nagios(
    name: str, change: list[Change], status: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    odd = "a|b'c=d"
    data = changed(name, *change, both("links.0.ifname", odd), both("qdiscs.0.dev", odd))
    doctor(monkeypatch, data)
    assert cli.main(["doctor", "--nagios"]) == status
    (line,) = capsys.readouterr().out.splitlines()
    text, values = line.split(" | ")
    assert text.split()[1] == ("OK", "WARNING", "CRITICAL")[status]
    label = "'a_b''c_d ring-drops dropped_packets_per_s'"
    result = dict(re.findall(r"('(?:[^']|'')*')=([\d.]+)(?: |$)", values))
    assert (float(result[label]) > 0) is (status == 2)
    assert cli.main(["doctor", "--nagios", "nothing0"]) == 3
    assert capsys.readouterr().out.startswith("NODROP UNKNOWN - ")
    assert cli.main(["doctor", "--nagios", "-j"]) == 2
    assert cli.main(["doctor", "--nagios", "-A", "-n", "blue"]) == 2
    monkeypatch.setattr("nodrop.commands.doctor.record", None)
    assert cli.main(["doctor", "--nagios"]) == 3, "a bug"
    assert capsys.readouterr().out.startswith("NODROP UNKNOWN - ")


def test_device_disappears(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    data = load("nodrop")
    spaces(data)[1]["links"].clear()
    doctor(monkeypatch, data)
    assert answer(capsys, "doctor")["gone_devices"] == [NAME]
    assert cli.main(["doctor", NAME]) == cli.main(["doctor", "nothing0"]) == 1


def test_process_names_stay_in_their_line(capsys: Capture) -> None:
    """A process name may contain a second command, or an escape sequence."""
    data = changed("stock", NODROP_KERNEL, STALE, owner(name="x\nreboot #\x1b[2J"))
    observation = Record.from_json(data).observation()
    results = doctor_command.examine(observation)
    lines = [
        line
        for one in doctor_command.findings_json(observation, results)["checks"]
        for line in one["fix"]
    ]
    assert any("reboot" in line for line in lines)
    assert all(line.isprintable() for line in lines)
    console = screen.console(argparse.Namespace(color="never"))
    doctor_command.print_text(console, observation, results, fine=True)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert not [line for line in out.splitlines() if line.lstrip().startswith("reboot")]
