# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import json

import pytest

from nodrop.guest.failure import GuestError
from nodrop.guest.scenarios.vpnhost import parse_udp
from nodrop.guest.scenarios.vpntcp import parse_dropped

SNMP = """\
Tcp: RtoAlgorithm RtoMin
Tcp: 1 200
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors
Udp: 100 1 7 99 5 2
UdpLite: InDatagrams NoPorts InErrors
UdpLite: 0 0 0
"""


def test_udp_errors() -> None:
    found = parse_udp(SNMP)
    assert (found["InErrors"], found["RcvbufErrors"], found["SndbufErrors"]) == (7, 5, 2)
    with pytest.raises(GuestError):
        parse_udp("Tcp: RtoAlgorithm\nTcp: 1\n")


def test_dropped_both_ways() -> None:
    stats = {"rx": {"packets": 9, "dropped": 3}, "tx": {"packets": 8, "dropped": 4}}
    assert parse_dropped(json.dumps([{"stats64": stats}])) == 7
    with pytest.raises(GuestError):
        parse_dropped("[]")
