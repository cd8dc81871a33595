# SPDX-License-Identifier: GPL-2.0-only
"""Rates and output of ``nodrop top`` from recorded machines that change."""

from __future__ import annotations

import argparse
import copy
import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from hosts import ALL, raw
from schema import validate

from nodrop import cli
from nodrop.commands import common, top
from nodrop.commands.top import DeviceRow, RateMeter, chosen
from nodrop.host.counters import GAUGES
from nodrop.host.read import Raw, RawNamespace, build

Capture = pytest.CaptureFixture[str]
Change = Callable[[RawNamespace], None]


def later(before: Raw, seconds: float, *changes: Change) -> Raw:
    """The machine after a time, and after the changes to its first namespace."""
    after = copy.deepcopy(before)
    for change in changes:
        change(after.namespaces[0])
    spaces = [replace(space, time_s=space.time_s + seconds) for space in after.namespaces]
    return replace(after, namespaces=spaces)


def rows(*machines: Raw) -> dict[str, DeviceRow]:
    """Return the rows of the last of several samples, by the devices' labels."""
    meter = RateMeter()
    for machine in machines:
        times = {space.inode: space.time_s for space in machine.namespaces}
        last = meter.rows(build(machine).devices, times)
    return {row.device.label: row for row in last}


def link(space: RawNamespace, name: str) -> dict[str, Any]:
    return next(one for one in space.links if one["ifname"] == name)


def sent(name: str, packets: int, size: int, dropped: int = 0) -> Change:
    def change(space: RawNamespace) -> None:
        tx = link(space, name)["stats64"]["tx"]
        tx["packets"] += packets
        tx["bytes"] += packets * size
        tx["dropped"] += dropped

    return change


def counted(name: str, **numbers: int) -> Change:
    def change(space: RawNamespace) -> None:
        for counter, number in numbers.items():
            space.stats[name][f"tx0_{counter}"] = (
                number if counter in GAUGES else space.stats[name][f"tx0_{counter}"] + number
            )

    return change


def queued(name: str, packets: int, size: int, drops: int = 0) -> Change:
    def change(space: RawNamespace) -> None:
        root = next(one for one in space.qdiscs if one["dev"] == name and one.get("root"))
        root.update(qlen=packets, backlog=packets * size, drops=root["drops"] + drops)

    return change


def test_nodrop() -> None:
    before = raw("nodrop")
    after = later(
        before,
        0.5,
        sent("ndtest0", 1000, 200, 30),
        counted("ndtest0", stops=40, wakes=39, kicks=7, kicks_here=2, drop_guard=20),
        counted("ndtest0", ring=8, limit=10, pace_ns=400_000),
        queued("ndtest0", 100, 200),
    )
    row = rows(before, after)["ndtest0"]
    assert (row.link["tx_packets"], row.link["tx_bytes"]) == (2000.0, 400_000.0)
    assert [row.counters[name] for name in ("stops", "wakes", "kicks", "kicks_here")] == [
        *(80.0, 78.0, 14.0, 4.0)
    ]
    # 30 drops, of which the driver counts 20 by cause.
    assert {cause: rate for cause, rate in row.drops.items() if rate} == {
        **{"guard": 40.0, "other": 20.0}
    }
    assert row.dropped == 60.0
    # 20,000 bytes at 400,000 a second, and 8 packets at 2000 a second.
    assert (row.backlog.qdisc_ms, row.backlog.ring_ms) == pytest.approx((50.0, 4.0))
    assert row.backlog.both_ms == pytest.approx(54.0)
    assert (row.backlog.ring_bytes, row.backlog.both_bytes) == (1600, 21_600)
    (queue,) = row.queues
    assert (queue.flow.packets, queue.counters["stops"]) == (2000.0, 80.0)
    assert queue.backlog == row.backlog
    # A gauge that decreased voids no rate.
    assert (queue.queue.limit_packets, queue.queue.pace_ns) == (10, 400_000)


def test_skew_of_counters_is_no_cause() -> None:
    before = raw("nodrop")
    after = later(before, 1.0, sent("ndtest0", 0, 0, 105), counted("ndtest0", drop_guard=100))
    assert rows(before, after)["ndtest0"].dropped == 100.0


def test_device_is_created_again() -> None:
    before = raw("stock")
    without = later(before, 1.0, lambda space: space.links.remove(link(space, "ndtest0")))
    again = later(before, 2.0, sent("ndtest0", 10, 1))
    assert "ndtest0" not in rows(before, without)
    assert rows(before, without, again)["ndtest0"].interval_s is None


@pytest.mark.parametrize(
    ("key", "value", "rate"), [("ifname", "vpn0", 100.0), ("ifindex", 99, None)]
)
def test_identity_of_a_device(key: str, value: object, rate: float | None) -> None:
    """A renamed device is the same; another one of the same name is not."""
    before = raw("stock")
    after = later(
        before, 1.0, sent("ndtest0", 100, 1), lambda s: link(s, "ndtest0").update({key: value})
    )
    row = rows(before, after)["vpn0" if key == "ifname" else "ndtest0"]
    assert row.link.get("tx_packets") == rate


def test_same_ifindex_in_another_namespace() -> None:
    before = raw("spaces")
    spaces = [replace(space, inode=space.inode + 1_000_000) for space in before.namespaces]
    after = rows(before, later(replace(before, namespaces=spaces), 1.0))
    assert all(row.interval_s is None for row in after.values())


def test_no_rate_is_negative() -> None:
    before = later(
        raw("nodrop"),
        0.0,
        sent("ndtest0", 1000, 100, 0),
        counted("ndtest0", stops=1000),
        queued("ndtest0", 0, 0, 50),
    )

    def anew(space: RawNamespace) -> None:
        space.stats["ndtest0"] = dict.fromkeys(space.stats["ndtest0"], 3)
        queued("ndtest0", 0, 0, -40)(space)

    row = rows(before, later(before, 1.0, sent("ndtest0", 5, 100), anew))["ndtest0"]
    # The queue and the qdisc are new, the device is not.
    assert (row.link["tx_packets"], row.counters, row.qdisc) == (5.0, {}, {})
    row = rows(before, later(before, 1.0, sent("ndtest0", -5, 100)))["ndtest0"]
    assert (row.interval_s, row.link, row.queues[0].flow.packets) == (None, {}, None)
    assert rows(before, later(before, 0.0))["ndtest0"].interval_s is None


MQ = {"kind": "mq", "handle": "8001:", "dev": "ndtest0", "root": True, "options": {}}
LEAF = {"kind": "fq_codel", "dev": "ndtest0", "options": {}, "packets": 0, "bytes": 0}


def test_queues_below_mq() -> None:
    before = raw("nodrop")
    space = before.namespaces[0]
    link(space, "ndtest0")["linkinfo"]["info_data"]["numqueues"] = 2
    flows = {"new_flows_len": 2, "old_flows_len": 3, "ecn_mark": 1, "drops": 4}
    space.qdiscs[:] = [MQ, {**LEAF, "parent": "8001:1"}, {**LEAF, **flows, "parent": "8001:a"}]
    # As with a driver that does not count what the reader took. mq counts segments.
    del space.stats["ndtest0"]["tx0_taken"]
    space.stats["ndtest0"].update({"tx9_stops": 0, "tx9_ring": 5})

    def change(space: RawNamespace) -> None:
        space.qdiscs[1].update(packets=600, bytes=60_000)
        space.qdiscs[2].update(packets=200, bytes=20_000, backlog=500, qlen=5, ecn_mark=11)
        space.stats["ndtest0"].update({"tx0_ring": 6, "tx9_stops": 8})

    row = rows(before, later(before, 2.0, sent("ndtest0", 700, 100), change))["ndtest0"]
    first, _, last = row.queues
    # Of the size of the device's packets: mq's bytes and the reader's packets are not the same.
    assert (first.backlog.ring_bytes, last.backlog.ring_bytes) == (600, 500)
    assert (first.flow.packets, first.flow.bytes, first.backlog.ring_ms) == (None, 30_000.0, None)
    assert (last.queue.index, last.flow.packets, last.counters["stops"]) == (9, None, 4.0)
    assert (last.qdisc["ecn_marks"], last.queue.qdisc and last.queue.qdisc.flows) == (5.0, 5)
    assert (last.backlog.qdisc_ms, last.backlog.ring_ms) == (50.0, None)
    assert (row.queues[1].flow.packets, row.queues[1].flow.bytes) == (None, None)


def test_queues_by_what_the_reader_took() -> None:
    """Below one qdisc, and with mq, where the ring may still hold what the qdisc has sent."""
    before = raw("nodrop")
    space = before.namespaces[0]
    link(space, "ndtest0")["linkinfo"]["info_data"]["numqueues"] = 2
    stats = space.stats["ndtest0"]
    stats["tx0_taken"] = (1 << 32) - 100
    stats.update({"tx1_taken": 5000, "tx1_ring": 7, "tx1_stalled_ms": 30})

    def change(space: RawNamespace) -> None:
        # A gauge that decreased, of a reader that was stalled, voids no rate.
        now = {"tx0_taken": 500, "tx1_taken": 5014, "tx0_ring": 6, "tx1_stalled_ms": 0}
        space.stats["ndtest0"].update(now)

    first, last = rows(before, later(before, 2.0, change))["ndtest0"].queues
    assert (first.flow.packets, last.flow.packets, last.flow.bytes) == (300.0, 7.0, None)
    assert (first.backlog.ring_ms, last.backlog.ring_ms) == (20.0, 1000.0)
    assert last.backlog.qdisc_ms is None
    # A new queue begins from 0, and so do its other counters.
    stats["tx1_taken"] = 7000
    assert rows(before, later(before, 2.0, change))["ndtest0"].queues[1].flow.packets is None
    space.qdiscs[:] = [MQ, {**LEAF, "parent": "8001:1"}, {**LEAF, "parent": "8001:2"}]

    def sent_by_mq(space: RawNamespace) -> None:
        space.qdiscs[1].update(packets=900, bytes=90_000)

    (first, _) = rows(before, later(before, 2.0, change, sent_by_mq))["ndtest0"].queues
    assert (first.flow.packets, first.flow.bytes) == (300.0, 45_000.0)


def test_backlog_of_the_first_sample() -> None:
    """Lengths are known at once, waits are not; macvtap has no qdisc before its ring."""
    some = [queued("ndtest0", 100, 200), counted("ndtest0", ring=8)]
    row = rows(later(raw("nodrop"), 0.0, *some))["ndtest0"]
    (queue,) = row.queues
    assert row.backlog == queue.backlog
    assert (row.backlog.both_ms, row.flow.packets) == (None, None)
    # Of the MTU's size, as nothing was sent yet.
    assert (row.backlog.qdisc_bytes, row.backlog.ring_bytes) == (20_000, 8 * 1500)

    def macvtap(space: RawNamespace) -> None:
        link(space, "ndtest0")["linkinfo"] = {"info_kind": "macvtap", "info_data": {}}

    row = rows(later(raw("nodrop"), 0.0, *some, macvtap))["ndtest0"]
    assert row.backlog.qdisc_bytes == 0


def test_a_tunnel() -> None:
    before = raw("spaces")
    row = rows(before, later(before, 1.0))["vx0"]
    assert (row.drops, row.queues, row.backlog.both_ms) == ({"tunnel": 0.0}, (), None)
    for space in before.namespaces:
        for one in space.links:
            one["qdisc"] = "fq_codel"
    assert rows(before, later(before, 1.0))["vx0"].backlog.both_ms == 0.0


def many() -> list[DeviceRow]:
    before = raw("stock")
    base = link(before.namespaces[0], "ndtest0")
    for number in range(4):
        more = {**copy.deepcopy(base), "ifname": f"m{number}", "ifindex": 50 + number}
        before.namespaces[0].links.append(more)
    changes = [sent(f"m{number}", 10 * number, 1000 - 300 * number) for number in range(4)]
    return list(rows(before, later(before, 1.0, *changes, sent("m1", 0, 0, 5))).values())


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("drops", ["m1", "m3", "m2"]),
        ("wait", ["m3", "m2", "m1"]),
    ],
)
def test_sort(sort: str, first: list[str]) -> None:
    arguments = argparse.Namespace(sort=sort, limit=3, device=[])
    assert [row.device.name for row in chosen(many(), arguments)] == first


def test_short_numbers() -> None:
    numbers = (None, 0.0, 0.26, 9.94, 9.96, 999.4, 999.6, 12_345, 999_600, 1.5e9, 7e12)
    shown = ["-", "0", "0.3", "9.9", "10", "999", "1.00k", "12.3k", "1.00M", "1.50G", "7T"]
    assert [top.short(number) for number in numbers] == shown
    waits = ["-", "0", "~250us", "~3.4ms", "~120ms", "~2.5s"]
    assert [top.delay(ms) for ms in (None, 0.0, 0.25, 3.42, 120, 2500)] == waits


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 100 packets and 50 drops in the second between two samples."""

    now = raw("nodrop")

    def read(*_: object, **_words: object) -> Raw:
        nonlocal now
        now = later(now, 1.0, sent("ndtest0", 100, 1000, 50), counted("ndtest0", stops=9))
        return now

    monkeypatch.setattr("nodrop.commands.top.read", read)


@pytest.mark.usefixtures("machine")
def test_refreshes(capsys: Capture) -> None:
    words = ["-j", "top", "--interval", "0.1", "--count", "3", "--queues"]
    assert cli.main(words) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for number, line in enumerate(lines, start=1):
        validate("top", line)
        assert line["refresh"] == number
        first = line["devices"][0]
        assert (first["name"], first["tx_packets_per_s"]) == ("ndtest0", 100.0)
        assert (first["tx_bytes_per_s"], first["stops_per_s"]) == (100_000.0, 9.0)
        assert first["tx_dropped_packets_per_s"] == 50.0
        assert first["queue"][0]["stops_per_s"] == 9.0
    assert len(lines) == 3


def test_json_matches_the_schema(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name in ALL:
        monkeypatch.setattr("nodrop.commands.top.read", Mock(return_value=raw(name)))
        assert cli.main(["-j", "top", "--interval", "0.1", "--count", "1", "--queues"]) == 0
        validate("top", json.loads(capsys.readouterr().out))


def test_device_disappears(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Its program may restart, and create it again."""
    there = raw("nodrop")
    samples = [there, later(there, 1.0, lambda space: space.links.clear()), there]
    monkeypatch.setattr("nodrop.commands.top.read", Mock(side_effect=samples))
    assert cli.main(["-q", "top", "ndtest0", "--interval", "0.1", "--count", "2"]) == 0
    gone, back = capsys.readouterr().out.split("\n\n")
    assert "ndtest0" in gone
    assert "ndtest0" in back
    assert common.NO_DEVICE not in gone, "there may be others"


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_terminal_is_redrawn(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr(shown, "fileno", lambda: 1)
    monkeypatch.setattr("sys.stdout", shown)
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((columns, 12)))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)
    words = ["--color", "never", "top", "--interval", "0.1", "--count", "2", "--queues"]
    assert cli.main(words) == 0
    _, *refreshes = shown.getvalue().split("\033[H\033[J")
    assert len(refreshes) == 3
    for refresh in refreshes:
        lines = refresh.splitlines()
        assert len(lines) < 12
        assert max(map(len, lines)) <= columns
        assert any("ndtest0" in line for line in lines)
