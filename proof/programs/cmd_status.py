#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""nodrop status and top: they agree with ip, ethtool and /proc, and keep nothing alive."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from command import as_json, ended, start
from devices import NAME, counters, dropped, tun
from harness import check, drivers, equal, parameter, run, soon
from traffic import Reader, Sender

from guestlib.drivers import IFF_BACKPRESSURE
from guestlib.environment import LEAST_S
from guestlib.namespaces import namespaces
from guestlib.netstats import link_counters
from guestlib.process import in_netns, ip_batch, tool
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_TUN, TunDevice, known_flags
from lab.variant import Variant

Seen = list[tuple[dict[str, Any], dict[str, int]]]
INTERVAL_S = 0.2
REFRESHES = 7


def shown(*words: str) -> dict[str, Any]:
    """Return one device of status's output."""
    found = as_json("status", *words)["devices"]
    return next(device for device in found if device["name"] == NAME)


def flooded(driver: Variant, *, flags: int = 0) -> dict[str, Any]:
    """Fill the ring of a device that is not read, keep sending, and return its status."""
    with tun(20, flags=IFF_TUN | flags):
        sender = Sender(10**6)
        soon(lambda: sender.sent > 50, "too few packets are sent")
        if driver is Variant.STOCK:
            soon(lambda: dropped() > 100, "nothing is dropped")
        device = shown()
        if driver is Variant.NODROP:
            for name in ("stops", "guard_trips"):
                equal(device[name], counters()[name], name)
        sender.stop()
    equal(device["driver"], str(driver), "driver")
    equal(device["kind"], "tun", "kind")
    equal(device["txqueuelen_packets"], 20, "txqueuelen")
    equal([owner["pid"] for owner in device["owners"]], [os.getpid()], "owners")
    check(device["carrier"] and device["queues"] == 1, "not attached")
    return device


def case_each_driver() -> None:
    drivers.use(Variant.STOCK)
    check(flooded(Variant.STOCK)["tx_dropped_packets"] > 100, "no drops are shown")
    drivers.use(Variant.UPSTREAM)
    if known_flags() & IFF_BACKPRESSURE:
        equal(flooded(Variant.UPSTREAM, flags=IFF_BACKPRESSURE)["tx_dropped_packets"], 0, "drops")
    drivers.use(Variant.NODROP)
    with parameter("guard_ms", "0"):
        device = flooded(Variant.NODROP)
    equal(device["tx_dropped_packets"], 0, "drops")
    queue = device["queue"][0]
    equal((queue["ring_packets"], queue["limit_packets"]), (4, 4), "packets in the ring")


def case_vhost_net_driver() -> None:
    """The stock vhost_net has a version, as nodrop's has."""
    for variant in (Variant.STOCK, Variant.NODROP):
        drivers.use(Variant.NODROP, vhost=variant)
        found = as_json("status")
        equal(found["vhost_net"]["driver"], str(variant), "vhost_net's driver")
        equal(found["tun"]["driver"], "nodrop", "tun's driver")


def case_entered_without_its_sys() -> None:
    """nsenter --net: /sys still shows this namespace, with a device of the same name."""
    drivers.use(Variant.UPSTREAM)
    if not known_flags() & IFF_BACKPRESSURE:
        return
    with (
        namespaces("ndblue"),
        tun(500, flags=IFF_TUN | IFF_BACKPRESSURE),
        TunDevice("ndother", IFF_TUN),
    ):
        ip_batch(["link set dev ndother netns ndblue"])
        ip_batch([f"link set dev ndother name {NAME}", f"link set dev {NAME} up"], netns="ndblue")
        argv = in_netns("ndblue", [sys.executable, "-m", "nodrop", "-j", "status"])
        there = json.loads(tool(argv))["devices"][0]["driver"]
        # Only sysfs distinguishes stock and upstream.
        equal((shown()["driver"], there), ("upstream", "stock"), "drivers here and there")


def case_other_namespaces() -> None:
    with namespaces("ndblue"), tun(20):
        ip_batch(["tuntap add ndblue0 mode tap", "link set dev ndblue0 up"], netns="ndblue")
        ip_batch([f"link set dev {NAME} netns ndblue"])
        equal(as_json("status")["devices"], [], "devices here")
        moved = shown("-n", "ndblue")
        equal([owner["pid"] for owner in moved["owners"]], [os.getpid()], "owner of a moved device")
        everything = as_json("status", "-A")
        labels = sorted(f"{one['netns']}/{one['name']}" for one in everything["devices"])
        equal(labels, ["ndblue/ndblue0", f"ndblue/{NAME}"], "all devices")
        equal(everything["unread_namespaces"], {}, "unread namespaces")


class Top:
    """``nodrop -j top`` while it runs."""

    def __init__(self, *words: str) -> None:
        self.process = start("-j", "top", "--interval", f"{INTERVAL_S}", *words)

    def line(self) -> dict[str, Any]:
        """Return the next refresh."""
        assert self.process.stdout
        found = json.loads(self.process.stdout.readline())
        assert isinstance(found, dict)
        return found

    def device(self, name: str = NAME) -> dict[str, Any]:
        """Return a device of the next refresh."""
        return next(one for one in self.line()["devices"] if one["name"] == name)

    def __enter__(self) -> Top:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            ended(self.process, 130)


@contextmanager
def slowly_read() -> Iterator[None]:
    """Send faster than a slow reader takes, for the block."""
    with tun(100) as device, Reader(device.fd, pause_s=0.0005):
        sender = Sender(10**9)
        try:
            yield
        finally:
            check(sender.stop(), "the sender is blocked")


def watched(top: Top) -> Seen:
    """Return refreshes, each with the counters read after it."""
    found = []
    for _ in range(REFRESHES):
        device = top.device()
        link = link_counters(NAME)
        now = {"tx_packets": link.tx_packets, "tx_bytes": link.tx_bytes, "lost": link.tx_dropped}
        found.append((device, {**now, **counters()}))
    return found


def agreeing(top: Top, **rates: str) -> Seen:
    """Watch until rates agree with counters; retry for LEAST_S: this process may read them late.

    The command takes a sample between the previous refresh and its own. So the sum of all rates but
    the first two lies between the counter's increase from the second refresh to the last but one,
    and that from the first to the last.

    Args:
        rates: a rate, without _per_s, and its counter.
    """
    end = time.monotonic() + LEAST_S
    while True:
        seen, wrong = watched(top), []
        for rate, counter in rates.items():
            shown = sum(device[f"{rate}_per_s"] * device["interval_s"] for device, _ in seen[2:])
            least = seen[-2][1][counter] - seen[1][1][counter]
            most = seen[-1][1][counter] - seen[0][1][counter]
            if not (least <= shown <= most and most > 0):
                wrong.append(f"{rate}: {shown:.1f}, counted {least} to {most}")
        if not wrong:
            return seen
        check(time.monotonic() < end, f"{wrong}")


def case_top_with_stock() -> None:
    drivers.use(Variant.STOCK)
    with slowly_read():
        with Top() as top:
            seen = agreeing(top, tx_packets="tx_packets", tx_dropped_packets="lost")
        with Top("--count", "1") as top:
            top.line()
            equal(ended(top.process, 0), ("", ""), "other output")
    device = seen[-1][0]
    equal(list(device["drops_by_cause_packets_per_s"]), ["ring"], "causes")
    unknown = ("ring_packets", "stops_per_s", "wait_estimate_ms", "ring_wait_estimate_ms")
    equal([device[key] for key in unknown], [None] * 4, "values unknown with stock")


def case_top_with_nodrop() -> None:
    names = ("tx_packets", "tx_bytes", "stops", "wakes")
    with slowly_read(), Top("--queues") as top:
        seen = agreeing(top, **dict(zip(names, names, strict=True)))
    equal({one["tx_dropped_packets_per_s"] for one, _ in seen[1:]}, {0}, "drops per second")
    device = next(one for one, _ in reversed(seen) if one["qdisc"]["queued_packets"])
    check(0 < device["ring_packets"] <= 100, f"{device['ring_packets']} packets in the ring")
    expected = device["ring_packets"] / device["tx_packets_per_s"] * 1000
    check(abs(device["ring_wait_estimate_ms"] - expected) < 0.01, "wait in the ring")
    check(device["wait_estimate_ms"] > expected, "wait in qdisc and ring")
    (queue,) = device["queue"]
    equal(queue["stops_per_s"], device["stops_per_s"], "stops of the only queue")
    equal(queue["stalled_ms"], 0, "time since the reader was found stalled")
    check(4 <= queue["limit_packets"] <= 100, f"a limit of {queue['limit_packets']} packets")
    # A pace cannot be shorter than the reader's pause.
    check(queue["pace_ns"] >= 500_000, f"{queue['pace_ns']} ns a packet")


def case_top_opened_meanwhile() -> None:
    """A new device's reader and a new queue are in the next refreshes."""
    flags = IFF_TUN | IFF_MULTI_QUEUE
    with Top("--queues") as top:
        equal(top.line()["devices"], [], "devices")
        with TunDevice("ndmulti0", flags):
            while not (devices := top.line()["devices"]):
                continue
            equal([one["pid"] for one in devices[0]["owners"]], [os.getpid()], "its reader")
            equal(len(devices[0]["queue"]), 1, "queues")
            with TunDevice("ndmulti0", flags):
                for _ in range(3):
                    queues = top.device("ndmulti0")["queue"]
                # Each queue has its own counters.
                equal([one["ring_packets"] is None for one in queues], [False, False], "queues")


def case_top_namespace_disappears() -> None:
    """A deleted namespace is not kept alive; a run that watched only it ends with an error."""
    with Top("-A") as everywhere, namespaces("ndgreen"):
        ip_batch(["tuntap add ndtap0 mode tap"], netns="ndgreen")
        with Top("-n", "ndgreen") as top:
            equal(len(top.line()["devices"]), 1, "devices")
            while not everywhere.line()["devices"]:
                continue
            ip_batch(["netns delete ndgreen"])
            _, err = ended(top.process, 1)
            check("ndgreen" in err, err)
            while everywhere.line()["devices"]:
                continue
        ip_batch(["netns add ndgreen"])


run()
