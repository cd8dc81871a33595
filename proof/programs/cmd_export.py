#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""nodrop export: its metrics equal those of ip, tc, ethtool and sysfs, with each driver."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

from command import NOBODY, REPOSITORY, command, ended, start
from devices import NAME, counters, dropped, tun
from harness import check, drivers, equal, parameter, run, soon
from traffic import Reader, Sender

from guestlib.drivers import IFF_BACKPRESSURE
from guestlib.namespaces import namespaces
from guestlib.process import Service, ip_batch, tool
from guestlib.tundev import IFF_TUN, TunDevice, known_flags
from lab.variant import Variant

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
_LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="([^"\\]*)"')
DAEMON = 1
SERVICE = REPOSITORY / "packaging/systemd/nodrop-export.service"
QUEUE = {"device": NAME, "netns": "", "queue": "0"}


def samples(page: str) -> Samples:
    """Parse a page of metrics whose labels need no escapes."""
    found: Samples = {}
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        check(match is not None, f"not a sample: {line}")
        assert match
        found[match[1], frozenset(_LABEL.findall(match[2] or ""))] = float(match[3])
    return found


def exported(*words: str) -> Samples:
    return samples(command("export", *words).stdout)


def of(found: Samples, name: str, **labels: str) -> float:
    """Return the only sample of a metric with these labels."""
    values = [
        value for (this, pairs), value in found.items() if this == name and labels.items() <= pairs
    ]
    equal(len(values), 1, f"samples of {name} {labels}")
    return values[0]


def compare(driver: Variant) -> Samples:
    """Compare the device's metrics with other tools' output while no packets flow."""
    found = exported()
    link = json.loads(tool(["ip", "-j", "-s", "link", "show", "dev", NAME]))[0]
    qdisc = json.loads(tool(["tc", "-j", "-s", "qdisc", "show", "dev", NAME, "root"]))[0]
    labels = {"device": NAME, "netns": "", "kind": "tun", "driver": str(driver)}
    tx, rx = link["stats64"]["tx"], link["stats64"]["rx"]
    for metric, value in {
        "transmit_packets_total": tx["packets"],
        "transmit_bytes_total": tx["bytes"],
        "transmit_dropped_packets_total": tx["dropped"],
        "receive_packets_total": rx["packets"],
        "receive_bytes_total": rx["bytes"],
        "receive_dropped_packets_total": rx["dropped"],
        "qdisc_dropped_packets_total": qdisc["drops"],
        "qdisc_requeued_packets_total": qdisc["requeues"],
        "qdisc_backlog_packets": qdisc["qlen"],
        "qdisc_backlog_bytes": qdisc["backlog"],
        "txqueuelen_packets": link["txqlen"],
        "queues": 1,
        "up": 1,
        "carrier": 1,
        "backpressure": driver is not Variant.STOCK,
    }.items():
        equal(of(found, f"nodrop_device_{metric}", **labels), value, metric)
    info = of(found, "nodrop_device_info", **labels, qdisc=qdisc["kind"], vhost="no")
    equal(info, 1, "information")
    equal(of(found, "nodrop_unread_namespaces"), 0, "unread namespaces")
    return found


def compare_queue(found: Samples) -> None:
    """Compare the metrics of a queue with the driver's counters."""
    rest = counters()
    for metric, name in {
        "stops_total": "stops",
        "limit_stops_total": "stops_limit",
        "wakes_total": "wakes",
        "kicks_total": "kicks",
        "local_kicks_total": "kicks_here",
        "guard_trips_total": "guard_trips",
        "ring_packets": "ring",
        "limit_packets": "limit",
    }.items():
        equal(of(found, f"nodrop_queue_{metric}", **QUEUE), rest.pop(name), name)
    for name in [name for name in rest if name.startswith("drop_")]:
        cause = name.removeprefix("drop_")
        value = of(found, "nodrop_queue_dropped_packets_total", **QUEUE, cause=cause)
        equal(value, rest.pop(name), name)
    # The pace is unknown until the reader has taken some packets in a row.
    if pace := rest.pop("pace_ns"):
        equal(of(found, "nodrop_queue_pace_seconds", **QUEUE), pace / 1e9, "pace")
    # Not exported: it falls when vhost-net puts packets back, which looks like a reset.
    del rest["taken"]
    # The time goes on.
    stalled, until = of(found, "nodrop_queue_stalled_seconds", **QUEUE), rest.pop("stalled_ms")
    check(bool(stalled) == bool(until) and stalled * 1e3 <= until, f"stalled {stalled}, {until}")
    equal(rest, {}, "counters that are not exported")


def traffic(device: TunDevice, *, lossy: bool) -> None:
    """Let some packets arrive, some be dropped if the driver drops, and some stay queued."""
    os.write(device.fd, bytes.fromhex("4500001400000000401100000a0000010a000002"))
    sender = Sender(300)
    with Reader(device.fd, pause_s=0.001) as reader:
        check(reader.reaches(10 if lossy else 100), "no packets arrive")
    soon(lambda: dropped() > 0 if lossy else sender.sent > 150, "too few packets are sent")
    check(sender.finished(10), "the sender is blocked")


def case_other_drivers() -> None:
    drivers.use(Variant.STOCK)
    with tun(20) as device:
        traffic(device, lossy=True)
        found = compare(Variant.STOCK)
        check(dropped() > 0, "no drops")
        equal(of(found, "nodrop_module_info", module="tun", driver="stock"), 1, "module")
        names = {name for name, _ in found}
        check(not any(name.startswith("nodrop_queue_") for name in names), "counters of a queue")
        check("nodrop_guard_seconds" not in names, "a stall guard")
    drivers.use(Variant.UPSTREAM)
    if known_flags() & IFF_BACKPRESSURE:
        with tun(20, flags=IFF_TUN | IFF_BACKPRESSURE) as device:
            traffic(device, lossy=False)
            compare(Variant.UPSTREAM)


def case_nodrop() -> None:
    # Otherwise the guard would trip, as there is no reader.
    with parameter("guard_ms", "0"), tun(40) as device:
        traffic(device, lossy=False)
        found = compare(Variant.NODROP)
        compare_queue(found)
        for name in ("ring_packets", "stops_total", "limit_packets", "pace_seconds"):
            check(of(found, f"nodrop_queue_{name}", **QUEUE) > 0, f"no {name}")
        equal(of(found, "nodrop_guard_seconds"), 0, "guard")
        version = (REPOSITORY / "kmod/VERSION").read_text().strip()
        module = {"module": "tun", "driver": "nodrop", "version": version}
        equal(of(found, "nodrop_module_info", **module), 1, "module")


def case_guard_and_causes() -> None:
    with parameter("guard_ms", "100"), tun(20):
        sender = Sender(500)
        soon(lambda: dropped() > 100, "the guard does not trip")
        check(sender.finished(10), "the sender is blocked")
        found = compare(Variant.NODROP)
        compare_queue(found)
        equal(of(found, "nodrop_queue_guard_trips_total", **QUEUE), 1, "trips of the guard")
        check(of(found, "nodrop_queue_stalled_seconds", **QUEUE) > 0, "the reader is not stalled")
        lost = of(found, "nodrop_queue_dropped_packets_total", **QUEUE, cause="guard")
        equal(lost, dropped(), "drops")
        equal(of(found, "nodrop_guard_seconds"), 0.1, "guard")
    with parameter("nodrop", "N"):
        equal(of(exported(), "nodrop_default_backpressure"), 0, "default")


def case_namespace_without_a_name() -> None:
    """Its label is its inode, not the pid of a process in it."""
    with Service(["unshare", "-n", "cat"], announces=False) as process:
        own = Path("/proc/self/ns/net").stat().st_ino
        path = Path(f"/proc/{process.pid}/ns/net")
        soon(lambda: path.stat().st_ino != own, "no namespace")
        inode = path.stat().st_ino
        ip_batch([f"tuntap add {NAME} mode tap", f"link set dev {NAME} netns {process.pid}"])
        labels = {"device": NAME, "netns": f"net:[{inode}]", "kind": "tap"}
        equal(of(exported("-A"), "nodrop_device_up", **labels), 0, "up")
        equal(of(exported("-n", str(process.pid)), "nodrop_device_up", **labels), 0, "up")


def case_with_the_rights_of_the_service() -> None:
    """The unit's capabilities suffice for other namespaces and other users' processes."""
    line = re.search(r"^CapabilityBoundingSet=(.*)$", SERVICE.read_text(), re.MULTILINE)
    assert line
    rights = ",".join(
        ["-all", *(f"+{one.removeprefix('CAP_').lower()}" for one in line[1].split())]
    )
    with tempfile.TemporaryDirectory() as folder, namespaces("ndblue"), tun(20) as device:
        ip_batch([f"link set dev {NAME} netns ndblue"])
        os.chown(folder, NOBODY, NOBODY)
        path = Path(folder) / "nodrop.prom"
        by = ("setpriv", f"--bounding-set={rights}", "--no-new-privs")
        # Another service has the device, too. A person's processes are not asked for theirs.
        with Service(["cat"], announces=False, pass_fds=[device.fd], user=DAEMON):
            ended(start("export", "-A", "--out", str(path), by=by), 0)
        equal(path.stat().st_mode & 0o777, 0o644, "mode")
        found = samples(path.read_text())
        labels = {"device": NAME, "netns": "ndblue"}
        owners = [
            dict(pairs)["owner"]
            for name, pairs in found
            if name == "nodrop_device_info" and labels.items() <= pairs
        ]
        equal([set(one.split(",")) >= {"cat"} for one in owners], [True], f"owners {owners}")
        equal(of(found, "nodrop_unread_namespaces"), 0, "unread namespaces")
        equal(of(found, "nodrop_hidden_processes"), 0, "hidden processes")


run()
