#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""nodrop's installed modules load beside stock ones, and push back with both kinds of consumer.

::

    Sender --> qdisc --> ndtest0 --> read()          pktgen --> ndtest0 --> vhost-net
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "proof/programs"))

from devices import counters, tun
from harness import equal, run, soon
from installed import (
    NEIGHBOURS,
    OURS,
    load,
    log_length,
    no_refusals,
    place,
    pushes_back,
    unload_all,
)
from traffic import SLOW_NS, all_arrive, client, flood

from guestlib.tundev import IFF_TAP


def case_modprobe_takes_ours() -> None:
    unload_all()
    before = log_length()
    load(*OURS)
    for module in OURS:
        equal(place(module), "updates", f"{module}: the folder")
    no_refusals(before)


def case_neighbours_load() -> None:
    """Stock modules load on top of nodrop's, and nodrop's on top of the stock vhost."""
    before = log_length()
    load(*NEIGHBOURS)
    for module in set(NEIGHBOURS) - set(OURS):
        equal(place(module), "kernel", f"{module}: the folder")
    no_refusals(before)


def case_read_pushes_back() -> None:
    pushes_back()


def case_vhost_net_pushes_back() -> None:
    with tun(5, flags=IFF_TAP) as device, client(device, work_ns=SLOW_NS) as reader:
        with flood(1, direct=True) as sent:
            soon(lambda: counters()["stops"] > 0, "the queue was not stopped")
        all_arrive(reader, sent.offered)


run(tun=None, at_end=unload_all)
