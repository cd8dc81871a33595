# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.guest.counters import (
    LinkCounters,
    QdiscCounters,
    parse_ethtool,
    parse_link,
    parse_qdisc,
)
from nodrop.guest.failure import GuestError
from nodrop.guest.pktgen import PktgenResult, parse_device

SAMPLES = Path(__file__).with_name("samples")


def sample(name: str) -> str:
    return (SAMPLES / name).read_text()


def test_link_counts_the_transmit_side() -> None:
    text = sample("ip-link.json").replace(
        '"tx":{"bytes":0,"packets":0', '"tx":{"bytes":9,"packets":2'
    )
    text = text.replace('"dropped":0,"carrier_errors"', '"dropped":7,"carrier_errors"')
    assert parse_link(text) == LinkCounters(tx_packets=2, tx_bytes=9, tx_dropped=7)


def test_link_of_an_idle_device() -> None:
    assert parse_link(sample("ip-link.json")) == LinkCounters(0, 0, 0)


def test_fq_codel() -> None:
    assert parse_qdisc(sample("tc-fq_codel.json")) == QdiscCounters(
        kind="fq_codel", packets=4, drops=1950, requeues=1, queued=89
    )


def test_noqueue_holds_nothing() -> None:
    assert parse_qdisc(sample("tc-noqueue.json")) == QdiscCounters("noqueue", 0, 0, 0, 0)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", '[{"root": true}]', "not JSON"])
def test_unknown_output_is_an_error(text: str) -> None:
    with pytest.raises(GuestError):
        parse_qdisc(text)
    with pytest.raises(GuestError):
        parse_link(text)


def test_ethtool_skips_what_is_no_counter() -> None:
    found = parse_ethtool(sample("ethtool-nodrop.txt"))
    assert found["tx0_stops"] == 1
    assert found["tx0_guard_trips"] == 0
    assert "NIC statistics" not in found


def test_pktgen() -> None:
    result = parse_device(sample("pktgen.txt"))
    assert result == PktgenResult(accepted=2000, refused=39, active_s=0.002144)
    assert result.offered == 2039


def test_pktgen_of_another_form_is_an_error() -> None:
    with pytest.raises(GuestError):
        parse_device("Params: count 1\n")
