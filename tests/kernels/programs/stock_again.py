#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""After nodrop is removed, the stock drivers load, and drop."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "proof/programs"))

from devices import dropped, tun
from harness import check, equal, run, soon
from installed import NEIGHBOURS, load, loaded, log_length, no_refusals, place, unload_all
from traffic import SLOW_NS, Sender, client, flood

from guestlib.drivers import tun_built_in
from guestlib.environment import GuestError
from guestlib.netstats import driver_counters
from guestlib.process import tool
from guestlib.tundev import IFF_TAP

TUN = () if tun_built_in() else ("tun",)


def case_nothing_of_nodrop_is_installed() -> None:
    unload_all()
    for module in (*TUN, *NEIGHBOURS):
        equal(place(module), "kernel", f"{module}: the folder")
    try:
        file = tool(["modinfo", "--field", "filename", "nodrop"])
    except GuestError:
        return
    raise AssertionError(f"{file.strip()} is still there")


def case_all_load() -> None:
    unload_all()
    before = log_length()
    load(*TUN, *NEIGHBOURS)
    check(not loaded("nodrop"), "nodrop was loaded")
    no_refusals(before)


def case_tun_drops() -> None:
    load(*TUN)
    with tun(5) as device:
        check(Sender(100).finished(10), "the sender is blocked")
        equal(dropped(), 95, "packets dropped")
        equal(driver_counters(device.name), {}, "nodrop's counters")


def case_vhost_drops() -> None:
    load(*TUN, "vhost_net")
    with (
        tun(5, flags=IFF_TAP) as device,
        client(device, work_ns=SLOW_NS) as reader,
        flood(1, direct=False),
    ):
        soon(lambda: dropped() > 100, "hardly any packets are dropped")
        soon(lambda: reader.packets > 100, "hardly any packets arrive")


run(tun=None, at_end=unload_all)
