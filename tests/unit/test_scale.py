# SPDX-License-Identifier: GPL-2.0-only
"""Packets of any size: what is sent, what counts as delivered in the window."""

from __future__ import annotations

import errno
import os
import struct
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import pytest

from nodrop.bench import scenario
from nodrop.guest import tundev
from nodrop.guest.counters import LinkCounters, QdiscCounters
from nodrop.guest.environment import Environment
from nodrop.guest.failure import GuestError, Unsupported
from nodrop.guest.kreader import Counts
from nodrop.guest.payload import Payload
from nodrop.guest.plan import Variant
from nodrop.guest.scenarios import scale
from nodrop.guest.scenarios.base import DeviceCounts

NOWHERE = Environment(Path("/none"), Path("/none"), Path("/none"))


def test_payloads() -> None:
    plain, one, many = map(Payload.parse, ("1472", "1x1472", "44x1472"))
    assert (plain.bytes, one.bytes, many.bytes) == (1472, 1472, 64768)
    assert (plain.offloads, one.offloads) == (0, many.offloads)
    assert many.words == ["--size", "1472", "--segments", "44"]
    assert plain.words == one.words == ["--size", "1472", "--segments", "1"]
    for text in ("", "x1472", "0x1472", "44x", "4.5", "44x0"):
        with pytest.raises(GuestError, match="a payload is"):
            Payload.parse(text)


@pytest.mark.parametrize("name", ["scale", "scale-sizes"])
def test_the_scenarios(name: str) -> None:
    one = scenario.load(name)
    payloads = [Payload.parse(str(case.parameters["payload"])) for case in one.cases()]
    assert all(payload.bytes <= 65507 for payload in payloads)
    assert any(payload.segments > 1 for payload in payloads) == (name == "scale-sizes")
    # A reader's time is that of its work, whatever the driver: it tells nothing.
    assert not [metric for metric in one.metrics if metric.startswith("reader_")]


def test_a_kernel_without_large_udp_packets_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def ioctl(_fd: int, request: int, *_args: object) -> bytes:
        if request == tundev.TUNSETOFFLOAD:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return struct.pack("I", 0xFFFF)

    monkeypatch.setattr("nodrop.guest.tundev.fcntl.ioctl", ioctl)
    device = tundev.TunDevice("ndtun0", tundev.IFF_TUN, offloads=tundev.UDP_OFFLOADS)
    with pytest.raises(Unsupported, match="offloads 0x61"):
        device._set_up()


class World:
    """A reader takes a packet each millisecond, and 400 more after the senders' end."""

    fd = 9

    def __init__(self) -> None:
        self.packets = 0
        self.now_ns = 10**9

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_args: object) -> None:
        pass

    def sleep(self, seconds: float) -> None:
        self.packets += round(seconds * 1000)
        self.now_ns += round(seconds * 1e9)

    def read(self) -> Counts:
        return Counts(self.packets, 0, self.now_ns, 0, 0, 0, 0, 1, 0)

    def result(self) -> dict[str, Any]:
        self.packets += 400
        self.now_ns += 10_000_000
        sent = {"sent": self.packets, "seconds": 0.54, "cpu_seconds": self.packets * 2e-6}
        return {**sent, "longest_send_ns": 0, "eagain": 0, "enobufs": 0, "other_errors": 0}

    def drain(self, _name: str, offered: int) -> DeviceCounts:
        link = LinkCounters(offered, 0, 0)
        return DeviceCounts(link, QdiscCounters("fq_codel", offered * 44, 0, 0, 0))


def test_what_is_read_after_the_window_is_not_delivered_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    told: dict[str, Any] = {}

    def device(_name: str, _flags: int, *, offloads: int) -> World:
        told["offloads"] = offloads
        return world

    def service(argv: list[str]) -> World:
        told["sender"] = argv
        return world

    monkeypatch.setattr(scale, "TunDevice", device)
    monkeypatch.setattr(scale, "KernelReader", lambda *_args, **_more: world)
    monkeypatch.setattr(scale, "Service", service)
    monkeypatch.setattr(scale, "drain", world.drain)
    monkeypatch.setattr("nodrop.guest.scenarios.scale.time.sleep", world.sleep)
    monkeypatch.setattr(scale, "awake_cpus", lambda _modules: nullcontext())
    monkeypatch.setattr(scale, "configure", lambda *_args, **_more: None)
    monkeypatch.setattr(scale, "tool", lambda _argv: "")
    monkeypatch.setattr(scale, "driver_counters", lambda _name: {})
    (case,) = [c for c in scenario.load("scale-sizes").cases() if c.name == "payload=44x1472"]
    metrics = scale.Scale(case.parameters, NOWHERE).run(Variant.STOCK, 0.5)
    assert metrics["delivered_pps"] == 1000
    assert metrics["delivered_mbit_per_s"] == pytest.approx(1000 * 44 * 1472 * 8 / 1e6)
    assert metrics["offered"] == metrics["delivered"] == world.packets > 900
    assert metrics["unaccounted"] == 0
    assert metrics["sender_cpu_us_per_packet"] == pytest.approx(2)
    assert told["offloads"] == tundev.UDP_OFFLOADS
    sender = told["sender"]
    assert sender[-4:] == ["--size", "1472", "--segments", "44"]
    # The window ends before they do.
    assert float(sender[sender.index("--seconds") + 1]) > 1
