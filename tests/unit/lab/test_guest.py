# SPDX-License-Identifier: GPL-2.0-only
"""Code that runs in a guest: parsers of counters and results, accounts of packets."""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.guest import iperf
from bench.guest.base import DeviceCounts
from bench.guest.pktgen import flood_metrics
from bench.guest.shaping import due
from guestlib import kselftest
from guestlib.failure import GuestError
from guestlib.kreader import Counts, Direction
from guestlib.netstats import LinkCounters, QdiscCounters, parse_link, parse_qdisc, parse_snmp
from guestlib.pktgen import PktgenResult, parse_device
from nodrop import proc

SAMPLES = Path(__file__).parents[1] / "samples"


def counts(
    read: int, lost: int, given: int = 0, drops: int = 0, queued: int = 0, kind: str = "fq_codel"
) -> DeviceCounts:
    return DeviceCounts(
        LinkCounters(tx_packets=read, tx_bytes=0, tx_dropped=lost, rx_dropped=0),
        QdiscCounters(kind, packets=given, drops=drops, requeues=0, queued=queued),
    )


def test_drop_with_noqueue_is_not_lost() -> None:
    for kind, lost, unqueued in (("noqueue", 0, 3), ("fq_codel", 3, 0)):
        read = [Counts(Direction(7 * at), Direction(0), at * 10**9, 0, 0, 0, 0) for at in (0, 1)]
        sent = [PktgenResult(accepted=7, refused=3, active_s=1.0)]
        found = flood_metrics("reader", sent, (read[0], read[1]), 7, counts(7, 3, kind=kind))
        assert (found["lost"], found["unqueued"], found["unaccounted"]) == (lost, unqueued, 0)


@pytest.mark.parametrize(
    ("device", "offered", "drained"),
    [
        (counts(7, 1, given=8, drops=2), 10, True),
        (counts(6, 1, given=8, drops=2), 10, False),
        (counts(6, 1, given=7, drops=2, queued=1), 10, False),
        # Bypassing the qdisc, which has counted nothing.
        (counts(9, 1), 10, True),
        (counts(7, 1, given=8, drops=2), None, True),
        (counts(7, 0, given=8, drops=2), None, False),
        (counts(7, 1, given=8, drops=2, queued=1), None, False),
    ],
)
def test_drained(device: DeviceCounts, offered: int | None, drained: bool) -> None:
    assert device.is_drained(offered) is drained


def test_kernel_counters() -> None:
    fq_codel = parse_qdisc((SAMPLES / "tc-fq_codel.json").read_text())
    assert fq_codel == QdiscCounters("fq_codel", packets=4, drops=1950, requeues=1, queued=89)
    pktgen = parse_device((SAMPLES / "pktgen.txt").read_text())
    assert (pktgen.accepted, pktgen.refused, pktgen.active_s) == (2000, 39, 0.002144)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", '[{"root": true}]', "not JSON"])
def test_unknown_output_is_an_error(text: str) -> None:
    parse_udp = partial(parse_snmp, protocol="Udp")
    for parse in (parse_qdisc, parse_link, parse_device, parse_udp, iperf.parse):
        if (parse, text) != (iperf.parse, "{}"):
            with pytest.raises(GuestError):
                parse(text)


def test_link_and_udp_drops() -> None:
    stats = {"rx": {"dropped": 3}, "tx": {"packets": 8, "bytes": 9, "dropped": 4}}
    assert parse_link(json.dumps([{"stats64": stats}])) == LinkCounters(8, 9, 4, 3)
    udp = "Udp: InDatagrams InErrors SndbufErrors\nUdp: 100 7 2\nUdpLite: InErrors\nUdpLite: 0\n"
    assert parse_snmp(udp, "Udp") == {"InDatagrams": 100, "InErrors": 7, "SndbufErrors": 2}


def interval(start: float, end: float, *flows: int) -> dict[str, Any]:
    streams = [{"socket": 5 + index, "bytes": count} for index, count in enumerate(flows)]
    return {"sum": {"start": start, "end": end, "seconds": end - start}, "streams": streams}


def sent(start: float, end: float, retransmits: int, *rtts_us: int) -> dict[str, Any]:
    whole = {"start": start, "end": end, "retransmits": retransmits}
    return {"sum": whole, "streams": [{"rtt": rtt_us} for rtt_us in rtts_us]}


SENT = {"intervals": [sent(0.0, 0.5, 9, 700_000, 900_000), sent(0.5, 1.0, 3, 120_000, 140_000)]}


def test_iperf_skips_warm_up() -> None:
    came = [interval(0.0, 0.3, 900, 900), interval(0.3, 0.4, 90, 90), interval(0.35, 0.9, 5, 7)]
    found = iperf.window_metrics(SENT, {"intervals": came}, warm_up_s=0.4)
    assert (found["retransmits"], found["rtt_mean_ms"]) == (3, 130)
    assert found["window_s"] == pytest.approx(0.55)
    assert found["goodput_mbit_per_s"] == pytest.approx(12 * 8 / 0.55 / 1e6)
    early: dict[str, Any] = {"intervals": came[:1]}
    nothing: dict[str, Any] = {"intervals": []}
    failed = {**SENT, "error": "unable to connect"}
    for sides in ((SENT, early), (nothing, {"intervals": came}), (failed, early), (SENT, {})):
        with pytest.raises(GuestError):
            iperf.window_metrics(*sides, warm_up_s=0.4)
    assert iperf.parse('warning: odd\n{"end": {}}\n') == {"end": {}}


@pytest.mark.parametrize(
    ("weights", "demands", "wanted"),
    [
        ((80, 20), (math.inf, math.inf), (80, 20)),
        ((1, 4), (5, math.inf), (5, 95)),
        ((1, 4), (30, math.inf), (20, 80)),
        ((80, 20), (math.inf, 5), (95, 5)),
        ((1, 4), (10, 20), (10, 20)),
        ((1, 1, 2), (10, math.inf, math.inf), (10, 30, 60)),
    ],
)
def test_unused_share_is_divided(
    weights: tuple[float, ...], demands: tuple[float, ...], wanted: tuple[float, ...]
) -> None:
    assert due(100, weights, demands) == pytest.approx(wanted)


def test_kselftest_output_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "TAP version 13\nok 1 a\nnot ok 2 - b\n# ok 3 c # SKIP no tool\nnot okay\nis it ok?\n"
    text += "  TEST: d (received 101/100)   [ OK ]\n\x1b[32mTEST: e\x1b[0m  [FAIL]\nPASS: f\n"
    text += "\x1b[1m[+] NS0: g\n"
    assert kselftest.parse(text) == [
        *(("a", "ok"), ("b", "not ok"), ("c", "SKIP")),
        *(("TEST: d", "OK"), ("TEST: e", "FAIL"), ("f", "PASS"), ("NS0", "[+]")),
    ]
    argv = [sys.executable, "-uc", "print('ok 1 it'); raise SystemExit(4)"]
    found, _ = kselftest.results(argv, tmp_path, 60.0)
    assert found == [("it", "ok"), (kselftest.EXIT_STATUS, kselftest.SKIPPED)]
    late = proc.Completed(kselftest._LATE, "ok 1 it\n", 0.0)
    monkeypatch.setattr(proc, "run", lambda *_args, **_words: late)
    found, _ = kselftest.results(argv, tmp_path, 60.0)
    assert found == [("it", "ok"), (kselftest.EXIT_STATUS, kselftest.STOPPED)]
